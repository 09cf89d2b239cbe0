import contextlib
import dataclasses
import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

import configs
from jaxnlp.config import Config
from jaxnlp.saving.checkpoint_reading import RunError
from jaxnlp.saving.serialization import to_json
from train.cli.command_line import OTHER_NAMES, RunOptions, UsageError, parse, parse_resumed, print_config, similar
from train.compile import CompileOptions
from train.config import update
from train.lr_find import FindOptions
from train.optimizer import SGD
from train.optimizer.schedules import Step
from train.recipes import UnknownRecipeError, load_recipe
from train.run.folder import write_json
from train.shardings import ShardingOptions

RECIPE = "gpt_python_docs"


def typed(*arguments, options=None, recipe=RECIPE):
    return parse([recipe, *arguments], options or RunOptions(), program="prog")


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
    config, _ = parse([str(own_recipe), "--total-steps", "7"], RunOptions(), program="prog")
    assert config == update(load_recipe(RECIPE), recipe="my_poems", total_steps=7)
    assert shown(config) == ["recipe my_poems, with", "  total_steps: 660 -> 7"]


def test_a_run_is_resumed_with_its_own_config_and_further_options(tmp_path, monkeypatch):
    config = update(load_recipe(RECIPE), total_steps=7, **{"model.num_layers": 2, "data.few_lengths": False})
    folder = tmp_path / "run"
    write_json(folder / "config.json", to_json(config))
    assert parse_resumed([str(folder)], "train") == (config, RunOptions(workdir=folder))
    monkeypatch.setenv("HOME", str(folder.parent))
    assert parse_resumed([f"~/{folder.name}"], "train") == (config, RunOptions(workdir=folder))
    with contextlib.chdir(folder):  # `fit` refuses a path without a name
        assert parse_resumed(["."], "train") == (config, RunOptions(workdir=folder))
    resumed = parse_resumed([str(folder), "--total-steps", "9", "--extend"], "train")
    assert resumed == (update(config, total_steps=9), RunOptions(workdir=folder, extend=True))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ([], UsageError, "--resume needs the run's folder: train --resume FOLDER"),
        ([""], UsageError, "--resume needs the run's folder: train --resume FOLDER"),
        (["FOLDER"], RunError, "no config.json.*; runs inside it: run"),
        (["FOLDER/run", "--workdir", "x"], UsageError, "continues in that folder; remove --workdir"),
    ],
    ids=str,
)
def test_what_cannot_be_resumed_is_refused(tmp_path, arguments, error, message):
    write_json(tmp_path / "run" / "config.json", to_json(load_recipe(RECIPE)))
    with pytest.raises(error, match=message):
        parse_resumed([word.replace("FOLDER", str(tmp_path)) for word in arguments], "train")


def test_a_recipe_without_options_is_its_config_and_default_options():
    assert typed() == (load_recipe(RECIPE), RunOptions())


def test_options_reach_every_group_with_their_types():
    words = "--total-steps 7 --ema-decay 0.5 --nonfinite skip --task.sample-prompt None --model.num-layers 2"
    words += " --model.tie-embeddings --model.no-use-bias --optimizer.learning-rate 3e-4 --optimizer.max-grad-norm None"
    words += " --data.path a.txt --data.source text_file --workdir runs/x --parallel pmap"
    config, options = typed(*words.split())
    changes = {"model.num_layers": 2, "model.tie_embeddings": True, "model.use_bias": False}
    changes |= {"optimizer.learning_rate": 3e-4, "optimizer.max_grad_norm": None, "task.sample_prompt": None}
    changes |= {"data.path": "a.txt", "data.source": "text_file"}
    assert config == update(load_recipe(RECIPE), total_steps=7, ema_decay=0.5, nonfinite="skip", **changes)
    assert type(config.total_steps) is int
    assert options == RunOptions(workdir=Path("runs/x"), parallel="pmap")


def test_a_kind_of_optimizer_or_schedule_has_its_own_options_and_keeps_the_recipes_values():
    words = "--optimizer sgd --optimizer.momentum 0.9 --optimizer.schedule=step --optimizer.schedule.interval 5"
    config, _ = typed(*words.split())
    schedule = Step(interval=5, warmup=50)
    assert config.optimizer == SGD(learning_rate=0.006, weight_decay=0.1, momentum=0.9, schedule=schedule)


def test_an_option_that_does_not_apply_any_more_keeps_no_value_of_the_recipe():
    words = ["vit_digits", "--data.source", "files", "--data.path", "images", "--data.validation-path", "others"]
    config, _ = parse(words, RunOptions(), program="jaxnlp train")
    assert load_recipe("vit_digits").data.validation_fraction == 0.2
    assert config.data.validation_fraction == 0.1
    assert config == update(
        load_recipe("vit_digits"),
        **{"data.source": "files", "data.path": "images", "data.validation_path": "others"},
    )
    for typed in ("--data.validation-fraction=0.2", "--data.validation_fraction=0.2"):
        with pytest.raises(UsageError, match=r"--data\.validation-fraction applies only to images without"):
            parse([*words, typed], RunOptions(), program="jaxnlp train")


