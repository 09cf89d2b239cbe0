"""Exports to ONNX, run by onnxruntime, give the library's own numbers."""

import json
import os
import subprocess
import sys

import pytest

from jaxnlp.tasks.export import ExportCommand
from tests.conftest import ROOT
from tests.jaxnlp.tasks.export.models import MODELS, trained_of


@pytest.fixture(scope="module")
def functions_of():
    """By family the names of the functions that ONNX can have."""
    return {
        name: {function for function, one in trained_of(name).task.exports(trained_of(name)).items() if one.onnx}
        for name in MODELS
    }


@pytest.fixture(scope="module")
def results(functions_of, tmp_path_factory):
    """By family and function the largest difference, and the names of inputs and outputs."""
    names = [name for name, functions in functions_of.items() if functions]
    folder = str(tmp_path_factory.mktemp("onnx"))
    command = [sys.executable, "-m", "tests.jaxnlp.tasks.export.onnx_user", folder, *names]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XLA_FLAGS": ""}
    done = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line.removeprefix("RESULT ")) for line in done.stdout.splitlines() if line.startswith("RESULT")]
    return {(name, function): rest for name, function, *rest in rows}


@pytest.mark.thorough
def test_every_family_but_parsers_gives_the_same_numbers(functions_of, results):
    assert {*results} == {(name, function) for name, functions in functions_of.items() for function in functions}
    assert {name for name, functions in functions_of.items() if not functions} == {
        "parser",
        "bert_parser",
        "graph_parser",
    }
    assert {pair: largest for pair, (largest, *_) in results.items() if largest > 1e-4} == {}


@pytest.mark.thorough
def test_inputs_and_outputs_have_the_names_of_the_description(results):
    _, inputs, outputs = results["gpt", "step"]
    assert inputs == ["cache_0", "cache_1", "cache_2", "cache_3", "cache_4", "tokens"]
    assert outputs == ["next_cache_0", "next_cache_1", "next_cache_2", "next_cache_3", "next_cache_4", "logits"]


def test_models_without_such_functions_name_the_other_format(tmp_path):
    with pytest.raises(ValueError, match="parser: no function of this model can be converted to ONNX; give"):
        ExportCommand(tmp_path / "out", format="onnx")(trained_of("parser"))
    assert not (tmp_path / "out").exists()


def test_without_the_converter_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(ValueError, match=r'pip install "jaxnlp\[onnx\]"'):
        ExportCommand(tmp_path / "out", format="onnx")(trained_of("lstm"))
