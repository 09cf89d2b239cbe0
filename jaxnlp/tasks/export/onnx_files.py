"""Folders of functions for ONNX, by the converter jax2onnx: the package's extra `onnx`."""

import contextlib
import importlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxnlp.inference.exportable import Exportable
from jaxnlp.tasks import Trained
from jaxnlp.tasks.export.plain_operations import plain
from jaxnlp.tasks.export.programs import described, on_all_platforms, portable
from jaxnlp.typing import Params, PyTree


def onnx_files(trained: Trained) -> dict[str, bytes]:
    """The files of a model for ONNX, by name: the functions of its task's `exports` that can be converted.

    Raises: ValueError when no function can be converted, and when the converter is not installed.
    """
    model = portable(trained)
    functions = {name: function for name, function in model.task.exports(model).items() if function.onnx}
    if not functions:
        raise ValueError(f"{trained.name}: no function of this model can be converted to ONNX; give --format jax")
    params, files, outputs = jax.device_put(model.params), {}, {}
    for name, function in functions.items():
        files[f"{name}.onnx"], outputs[name] = _converted(name, function, params)
    return {**files, **described(trained, functions, outputs, "onnx")}


def _converted(name: str, function: Exportable, params: Params) -> tuple[bytes, PyTree]:
    """The function with its parameters as a model of ONNX, and the shapes of its outputs."""
    paths, structure = jax.tree.flatten_with_path(dict(function.inputs))
    shapes = [shape for _, shape in paths]

    def call(*leaves: Any) -> dict[str, PyTree]:
        return dict(function.apply(params, jax.tree.unflatten(structure, leaves)))

    with on_all_platforms():
        traced, outputs = jax.make_jaxpr(call, return_shape=True)(*shapes)
        inputs, results = _names(paths), _names(jax.tree.leaves_with_path(outputs))
        with _quiet("jax2onnx", "onnx_ir"):  # they warn about shapes without names, and parts that we do not use
            model = _converter()(
                # Copies: an output with the name of its own may not be an input, or another output.
                lambda *leaves: tuple(map(jnp.copy, plain(traced, *leaves))),
                shapes,
                model_name=name,
                input_names=inputs,
                output_names=[f"next_{one}" if one in inputs else one for one in results],
            )
    return model.SerializeToString(), outputs


def _names(paths: Sequence[tuple[Any, Any]]) -> list[str]:
    """The names of leaves: their field, and in a list also their index: cache_0."""
    return ["_".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) for path, _ in paths]


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """A context in which these loggers and their children show no warnings."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _converter() -> Any:
    try:
        return importlib.import_module("jax2onnx").to_onnx
    except ImportError as error:
        raise ValueError('--format onnx needs a converter: pip install "jaxnlp[onnx]"') from error
