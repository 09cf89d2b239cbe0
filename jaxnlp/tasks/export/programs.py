"""Folders of programs that JAX runs without this library: StableHLO, parameters, a description and a loader."""

import contextlib
import dataclasses
import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import save

from jaxnlp.inference.exportable import Exportable
from jaxnlp.models import ModelConfig
from jaxnlp.nn.transformer import unstacked
from jaxnlp.ops.devices import compile_for
from jaxnlp.saving.serialization import from_json, on_any_machine, processor_to_json, to_json
from jaxnlp.tasks import Trained
from jaxnlp.tasks.export import loader
from jaxnlp.typing import PyTree

VERSION = 1
"""The version of the folder's format, which its loader checks."""
PLATFORMS = ("cpu", "cuda", "tpu")
DESCRIPTION, PARAMS, PROCESSOR, LOADER = "export.json", "params.safetensors", "processor.json", "load.py"


def portable(trained: Trained) -> Trained:
    """The model for all platforms: in float32, by plain operations, with separate parameters for each block."""
    config: Any = from_json(on_any_machine(to_json(trained.model.config)), ModelConfig, where="model")
    model = dataclasses.replace(config, compute=config.compute.exact).build(trained.processor)
    return dataclasses.replace(trained, model=model, params=unstacked(jax.device_get(trained.params)))


def jax_files(trained: Trained) -> dict[str, bytes]:
    """The files of a model for JAX, by name: the programs of its task's `exports`, and what they need.

    Raises: TypeError for a task without exports.
    """
    model = portable(trained)
    params = {name: np.asarray(value, np.float32) for name, value in flatten_dict(model.params, sep=".").items()}
    functions = model.task.exports(model)
    programs = {name: _program(function, params) for name, function in functions.items()}
    outputs = {name: jax.tree.unflatten(one.out_tree, one.out_avals) for name, one in programs.items()}
    return {
        **{f"{name}.jax": bytes(program.serialize()) for name, program in programs.items()},
        PARAMS: save(params),
        LOADER: Path(loader.__file__).read_bytes(),
        **described(trained, functions, outputs, "jax", platforms=PLATFORMS),
    }


def _program(function: Exportable, params: Mapping[str, np.ndarray]) -> jax.export.Exported:
    """The function of the flat parameters and of the inputs, for all platforms."""
    shapes = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in params.items()}

    def call(params: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, PyTree]:
        return dict(function.apply(unflatten_dict(params, sep="."), inputs))

    with on_all_platforms():
        return jax.export.export(jax.jit(call), platforms=PLATFORMS)(shapes, dict(function.inputs))


@contextlib.contextmanager
def on_all_platforms() -> Iterator[None]:
    """A context in which functions are traced for all platforms, in the same precision on each."""
    with compile_for("any"), jax.default_matmul_precision("highest"):
        yield


def described(
    trained: Trained, functions: Mapping[str, Exportable], outputs: Mapping[str, PyTree], suffix: str, **facts: Any
) -> dict[str, bytes]:
    """The files that say what a folder has: `export.json`, and the processor.

    Args:
      trained: the model.
      functions: in the folder, by name.
      outputs: the shapes of their outputs.
      suffix: of their files.
      facts: further entries.
    """
    about = {
        name: {
            "file": f"{name}.{suffix}",
            "returns": function.returns,
            "inputs": {field: _shapes(shape) for field, shape in function.inputs.items()},
            "outputs": _shapes(outputs[name]),
            "limits": function.axes.limits,
            "labels": function.labels,
        }
        for name, function in functions.items()
    }
    versions = {name: importlib.metadata.version(name) for name in ("jaxnlp", "jax")}
    model = {"name": trained.name, "task": type(trained.task).__name__}
    return {
        DESCRIPTION: _as_json({"version": VERSION, **versions, **model, **facts, "functions": about}),
        PROCESSOR: _as_json(processor_to_json(trained.processor)),
    }


def _shapes(tree: PyTree) -> PyTree:
    """The shapes of a tree as JSON, such as "int32[B, T]"."""
    return jax.tree.map(lambda leaf: f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]", tree)


def _as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
