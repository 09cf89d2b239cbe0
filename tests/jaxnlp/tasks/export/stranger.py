"""Calls exported functions where this library cannot be imported: python stranger.py FOLDER...

Each folder has FUNCTION.npz, the inputs of a function, as many as load.py has functions. The outputs go to
FUNCTION.outputs.npz. Arrays of a list are named NAME:INDEX.
"""

import importlib.util
import pathlib
import sys

sys.modules["jaxnlp"] = sys.modules["flax"] = None  # their import is an error

import numpy as np  # noqa: E402


def loaded(folder):
    """The functions in a folder."""
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()


def main():
    for folder in map(pathlib.Path, sys.argv[1:]):
        for name, function in loaded(folder).items():
            with np.load(folder / f"{name}.npz") as file:
                arrays = dict(file)
            inputs = {field: array for field, array in arrays.items() if ":" not in field}
            if len(inputs) < len(arrays):
                inputs["cache"] = [arrays[f"cache:{index}"] for index in range(len(arrays) - len(inputs))]
            outputs = dict(function(**inputs))
            outputs |= {f"cache:{index}": array for index, array in enumerate(outputs.pop("cache", []))}
            np.savez(folder / f"{name}.outputs.npz", **outputs)


if __name__ == "__main__":
    main()
