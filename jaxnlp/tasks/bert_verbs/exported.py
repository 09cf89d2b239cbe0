"""The files of an export for this library only, and whole models read back from them."""

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file, save

from jaxnlp.convert import PretrainedError, read_pretrained
from jaxnlp.convert.folders import EXPORTED, find_folder, is_adapter, read_object, read_tensors
from jaxnlp.convert.pretrained_encoder import CONFIG
from jaxnlp.convert.sentence_transformers import encoder_folder
from jaxnlp.convert.shapes import class_names
from jaxnlp.models import ModelConfig, parameter_shapes
from jaxnlp.saving.serialization import from_json, on_any_machine, processor_from_json, processor_to_json, to_json
from jaxnlp.tasks import Task, Trained, pretrained_model
from jaxnlp.typing import Params

HEADS = "heads.safetensors"


class ExportedHead(NamedTuple):
    """A head in the weights of Transformers: `weight` = scale W^T and `bias` = scale b + shift.

    Attributes:
      name: of its parameters W and b.
      prefix: of its tensors.
      scale, shift: of its outputs.
      names: of its outputs in the config of Transformers; empty = none.
    """

    name: str
    prefix: str
    scale: float = 1.0
    shift: float = 0.0
    names: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[str, str]:
        """The names of its tensors. The encoder may have others with this prefix, such as ELECTRA's pooler."""
        return f"{self.prefix}weight", f"{self.prefix}bias"


def description(trained: Trained, config: ModelConfig, head: ExportedHead | None = None) -> bytes:
    """The file `jaxnlp.json` of an exported model: its task, the config of the exported part, its processor, and its
    head, unless `heads_file` has it."""
    parts = {
        "task": to_json(trained.task),
        "model": to_json(config),
        "processor": processor_to_json(trained.processor),
        "head": head and head._asdict(),
    }
    return (json.dumps(parts) + "\n").encode()


def heads_file(config: ModelConfig, params: Params) -> bytes:
    """The file `heads.safetensors`: these parameters by path, and the model's config as metadata."""
    return save(by_path(params), metadata={"model": json.dumps(to_json(config))})


def read_exported(path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
    """The model that was exported: its BERT and all other parameters. It computes in float32, as Transformers does.

    Raises:
      ValueError: for tensors to ignore.
      PretrainedError, WeightsError: when the folder was changed, and a file is missing or does not fit, or the classes
        have other names.
      ConfigError: when the file `jaxnlp.json` cannot be read.
    """
    if ignore:
        raise ValueError(f"{path}: this model is read whole, got tensors to ignore: {', '.join(ignore)}")
    folder = find_folder(path)
    parts = read_object(folder / EXPORTED)
    task = from_json(parts.get("task"), Task, where=f"{folder / EXPORTED}: task")
    config: Any = from_json(on_any_machine(parts.get("model")), ModelConfig, where=f"{folder / EXPORTED}: model")
    processor = processor_from_json(parts.get("processor"), where=f"{folder / EXPORTED}: processor")
    head = _head(folder, parts.get("head"))
    bert = flatten_dict(read_pretrained(path, ignore=() if head is None else head.tensors).params)
    others = flatten_dict(_other_params(path, head))
    held = {(*config.bert_path, *path): x for path, x in bert.items()} | others
    config = dataclasses.replace(config, compute=config.compute.exact)
    expected = flatten_dict(parameter_shapes(config.build(processor), *config.inputs(processor)))
    if is_adapter(str(path)):  # its base may have a pooler that this model has not
        held = {path: x for path, x in held.items() if path in expected or not {"pooler", "pooler_norm"} & {*path}}
    shapes = [{path: x.shape for path, x in tree.items()} for tree in (held, expected)]
    paths = shapes[0].keys() | shapes[1].keys()
    different = sorted("/".join(path) for path in paths if shapes[0].get(path) != shapes[1].get(path))
    if different:
        raise PretrainedError(f"{folder}: {different[0]} does not fit {EXPORTED}; export the run again")
    if head is not None and head.names:
        _check_names(folder, tuple(head.names))
    return pretrained_model(task, config, unflatten_dict(held), processor, str(path))


def _head(folder: Path, fields: Any) -> ExportedHead | None:
    """The head in the weights of Transformers; None = the heads are in `heads.safetensors`."""
    if (folder / HEADS).is_file():
        return None
    try:
        return ExportedHead(**fields)
    except TypeError as error:
        raise PretrainedError(
            f"{folder} has neither {HEADS} nor the head of {EXPORTED}; export the run again"
        ) from error


def _check_names(folder: Path, names: tuple[str, ...]) -> None:
    """Raises PretrainedError when further training with Transformers gave the outputs other names."""
    held = class_names(read_object(folder / CONFIG), len(names))
    if held != names:
        raise PretrainedError(
            f"{folder}: the classes in {CONFIG} are {', '.join(held)}, but those in {EXPORTED} are {', '.join(names)}; "
            f"remove {EXPORTED} to read the folder as Transformers does"
        )


def _other_params(path: str | Path, head: ExportedHead | None) -> Params:
    """The parameters outside the BERT; kernels are [inputs, outputs]."""
    if head is not None:
        return read_head(path, head)
    return unflatten_dict({tuple(name.split(".")): x for name, x in load_file(find_folder(path) / HEADS).items()})


def read_head(path: str | Path, head: ExportedHead) -> Params:
    """The parameters of a head, from the weights of Transformers. Raises: PretrainedError for a missing tensor."""
    tensors = read_tensors(encoder_folder(find_folder(path)), str(path))
    try:
        weight, bias = (np.asarray(tensors[name], np.float32) for name in head.tensors)
    except KeyError as error:
        raise PretrainedError(f"{path}: the weights do not have the tensor {error}") from error
    kernel = np.ascontiguousarray(weight.T) / head.scale
    bias = (bias.reshape(-1) - head.shift) / head.scale  # [1, C] next to a program of its own
    return {head.name: {"kernel": kernel, "bias": bias}}


def by_path(tree: Any) -> dict[str, np.ndarray]:
    """Arrays of any shape by their paths, such as `heads_sst.kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        ".".join(str(getattr(key, "key", key)) for key in path): np.ascontiguousarray(leaf) for path, leaf in leaves
    }
