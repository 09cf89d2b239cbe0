import dataclasses
import importlib
import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

import configs
from jaxnlp.config import Config
from jaxnlp.saving.checkpoints import RunError
from jaxnlp.saving.serialization import to_json
from train.cli.command_line import (
    RunOptions,
    UsageError,
    parse,
    parse_resumed,
    print_config,
    refuse_resume,
)
from train.config import update
from train.recipes import UnknownRecipeError, load_recipe, overview
from train.run.folder import write_json

RECIPE = "gpt_python_docs"
PACKAGES = ("jaxnlp", "data", "train")
FILES = sorted(Path(configs.__file__).parent.glob("*.py"))
RECIPES = [path.stem for path in FILES if path.stem != "__init__"]


def typed(*arguments, options=None):
    return parse([RECIPE, *arguments], options or RunOptions(), program="python -m train")


def refusal(*arguments):
    """Why a command is refused: the message of the error, in one line."""
    with pytest.raises(UsageError) as caught:
        typed(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", RECIPES)
def test_overview_lists_every_recipe_with_its_summary(name):
    summary = importlib.import_module(f"configs.{name}").__doc__.splitlines()[0]
    assert re.search(rf" {name} {re.escape(summary)} ", " ".join(overview("python -m train").split()) + " ")


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["--help"], 0), (["-h"], 0)])
def test_overview_is_shown_without_a_recipe(capsys, arguments, status):
    with pytest.raises(SystemExit) as caught:
        parse(arguments, RunOptions(), program="prog")
    assert caught.value.code == status
    assert capsys.readouterr().out.rstrip() == overview("prog").rstrip()


def test_the_list_says_which_data_each_recipe_needs(capsys):
    with pytest.raises(SystemExit) as caught:
        parse(["--list"], RunOptions(), program="prog")
    assert caught.value.code == 0
    _, *lines = capsys.readouterr().out.splitlines()
    found = {line.split()[0]: re.split("  +", line)[1] for line in lines[: len(RECIPES)]}
    assert list(found) == RECIPES
    assert (found["gpt_python_docs"], found["vit_cifar10"]) == ("-", "cifar10")
    assert (found["bert_sst"], found["bert_classify"]) == ("cs224n_minbert, weights", "your table, weights")
    assert lines[-1].startswith("weights = also pretrained weights, ")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpt_python_doc", "did you mean gpt_python_docs"),
        ("gpt_shakespear", "did you mean gpt_shakespeare or "),
        ("xyz", f"the recipes are {', '.join(RECIPES)}"),
        ("../configs/gpt_python_docs", ""),
        ("__init__", ""),
    ],
)
def test_unknown_recipe_is_refused_with_the_nearest_names(name, hint):
    with pytest.raises(UnknownRecipeError, match=f"^unknown recipe {name!r}; .*{re.escape(hint)}"):
        parse([name], RunOptions(), program="python -m train")


@pytest.fixture
def own_recipe(tmp_path, monkeypatch):
    """A copy of a recipe elsewhere, under another name, as a user makes one."""
    monkeypatch.setattr("train.recipes._given", {})
    monkeypatch.setattr("sys.path", list(sys.path))
    source = (Path(configs.__file__).parent / f"{RECIPE}.py").read_text()
    path = tmp_path / "my_poems.py"
    path.write_text(source)
    yield path
    sys.modules.pop("my_poems", None)


def test_a_recipe_given_by_its_path_has_the_name_of_its_file(own_recipe):
    config, _ = parse([str(own_recipe), "--total-steps", "7"], RunOptions(), program="python -m train")
    assert config == update(load_recipe(RECIPE), recipe="my_poems", total_steps=7)
    output = io.StringIO()
    print_config(Console(file=output), config)
    assert output.getvalue().splitlines()[0] == "recipe my_poems, with"


def test_a_file_with_the_name_of_another_module_is_refused(own_recipe):
    path = own_recipe.rename(own_recipe.with_name("jaxnlp.py"))
    with pytest.raises(UnknownRecipeError, match=r"jaxnlp\.py has the name of another module, .*; rename the file"):
        parse([str(path)], RunOptions(), program="python -m train")


def test_a_path_without_a_recipe_is_refused(tmp_path, own_recipe):
    with pytest.raises(UnknownRecipeError, match=r"the recipe .*nothing\.py does not exist"):
        parse([str(tmp_path / "nothing.py")], RunOptions(), program="python -m train")
    own_recipe.write_text("")
    with pytest.raises(UnknownRecipeError, match=r"my_poems\.py must define get_config"):
        parse([str(own_recipe)], RunOptions(), program="python -m train")


