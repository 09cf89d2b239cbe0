"""Exports families to ONNX, and prints the largest differences of onnxruntime: python onnx_user.py FOLDER NAME...

In a process of its own, since the converter changes functions of JAX while it works.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np
import onnxruntime

from jaxnlp.tasks.export import ExportCommand
from jaxnlp.tasks.export.programs import portable
from tests.jaxnlp.tasks.export.models import trained_of
from tests.jaxnlp.tasks.export.test_programs import inputs_of


def difference(file, function, params, inputs):
    """The largest difference between onnxruntime and the library; infinite for another shape."""
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    leaves = jax.tree.leaves(inputs)
    assert len(session.get_inputs()) == len(leaves)
    found = session.run(None, {one.name: leaf for one, leaf in zip(session.get_inputs(), leaves, strict=True)})
    expected = jax.tree.leaves(jax.jit(function.apply)(params, inputs))
    largest = 0.0
    for ours, theirs in zip(expected, found, strict=True):
        assert np.shape(ours) == theirs.shape
        assert np.isfinite(theirs).all()
        largest = max(largest, float(np.abs(np.asarray(ours, np.float64) - theirs).max()))
    return largest, [one.name for one in session.get_inputs()], [one.name for one in session.get_outputs()]


def main(folder, *names):
    for name in names:
        trained, place = trained_of(name), Path(folder) / name
        ExportCommand(place, format="onnx")(trained)
        described = json.loads((place / "export.json").read_text(encoding="utf-8"))["functions"]
        model = portable(trained)  # without products in bfloat16, which some processors have
        functions, params = model.task.exports(model), jax.device_put(model.params)
        for function, one in described.items():
            result = difference(place / one["file"], functions[function], params, inputs_of(one))
            print("RESULT", json.dumps([name, function, *result]))


if __name__ == "__main__":
    main(*sys.argv[1:])
