import importlib.util
import os
import sys
from pathlib import Path

import pytest

from jaxnlp import checkout
from jaxnlp.checkout import MODULES, SUMMARIES, find_checkout, run_in_checkout
from jaxnlp.verbs import every_command

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_current_folder_comes_before_that_of_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_checkout() == ROOT
    for file in ("train/__main__.py", "configs/__init__.py"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    assert find_checkout() == tmp_path


def test_without_a_checkout_a_line_says_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkout.jaxnlp, "__file__", str(tmp_path / "site" / "jaxnlp" / "__init__.py"))
    with pytest.raises(ValueError, match=r"^jaxnlp train needs a checkout of the repository"):
        run_in_checkout("train", ["gpt"], "jaxnlp train")


def test_the_program_replaces_the_process_and_knows_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/before")
    called = []
    monkeypatch.setattr(os, "execve", lambda *arguments: called.append(arguments))
    run_in_checkout("lr-find", ["gpt", "--seed", "1"], "jaxnlp lr-find")
    [(program, words, environ)] = called
    assert (program, words) == (sys.executable, [sys.executable, "-m", "train.lr_find", "gpt", "--seed", "1"])
    assert environ["JAXNLP_TYPED"] == "jaxnlp lr-find"
    assert environ["PYTHONPATH"] == f"{ROOT}{os.pathsep}/before"


def test_every_program_is_there_and_no_verb_has_its_name():
    assert MODULES.keys() == SUMMARIES.keys()
    assert all(importlib.util.find_spec(module) for module in MODULES.values())
    assert not MODULES.keys() & every_command().keys()
