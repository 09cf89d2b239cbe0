import subprocess
import sys
import types

import jax
import pytest
from rich.console import Console

import jaxnlp
from jaxnlp import training
from jaxnlp.training import PACKAGES, import_training
from train.config import update
from train.loop import FitResult
from train.recipes import load_recipe

SMALL = {
    "data.batch_size": 8,
    "data.sequence_length": 16,
    "model.num_layers": 1,
    "model.width": 32,
    "optimizer": "adamw",
    "optimizer.schedule.warmup": 0,
    "task.sample_prompt": None,
}


def test_a_recipe_is_its_config_with_changes():
    assert jaxnlp.recipe("gpt_python_docs") == load_recipe("gpt_python_docs")
    changed = jaxnlp.recipe("gpt_python_docs", total_steps=7, **{"model.width": 64, "model.num_heads": 2})
    assert changed == update(load_recipe("gpt_python_docs"), total_steps=7, **{"model.width": 64, "model.num_heads": 2})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gpt_python_doc", {}, "did you mean gpt_python_docs"),
        ("missing.py", {}, "missing.py does not exist"),
        ("gpt_python_docs", {"total_step": 3}, "no field total_step; did you mean total_steps"),
        ("gpt_python_docs", {"model.widht": 3}, "no field widht; did you mean width"),
        ("gpt_python_docs", {"modle.width": 3}, "no field modle; did you mean model"),
        ("gpt_python_docs", {"learning_rate": 1}, r"no field learning_rate; did you mean optimizer\.learning_rate\?$"),
        ("gpt_python_docs", {"dropout": 1}, "no field dropout; "),
        ("gpt_python_docs", {"total_steps": 0}, "total_steps must be at least 1"),
    ],
)
def test_a_wrong_recipe_or_field_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        jaxnlp.recipe(name, **changes)


@pytest.mark.thorough
def test_a_recipe_leaves_the_logging_of_a_users_program_alone(root):
    script = "import logging, jaxnlp; jaxnlp.recipe('bert_qa'); print(logging.getLogger().handlers)"
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.thorough
def test_a_recipe_of_ones_own_trains_and_is_returned_as_load_run_returns_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("train.recipes._given", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    first = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: first)
    source = f"import jaxnlp\n\n\ndef get_config():\n    return jaxnlp.recipe('gpt_python_docs', **{SMALL})\n"
    (tmp_path / "my_recipe.py").write_text(source)
    quiet = Console(quiet=True)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        config = jaxnlp.recipe(tmp_path / "my_recipe.py", total_steps=2)
        run = jaxnlp.train(config, tmp_path / "run", console=quiet)
        assert (run.name, run.step, run.folder) == ("my_recipe", 2, tmp_path / "run")
        assert run.generate("The", max_new_tokens=3).startswith("The")
        longer = jaxnlp.train(update(config, total_steps=3), tmp_path / "run", console=quiet, extend=True)
    assert longer.step == 3


@pytest.mark.parametrize("config", [None, 3, {}, FitResult])
def test_what_is_no_config_is_refused_with_what_is(config, tmp_path):
    with pytest.raises(ValueError, match=r"^train: expected the name or path of a recipe, or a config of .*, got \w+$"):
        jaxnlp.train(config, tmp_path)


@pytest.mark.parametrize("value", ["yes", "no", 1, None])
def test_extend_is_true_or_false(value, tmp_path):
    with pytest.raises(ValueError, match=f"extend must be True or False, got (the text )?{value!r}"):
        jaxnlp.train("gpt_python_docs", tmp_path / "run", extend=value)
    assert not (tmp_path / "run").exists()


def test_wrong_arguments_of_train_are_answered_with_the_right_ones(tmp_path):
    for workdir in (None, 3):
        with pytest.raises(ValueError, match=r"^train: expected the path of the run's folder, got \w+$"):
            jaxnlp.train("gpt_python_docs", workdir)
    for options in ({"total_steps": 3}, {"data.path": "a"}):
        with pytest.raises(
            TypeError, match=r"the options are parallel, mesh, extend, .*set by jaxnlp\.recipe\(NAME, FIE"
        ):
            jaxnlp.train("gpt_python_docs", tmp_path, **options)


def test_the_lines_of_training_in_python_are_not_broken_where_there_is_no_terminal(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr("train.loop.Console", lambda **options: given.append(options) or Console(quiet=True))

    def stop(workdir):
        raise EOFError(workdir)

    monkeypatch.setattr("train.loop.locked", stop)
    with pytest.raises(EOFError):
        jaxnlp.train("gpt_python_docs", tmp_path)
    assert given[0]["soft_wrap"]


def test_a_run_that_a_signal_stops_is_no_trained_run(monkeypatch, tmp_path):
    monkeypatch.setattr("train.loop.fit", lambda *_, **__: FitResult(state=None, stopped_by="SIGINT"))
    with pytest.raises(KeyboardInterrupt, match=r"SIGINT: .*the same call resumes it"):
        jaxnlp.train("gpt_python_docs", tmp_path)


def test_the_wheels_packages_come_before_others_of_their_names(tmp_path, monkeypatch):
    package = tmp_path / "jaxnlp"
    (package / "_training").mkdir(parents=True)
    monkeypatch.setattr(training.jaxnlp, "__file__", str(package / "__init__.py"))
    monkeypatch.setattr(sys, "path", ["/before", str(package / "_training")])
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name)
    import_training("json")
    assert sys.path == [str(package / "_training"), "/before"]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_module_of_the_user_that_is_imported_already_is_named(monkeypatch, name):
    other = types.ModuleType(name)
    other.__file__ = f"/mine/{name}.py"
    monkeypatch.setitem(sys.modules, name, other)
    with pytest.raises(ImportError, match=f"{name} is imported already, from /mine/{name}.py; rename it"):
        jaxnlp.recipe("gpt_python_docs")
