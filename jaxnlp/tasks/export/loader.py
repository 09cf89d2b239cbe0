"""Loads the model in this folder. It needs jax, numpy and flatbuffers.

import load
functions = load.load()    # by the names in export.json, which has their inputs and outputs
outputs = functions[NAME](tokens=..., attention_mask=...)
"""

import json
import pathlib

import jax
import jax.export
import numpy as np


def load(folder=pathlib.Path(__file__).parent):
    """The functions in a folder, by name. They take their inputs by name, and return a dict of outputs."""
    folder = pathlib.Path(folder).expanduser()
    description = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    if description["version"] != 1:
        raise ValueError(f"{folder}: this loader reads version 1, got {description['version']}")
    params = jax.device_put(read_tensors(folder / "params.safetensors"))
    return {name: read_function(folder, one, params) for name, one in description["functions"].items()}


def read_tensors(file):
    """The float32 arrays of a safetensors file, by name."""
    content = np.memmap(file, np.uint8, "r")
    size = 8 + int(content[:8].view("<u8")[0])
    places = {name: one for name, one in json.loads(content[8:size].tobytes()).items() if name != "__metadata__"}
    parts = {name: content[slice(*(size + end for end in one["data_offsets"]))] for name, one in places.items()}
    return {name: part.view("<f4").reshape(places[name]["shape"]) for name, part in parts.items()}


def read_function(folder, description, params):
    """A function of these parameters, from its entry in export.json."""
    program = jax.jit(jax.export.deserialize((folder / description["file"]).read_bytes()).call)

    shapes = {name: shape for name, shape in description["inputs"].items() if isinstance(shape, str)}  # not of caches
    axes = {name: shape.partition("[")[2].rstrip("]").split(", ") for name, shape in shapes.items()}

    def function(**inputs):
        for name in axes.keys() & inputs.keys():
            for axis, size in zip(axes[name], np.shape(inputs[name]), strict=False):
                least, most = description["limits"].get(axis) or (0, None)
                if size < least or (most and size > most):
                    raise ValueError(f"{name}: {axis} must be from {least} to {most or 'any'}, got {size}")
        return program(params, inputs)

    return function
