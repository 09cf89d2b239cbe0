"""The program in exported folders."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxnlp.tasks.export import ExportCommand
from jaxnlp.tasks.export.loader import load, read_tensors
from tests.jaxnlp.tasks.export.models import trained_of


def test_tensors_are_those_of_safetensors(tmp_path):
    draw = np.random.default_rng(0)
    shapes = {"b": (3, 2), "a": (), "c": (5,)}
    arrays = {name: np.asarray(draw.normal(size=shape), np.float32) for name, shape in shapes.items()}
    save_file(arrays, tmp_path / "file", metadata={"format": "pt"})
    found = read_tensors(tmp_path / "file")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_other_versions_are_refused(tmp_path):
    (tmp_path / "export.json").write_text(json.dumps({"version": 2}), encoding="utf-8")
    with pytest.raises(ValueError, match="this loader reads version 1, got 2"):
        load(tmp_path)


@pytest.mark.thorough
def test_lengths_outside_the_limits_and_other_inputs_are_refused(tmp_path):
    ExportCommand(tmp_path / "out", format="jax")(trained_of("lstm"))
    ExportCommand(tmp_path / "crf", format="jax")(trained_of("crf"))
    shapes = json.loads((tmp_path / "crf" / "export.json").read_text(encoding="utf-8"))["functions"]["score"]["inputs"]
    score, read = load(tmp_path / "crf")["score"], load(tmp_path / "out")["read"]
    for length in (1, 17):
        with pytest.raises(ValueError, match=f"T must be from 2 to 16, got {length}"):
            score(**{name: np.zeros((1, length, *[6] * shape.count("6")), np.int32) for name, shape in shapes.items()})
    with pytest.raises(ValueError, match="expected int32 and called with float32"):
        read(tokens=np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match="must have the same pytree structure"):
        read(token=np.zeros((1, 3), np.int32))
    assert read(tokens=np.zeros((1, 40), np.int32))["logits"].shape == (1, 40, 8)