def test_a_run_is_resumed_with_its_own_config_and_further_options(tmp_path):
    config = update(load_recipe(RECIPE), total_steps=7, **{"model.num_layers": 2})
    write_json(tmp_path / "run" / "config.json", to_json(config))
    folder = tmp_path / "run"
    assert parse_resumed([str(folder)], "train") == (config, RunOptions(workdir=folder))
    found, options = parse_resumed([str(folder), "--total-steps", "9", "--extend"], "train")
    assert (found, options) == (update(config, total_steps=9), RunOptions(workdir=folder, extend=True))


def test_what_cannot_be_resumed_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--resume needs the run's folder: train --resume FOLDER"):
        parse_resumed([], "train")
    write_json(tmp_path / "run" / "config.json", to_json(load_recipe(RECIPE)))
    with pytest.raises(RunError, match=r"is not a training run \(no config.json\); runs inside it: run"):
        parse_resumed([str(tmp_path)], "train")
    with pytest.raises(UsageError, match="continues in that folder; remove --workdir"):
        parse_resumed([str(tmp_path / "run"), "--workdir", "x"], "train")


@pytest.mark.parametrize("words", [("--resume", "runs/a b"), ("--resume=runs/a b",)])
def test_a_recipe_before_resume_is_refused_with_the_command_to_type(words):
    message = "--resume is given without a recipe: jaxnlp train --resume 'runs/a b' --seed 9"
    for typed in ([RECIPE, *words, "--seed", "9"], [RECIPE, "--seed", "9", *words]):
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            refuse_resume(typed, "jaxnlp train")
    refuse_resume([RECIPE, "--seed", "9"], "jaxnlp train")


def test_field_before_the_recipe_is_refused():
    with pytest.raises(
        UsageError,
        match="the first argument must be a recipe, got '--total-steps'; list the recipes with python -m train --help",
    ):
        parse(["--total-steps", "5", RECIPE], RunOptions(), program="python -m train")


def test_a_recipe_without_options_is_its_config_and_default_options():
    assert typed() == (load_recipe(RECIPE), RunOptions())


def test_overrides_reach_every_group_with_their_types():
    config, options = typed(
        *("--total-steps", "7", "--model.num-layers", "2", "--optimizer.learning-rate", "3e-4"),
        *("--model.tie-embeddings", "--data.path", "a b.txt", "--data.source", "text_file"),
        *(
            "--ema-decay",
            "0.5",
            "--task.sample-prompt",
            "None",
            "--optimizer.max-grad-norm",
            "None",
            "--nonfinite",
            "skip",
        ),
        *("--workdir", "runs/x", "--parallel", "pmap"),
    )
    expected = update(
        load_recipe(RECIPE),
        total_steps=7,
        ema_decay=0.5,
        nonfinite="skip",
        **{
            "task.sample_prompt": None,
            "model.num_layers": 2,
            "model.tie_embeddings": True,
            "optimizer.learning_rate": 3e-4,
            "optimizer.max_grad_norm": None,
            "data.path": "a b.txt",
            "data.source": "text_file",
        },
    )
    assert config == expected
    assert type(config.total_steps) is int
    assert type(config.optimizer.learning_rate) is float
    assert options == RunOptions(workdir=Path("runs/x"), parallel="pmap")


def test_flags_can_be_switched_off():
    assert typed("--model.no-use-bias")[0].model.use_bias is False


def test_options_of_another_program_are_read_with_the_config():
    @dataclasses.dataclass(frozen=True)
    class Options(Config):
        steps: int = 5
        """Number of steps."""

    config, options = typed("--steps", "9", "--seed", "3", options=Options())
    assert (options, config.seed) == (Options(steps=9), 3)


@pytest.mark.parametrize(
    ("field", "ours"),
    [
        ("--optimizer.lr", "--optimizer.learning-rate"),
        ("--lr", "--optimizer.learning-rate"),
        ("--learning_rate", "--optimizer.learning-rate"),
        ("--max-steps", "--total-steps"),
        ("--output_dir", "--workdir"),
    ],
)
def test_an_option_by_the_name_of_other_programs_is_refused_with_ours(field, ours):
    for arguments in ([field, "1"], [f"{field}=1"]):
        with pytest.raises(UsageError, match=f"^there is no option {field}; did you mean {ours}\\?$"):
            typed(*arguments)


