import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import jaxnlp
from jaxnlp.cli import checkout
from jaxnlp.cli.checkout import MODULES, PACKAGES, SUMMARIES, find_checkout, program_command, run_in_checkout
from jaxnlp.cli.verbs import every_command

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def no_checkout(tmp_path, monkeypatch):
    """An installed package, and another folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkout.jaxnlp, "__file__", str(tmp_path / "site" / "jaxnlp" / "__init__.py"))
    return tmp_path


def test_packages_of_the_current_folder_do_not_make_it_the_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("train/__main__.py", "configs/__init__.py", "data/__init__.py"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    assert find_checkout() == ROOT


def test_an_installed_package_finds_a_checkout_in_the_current_folder(no_checkout, monkeypatch):
    assert find_checkout() is None
    monkeypatch.chdir(ROOT)
    assert find_checkout() == ROOT


def test_without_a_checkout_a_line_says_what_is_needed(no_checkout):
    with pytest.raises(ValueError, match=r"^jaxnlp train needs a checkout of the repository"):
        run_in_checkout("train", ["gpt"], "jaxnlp train")
    with pytest.raises(ValueError, match=r"^training in Python needs a checkout of the repository"):
        jaxnlp.enable_training()


def test_the_program_replaces_the_process_and_knows_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/before", ""]))  # empty entries are the current folder
    called = []
    monkeypatch.setattr(os, "execve", lambda *arguments: called.append(arguments))
    run_in_checkout("lr-find", ["gpt", "--seed", "1"], "jaxnlp lr-find")
    [(program, words, environ)] = called
    assert (program, words) == (sys.executable, [sys.executable, "-P", "-m", "train.lr_find", "gpt", "--seed", "1"])
    assert environ["JAXNLP_TYPED"] == "jaxnlp lr-find"
    assert environ["PYTHONPATH"] == f"{ROOT}{os.pathsep}/before"
    assert "JAXNLP_TYPED" not in program_command("train", [], "a sweep")[1]


def test_every_program_is_there_and_no_verb_has_its_name():
    assert MODULES.keys() == SUMMARIES.keys()
    assert all(module.partition(".")[0] in PACKAGES for module in MODULES.values())
    assert not MODULES.keys() & every_command().keys()


OF_OURS = (*PACKAGES, "jaxnlp", "tests")
OF_LIBRARIES = ("numpy", "random", "csv", "json", "rich", "optax", "grain", "tokenize")


@pytest.fixture
def strange_folder(tmp_path, monkeypatch):
    """The current folder has files with the names of our packages and of libraries, and folders `train`, `configs` and
    `data`: each ends the process. jaxnlp is importable as from an editable installation."""
    folder = tmp_path / "mine"
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('the package of the current folder')")
    for name in (*OF_OURS, *OF_LIBRARIES):
        (folder / f"{name}.py").write_text("raise SystemExit('the file of the current folder')")
    (folder / "my.txt").write_text("Once upon a time there was a stone.\n" * 40)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "jaxnlp").symlink_to(ROOT / "jaxnlp")
    (tmp_path / "bin").mkdir()
    entry = "import sys\nfrom jaxnlp.__main__ import main\nsys.exit(main())\n"  # pip writes such a file
    (tmp_path / "bin" / "jaxnlp").write_text(entry)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return folder


def python(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


HEAVY = {"evaluate", "report", "compare", "sweep"}
"""Programs that import JAX before they print their help."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name in HEAVY else []) for name in MODULES]
)
def test_a_program_ignores_the_modules_of_the_current_folder(strange_folder, name):
    assert f"usage: jaxnlp {name}" in python(strange_folder.parent / "bin" / "jaxnlp", name, "--help")


def test_python_m_jaxnlp_ignores_the_modules_of_the_current_folder(strange_folder):
    (strange_folder / "jaxnlp.py").unlink()  # python -m itself prefers it
    assert python("-m", "jaxnlp", "--version") == f"jaxnlp {jaxnlp.__version__}\n"


@pytest.mark.thorough
def test_runs_train_in_such_a_folder_with_worker_processes_and_are_resumed_and_swept_there(
    strange_folder, monkeypatch, compiled_programs
):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # one device
    program = strange_folder.parent / "bin" / "jaxnlp"
    small = ["--model.num-layers", "1", "--model.num-heads", "2", "--model.width", "32", "--data.path", "my.txt"]
    small += ["--data.sequence-length", "16", "--task.sample-prompt", "None"]
    steps = ["--evaluate-every-steps", "2", "--checkpoint-every-steps", "2", "--optimizer.warmup-steps", "0"]
    options = ["gpt_text_file", *small, *steps, "--data.num-workers", "1", "--total-steps"]
    python(program, "train", *options, "2", "--workdir", "runs/my")
    assert "continuing from step 2 of 4" in python(program, "train", *options, "4", "--extend", "--workdir", "runs/my")
    python(program, "sweep", *options, "2", "--grid", "seed=0", "--workdir", "runs/sweep")
    assert len((strange_folder / "runs" / "sweep" / "sweep.csv").read_text().splitlines()) == 2


def test_training_is_importable_from_a_script_outside_the_checkout_once_it_is_enabled(strange_folder):
    for name in OF_LIBRARIES:
        (strange_folder / f"{name}.py").unlink()  # Python prefers files next to a script
    (strange_folder / "jaxnlp.py").unlink()
    script = strange_folder / "script.py"
    lines = ["import jaxnlp", "jaxnlp.enable_training()", "import train, configs, data", "from train.recipes import *"]
    script.write_text("\n".join([*lines, "print(*(m.__file__ for m in (train, configs, data)), *recipe_names()[:1])"]))
    files = [str(ROOT / name / "__init__.py") for name in PACKAGES]
    assert python(script).split() == [*files, "afqmc_encoder"]


def test_training_is_not_enabled_after_another_module_has_its_name(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/before", str(ROOT)])
    jaxnlp.enable_training()
    assert sys.path == [str(ROOT), "/before"]
    jaxnlp.enable_training()
    assert sys.path == [str(ROOT), "/before"]
    other = types.ModuleType("data")
    other.__file__ = "/mine/data.py"
    monkeypatch.setitem(sys.modules, "data", other)
    with pytest.raises(ImportError, match=r"data is imported already, from /mine/data.py; call jaxnlp.enable_training"):
        jaxnlp.enable_training()
