import os
import subprocess
import sys
from pathlib import Path

import pytest

import jaxnlp
from jaxnlp.cli.programs import PROGRAMS, command_of, run_program
from jaxnlp.cli.verbs import every_command
from jaxnlp.training import PACKAGES
from train.recipes import recipe_names

ROOT = Path(__file__).resolve().parents[3]


def test_every_program_has_a_name_of_its_own_and_a_summary():
    assert all(module.partition(".")[0] in PACKAGES and summary.endswith(".") for module, summary in PROGRAMS.values())
    assert not PROGRAMS.keys() & every_command().keys()


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["--help"], 0), (["-h"], 0), (["--list"], 0)])
def test_recipes_are_listed_where_a_command_asks_for_them_or_has_none(capsys, arguments, status):
    assert run_program("train", arguments) == status
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[2:3].strip()]
    assert [name for name in shown if name in recipe_names()] == recipe_names()


def test_a_process_of_its_own_imports_from_the_same_folders_and_not_from_the_current_one(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/ours", "/libraries"])
    words, environ = command_of("train", ["gpt", "--seed", "1"])
    assert words == [sys.executable, "-P", "-m", "jaxnlp", "train", "gpt", "--seed", "1"]
    assert environ["PYTHONPATH"] == f"/ours{os.pathsep}/libraries"


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
    # pip writes such a file; worker processes import it.
    entry = "import sys\nfrom jaxnlp.__main__ import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    (tmp_path / "bin" / "jaxnlp").write_text(entry)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return folder


def python(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


HEAVY = {"average", "evaluate", "report", "compare", "sweep"}
"""Programs that import JAX before they print their help."""


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name in HEAVY else []) for name in PROGRAMS]
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
    recipe = strange_folder / "mine.py"
    recipe.write_text(
        "from configs import gpt_text_file\n\n\ndef get_config():\n    return gpt_text_file.get_config()\n"
    )
    small = ["--model.num-layers", "1", "--model.num-heads", "2", "--model.width", "32", "--data.path", "my.txt"]
    small += ["--data.sequence-length", "16", "--task.sample-prompt", "None"]
    steps = ["--evaluate-every-steps", "2", "--checkpoint-every-steps", "2", "--optimizer.schedule.warmup", "0"]
    options = ["./mine.py", *small, *steps, "--data.num-workers", "1", "--total-steps"]
    python(program, "train", *options, "2", "--workdir", "runs/my")
    assert "continuing from step 2 of 4" in python(program, "train", *options, "4", "--extend", "--workdir", "runs/my")
    python(program, "sweep", *options, "2", "--grid", "seed=0", "--workdir", "runs/sweep")
    assert len((strange_folder / "runs" / "sweep" / "sweep.csv").read_text().splitlines()) == 2


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_script_with_the_name_of_a_package_uses_recipes(strange_folder, name):
    for other in (*OF_LIBRARIES, "jaxnlp"):
        (strange_folder / f"{other}.py").unlink()  # Python prefers files next to a script
    lines = ["import jaxnlp", "print(jaxnlp.recipe('gpt_python_docs', total_steps=7).total_steps)"]
    lines += ["import train, data, configs", "print(train.__file__, data.__file__, configs.__file__)"]
    (strange_folder / f"{name}.py").write_text("\n".join(lines))
    assert python(f"{name}.py").split() == ["7", *(str(ROOT / package / "__init__.py") for package in PACKAGES)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["jaxnlp", "compile", "gpt_shakespeare_cpu", "--target", "cpu"],
        ["jaxnlp", "shardings", "gpt_shakespeare_cpu"],
        ["benchmarks.hosts"],
        ["benchmarks.pipeline", "afqmc_pretrain"],  # the first recipe needs no data, and its row would be written
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_module_that_is_run_says_in_one_line_that_data_is_missing(tmp_path, words):
    environ = os.environ | {"JAXNLP_DATA": str(tmp_path / "missing")}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("note: ", "loading JAX"))]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert "missing" in lines[0]