def test_options_of_another_program_are_read_with_the_config():
    @dataclasses.dataclass(frozen=True)
    class Options(Config):
        steps: int = 5
        """Number of steps."""

    config, options = typed("--steps", "9", "--seed", "3", options=Options())
    assert (options, config.seed) == (Options(steps=9), 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "the first argument must be a recipe, got none"),
        ("--total-steps 5", "the first argument must be a recipe, got --total-steps"),
        (f"{RECIPE} --lr 1", "no option --lr; did you mean --optimizer.learning-rate?"),
        (f"{RECIPE} --optimizer.lr=1", "no option --optimizer.lr; did you mean --optimizer.learning-rate?"),
        (f"{RECIPE} --learning_rate 1", "no option --learning_rate; did you mean --optimizer.learning-rate?"),
        (f"{RECIPE} --output_dir x", "no option --output_dir; did you mean --workdir?"),
        (f"{RECIPE} --resume x", "no option --resume; did you mean --workdir?"),
        ("bert_qa --data.stride 32", "no option --data.stride; did you mean --data.overlap?"),
        (f"{RECIPE} --model.widht 3", "did you mean --model.width?"),
        (f"{RECIPE} --optimizer.learning-rat 3", "did you mean --optimizer.learning-rate?"),
        (f"{RECIPE} --optimizer.momentum 0.9", "--optimizer.momentum applies only to --optimizer sgd"),
        (f"{RECIPE} --optimizer sgd --optimizer.beta2=0", "adamw, --optimizer rmsprop and --optimizer muon"),
        (f"{RECIPE} --optimizer.schedule.patience 1", "applies only to --optimizer.schedule plateau"),
        (f"{RECIPE} --optimizer.schedule noam --optimizer.schedule.warmup 0", "schedule.warmup must be at least 1"),
        (f"{RECIPE} --recipe other", "no option --recipe; see prog gpt_python_docs --help"),
        (f"{RECIPE} total_steps 5", "unexpected 'total_steps': did you mean --total-steps?"),
        (f"{RECIPE} --model.use-bias True", "give --NAME or --no-NAME"),
        (f"{RECIPE} --data.path", "--data.path needs a value"),
        (f"{RECIPE} --total-steps 0", "--total-steps must be at least 1, got 0"),
        (f"{RECIPE} --model.num-heads 5", "--model.num-heads must divide --model.width, got 5 heads for width 128"),
        (f"{RECIPE} --data.sequence-length 500", "inputs have up to 500 tokens, but the model reads at most 128"),
        (f"{RECIPE} --help optimiser", "no help on 'optimiser'; did you mean optimizer?"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line_that_names_the_option(arguments, message):
    with pytest.raises(UsageError, match=re.escape(message)) as refused:
        parse(arguments.split(), RunOptions(), program="prog")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("words", ["--total-steps --seed 1", "--total-steps many", "--parallel pmpa"])
def test_a_value_that_is_missing_or_of_the_wrong_type_ends_the_command_with_the_option(capsys, words):
    with pytest.raises(SystemExit, match="2"):
        typed(*words.split())
    assert words.split()[0] in capsys.readouterr().err


def test_an_unknown_recipe_is_refused():
    with pytest.raises(UnknownRecipeError, match=f"did you mean {RECIPE}"):
        parse(["gpt_python_doc"], RunOptions(), program="prog")


@pytest.mark.thorough
def test_names_of_other_programs_stand_for_options_that_there_are():
    known = ["workdir", "total-steps"]
    assert (similar("steps", known), similar("lr", known), similar("workdirr", known)) == (
        ["total-steps"],
        [],
        ["workdir"],
    )
    of_windows = ("data.overlap", "data.max-length")
    for ours, others in OTHER_NAMES.items():
        recipe = "invented_people_qa" if ours in of_windows else RECIPE
        for other in others:
            with pytest.raises(UsageError, match=f"did you mean --{ours}\\?"):
                typed(f"--{other}", "1", recipe=recipe)


def test_a_number_of_epochs_is_converted_into_steps_by_the_user():
    with pytest.raises(UsageError, match=r"did you mean --total-steps\?; steps are batches: epochs x examples / batch"):
        typed("--epochs", "3")


def test_the_names_of_the_page_for_users_of_other_programs_are_suggested():
    page = Path("docs/coming_from.md").read_text().partition("| `TrainingArguments` |")[2]
    rows = re.findall(r"^\| (`.+`) \| (`--.+?)\|", page, re.MULTILINE)
    named = [
        (other.replace("_", "-"), ours.split("`")[0])
        for others, options in rows
        for other, ours in zip(re.findall(r"`([a-z_]+)`", others), re.findall(r"--([^ `]+)", options), strict=False)
    ]
    assert len(named) > 20
    for other, ours in named:
        assert similar(other, [ours, "seed"])[:1] == [ours], other


def help_on(capsys, *arguments):
    """What help prints, in one line, without the frames."""
    with pytest.raises(SystemExit, match="0"):
        typed(*arguments)
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize(
    ("arguments", "shown", "hidden"),
    [
        (
            ["--total-steps", "5", "--help"],
            [
                "without a download",
                "--workdir {None}|PATH",
                "--data.batch-size INT",
                "prog gpt_python_docs --help GROUP",
            ],
            ["--optimizer.beta1"],
        ),
        (["--help", "optimizer"], ["--optimizer.beta1 FLOAT"], ["--model.width", "without a download"]),
        (["--optimizer", "sgd", "--help=optimizer"], ["--optimizer.momentum FLOAT"], ["--optimizer.beta1"]),
        (["--help", "run"], ["--ema-decay {None}|FLOAT"], ["--model.width"]),
        (
            ["--help=all"],
            [
                "without a download",
                "--model.num-heads INT Attention heads, H; must divide the width. (default: 4)",
                "--optimizer.learning-rate FLOAT Peak learning rate. (default: 0.006)",
                "--workdir",
            ],
            ["--recipe"],
        ),
    ],
    ids=str,
)
def test_help_shows_the_usual_options_or_those_of_a_group(capsys, arguments, shown, hidden):
    printed = help_on(capsys, *arguments)
    assert [words for words in shown if words not in printed] == []
    assert [words for words in hidden if words in printed] == []


def shown(config):
    console = Console(file=io.StringIO(), soft_wrap=True, width=40, markup=False, highlight=False)
    print_config(console, config)
    return console.file.getvalue().splitlines()


def test_a_config_is_shown_by_its_differences_from_the_recipe():
    prompt = load_recipe(RECIPE).task.sample_prompt
    config, _ = typed("--model.num-layers", "2", "--task.sample-prompt", "[red]the")
    lines = ["  model.num_layers: 4 -> 2", f"  task.sample_prompt: {prompt!r} -> '[red]the'"]
    assert shown(config) == [f"recipe {RECIPE}, with", *lines]
    assert shown(load_recipe(RECIPE)) == [f"recipe {RECIPE}, unchanged"]


@pytest.mark.parametrize(("few", "said"), [(False, "unchanged"), (True, "few_lengths: None -> True")])
def test_a_run_that_continues_does_not_name_what_its_device_has_chosen(few, said):
    console = Console(file=io.StringIO(), width=120)
    print_config(console, update(load_recipe(RECIPE), **{"data.few_lengths": few}))
    assert said in console.file.getvalue()
    assert ("few_lengths" in console.file.getvalue()) == few


def test_the_help_of_a_recipe_first_says_what_another_program_does_with_it(capsys):
    for program, first in (
        ("lr-find", "Suggests a learning rate for a recipe. The recipe:"),
        ("train", "Character GPT"),
    ):
        with pytest.raises(SystemExit):
            parse([RECIPE, "--help"], RunOptions(), program=f"jaxnlp {program}")
        assert capsys.readouterr().out.splitlines()[2].strip().startswith(first)


@pytest.mark.parametrize(
    ("options", "hidden", "shown"),
    [
        (RunOptions(), [], ["--total-steps", "--seed", "--evaluate-every-steps", "--optimizer.learning-rate"]),
        (
            FindOptions(),
            ["--total-steps", "--evaluate-every-steps", "--optimizer.learning-rate"],
            ["--seed", "--steps"],
        ),
        (CompileOptions(), ["--total-steps", "--evaluate-every-steps", "--optimizer.learning-rate", "--seed"], []),
        (ShardingOptions(), ["--total-steps", "--evaluate-every-steps", "--optimizer.learning-rate", "--seed"], []),
    ],
    ids=lambda given: type(given).__name__,
)
def test_the_usual_options_of_a_program_are_those_with_an_effect_on_it(capsys, options, hidden, shown):
    with pytest.raises(SystemExit, match="0"):
        parse([RECIPE, "--help"], options, program="prog")
    printed = {word for word in capsys.readouterr().out.split() if word.startswith("--")}
    assert not printed & {*hidden}
    assert printed >= {*shown, "--data.batch-size"}


def test_one_blank_line_separates_the_paragraphs_of_help(capsys):
    with pytest.raises(SystemExit, match="0"):
        parse([RECIPE, "--help"], RunOptions(), program="jaxnlp lr-find")
    printed = capsys.readouterr().out
    assert "\n\n  Cost: " in printed
    assert "\n\n\n" not in printed