@pytest.mark.parametrize(
    ("field", "nearest"),
    [
        ("--model.widht", "--model.width"),
        ("--optimizer.learning-rat", "--optimizer.learning-rate"),
        ("--total-step", "--total-steps"),
        ("--workdirr", "--workdir"),
    ],
)
def test_a_misspelt_field_is_refused_with_the_nearest(field, nearest):
    assert refusal(field, "3") == f"there is no option {field}; did you mean {nearest}?"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--total-steps", "many"], "--total-steps: expected a whole number, got 'many'"),
        (["--total-steps", "0"], "--total-steps must be at least 1, got 0"),
        (["--model.num-heads", "5"], "--model.num-heads must divide --model.width, got 5 heads for width 128"),
        (["--optimizer.learning-rate", "-1"], "--optimizer.learning-rate must be positive and finite, got -1.0"),
        (["--data.batch-size", "0"], "--data.batch-size must be at least 1, got 0"),
        (["--data.sequence-length", "500"], "inputs have up to 500 tokens, but the model reads at most 128"),
        (["--parallel", "threads"], "--parallel: expected one of jit, pmap, got 'threads'"),
        (["--parallel", "pmpa"], "got 'pmpa'; did you mean pmap?"),
        (["--optimizer.schedule", "cosin"], "got 'cosin'; did you mean cosine?"),
        (["--model.compute.matmul-dtype", "bf16"], "expected one of auto, bfloat16, None, got 'bf16'"),
        (["--recipe", "other"], "there is no option --recipe; see python -m train gpt_python_docs --help"),
        (["--total-steps"], "--total-steps needs a value: a whole number"),
        (["--data.path"], "--data.path needs a value: one value or more"),
        (["total_steps", "5"], "unexpected 'total_steps': options start with --; did you mean --total-steps?"),
        (["--model.use-bias", "True"], "--model.use-bias takes no value, got 'True'; give --model.use-bias or"),
    ],
)
def test_bad_value_is_refused_with_the_reason(arguments, message):
    assert message in refusal(*arguments)


def help_on(capsys, *arguments):
    """What help prints, in one line, without the frames."""
    with pytest.raises(SystemExit) as caught:
        typed(*arguments)
    assert caught.value.code == 0
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize("arguments", [["--help", "all"], ["--help=all"], ["-h", "all"]], ids=str)
def test_help_on_all_shows_the_docstring_and_each_field_with_default_and_meaning(capsys, arguments):
    printed = help_on(capsys, *arguments)
    assert "without a download" in printed
    assert "--model.num-heads INT Attention heads, H; must divide the width. (default: 4)" in printed
    assert "--optimizer.learning-rate FLOAT Peak learning rate. (default: 0.006)" in printed
    assert "--workdir" in printed
    assert "--recipe" not in printed


def test_help_shows_the_options_that_are_changed_most_often_and_names_the_groups(capsys):
    printed = help_on(capsys, "--total-steps", "5", "--help")
    assert "without a download" in printed
    for option in ("--workdir PATH", "--total-steps INT", "--data.batch-size INT", "--optimizer.learning-rate FLOAT"):
        assert option in printed
    assert "--optimizer.beta1" not in printed
    assert "python -m train gpt_python_docs --help GROUP shows others: run" in printed
    assert re.search(r"run .* data .* model .* model.compute .* task .* optimizer .* all ", printed)


def test_help_on_a_group_shows_its_options_alone(capsys):
    printed = help_on(capsys, "--help", "optimizer")
    assert "--optimizer.beta1 FLOAT" in printed
    assert "--model.width" not in printed
    assert "--ema-decay FLOAT" in help_on(capsys, "--help", "run")
    with pytest.raises(UsageError, match=r"there is no help on 'optimiser'; did you mean optimizer\?"):
        typed("--help", "optimiser")


def shown(config):
    console = Console(file=io.StringIO(), soft_wrap=True, width=40)
    print_config(console, config)
    return console.file.getvalue().splitlines()


def test_a_config_is_shown_by_its_differences_from_the_recipe():
    config, _ = typed("--model.num-layers", "2", "--task.sample-prompt", "[red]the", "--total-steps", "7")
    assert shown(config) == [
        f"recipe {RECIPE}, with",
        "  model.num_layers: 4 -> 2",
        f"  task.sample_prompt: {load_recipe(RECIPE).task.sample_prompt!r} -> '[red]the'",
        f"  total_steps: {load_recipe(RECIPE).total_steps} -> 7",
    ]


def test_an_unchanged_config_is_shown_in_a_line():
    assert shown(load_recipe(RECIPE)) == [f"recipe {RECIPE}, unchanged"]
