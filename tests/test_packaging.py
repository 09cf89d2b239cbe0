import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import jax
import pytest
from rich.console import Console

from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.training import PACKAGES
from train.config import TrainConfig
from train.loop import fit

ROOT = Path(__file__).resolve().parent.parent


def run(*command, cwd):
    """What a command prints that a user starts in this folder."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    environment |= {"JAX_PLATFORMS": "cpu", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    environment |= {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the checkout, since the build writes files there."""
    checkout, built = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("built")
    for name in ("jaxnlp", *PACKAGES, "benchmarks", "tests"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"),
        *("--wheel-dir", built, checkout),
        cwd=built,
    )
    (path,) = built.iterdir()
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of a new environment with the wheel in it, which finds its dependencies in this environment."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment)
    python = environment / "bin" / "python"
    site_packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd="/").strip())
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel),
        cwd=environment,
    )
    # Searched after the environment's own folder, and without the .pth files there, which are editable installs.
    folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (site_packages / "dependencies.pth").write_text("\n".join(folders) + "\n")
    return python


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """The folder of a run of one step."""
    workdir = tmp_path_factory.mktemp("run")
    (workdir / "text.txt").write_text("the tide eats the stone\n" * 10)
    config = TrainConfig(
        recipe="tiny",
        data=CharacterText(source="text_file", path=str(workdir / "text.txt"), batch_size=8, sequence_length=8),
        model=GPTConfig(num_layers=1, num_heads=2, width=8, context_length=16, use_bias=False, tie_embeddings=True),
        task=LanguageModel(),
        total_steps=1,
    )
    with jax.numpy_dtype_promotion("standard"):
        fit(config, workdir / "run", console=Console(quiet=True))
    return workdir / "run"


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.mark.thorough
def test_the_wheel_ships_jaxnlp_with_the_packages_for_training_inside_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        ("" if package == "jaxnlp" else "jaxnlp/_training/") + path.relative_to(ROOT).as_posix()
        for package in ("jaxnlp", *PACKAGES)
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert shipped == sources
    assert sources >= {
        "jaxnlp/py.typed",
        "jaxnlp/_training/data/data_sets.toml",
        "jaxnlp/_training/train/run/init_from.py",
    }


@pytest.mark.thorough
def test_the_wheel_names_its_licence_and_contains_its_text(wheel):
    found = metadata(wheel)
    assert found["License-Expression"] == "Apache-2.0"
    assert found["License-File"] == "LICENSE"
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
        assert archive.read(name) == (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in (ROOT / "LICENSE").read_bytes()


def test_the_wheel_depends_on_what_requirements_txt_lists(wheel):
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if line.strip() and not line.startswith("#")]
    assert wanted
    required = [line for line in metadata(wheel).get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(map(normalised, required)) == sorted(map(normalised, wanted))


def normalised(requirement):
    """The name in lower case, and its bounds in one order."""
    name, bounds = re.fullmatch(r"([\w.-]+)(.*)", requirement.replace(" ", "")).groups()
    return name.lower(), sorted(bounds.split(","))


def test_the_wheel_shows_the_readme_and_refuses_older_pythons(wheel):
    found = metadata(wheel)
    assert found.get_payload().strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    assert found["Requires-Python"] == ">=3.11"


@pytest.mark.thorough
def test_installed_jaxnlp_claims_no_other_name_and_finds_its_recipes(python, tmp_path):
    script = """
import importlib.util, sys, jaxnlp.models.gpt, jaxnlp.runs
print(jaxnlp.__file__)
print([name for name in ("train", "configs", "data", "benchmarks") if importlib.util.find_spec(name)])
print(jaxnlp.recipe("gpt_python_docs", total_steps=7).total_steps)
print(importlib.util.find_spec("configs").origin)
"""
    file, importable, steps, configs = run(python, "-c", script, cwd=tmp_path).splitlines()
    assert Path(file).is_relative_to(python.parent.parent)
    assert (importable, steps) == ("[]", "7")
    assert Path(configs) == Path(file).parent / "_training" / "configs" / "__init__.py"


@pytest.mark.thorough
def test_installed_jaxnlp_prints_a_sample_of_a_run(python, trained_run, tmp_path):
    moved = shutil.copytree(trained_run, tmp_path / "elsewhere")
    (trained_run.parent / "text.txt").unlink()
    command = [python, "-m", "jaxnlp", "generate", moved, "--prompt", "the ", "--max-new-tokens", "20"]
    printed = run(*command, cwd=tmp_path)
    assert re.fullmatch("the [acdehinost \n]{20}\n", printed)
