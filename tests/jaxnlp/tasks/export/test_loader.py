"""The program in exported folders."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxnlp.tasks.export.loader import load, read_tensors


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
