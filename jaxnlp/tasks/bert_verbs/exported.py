"""Exported models, read back whole: what the verb `export` writes for this library only."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file, save

from jaxnlp.convert import PretrainedError, read_pretrained
from jaxnlp.convert.folders import EXPORTED, find_folder, read_object, read_tensors
from jaxnlp.models import ModelConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.tagger import HEAD as LABEL_SCORES
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.saving.serialization import from_json, on_any_machine, processor_from_json, processor_to_json, to_json
from jaxnlp.tasks import Task, Trained
from jaxnlp.typing import Params

HEADS = "heads.safetensors"
CLASSIFIER = "classifier."
"""Prefix of the names of a head in Transformers' weights."""


def description(trained: Trained, config: ModelConfig) -> bytes:
    """The file `jaxnlp.json` of an exported model: its task, the config of what was exported, and its processor."""
    parts = {
        "task": to_json(trained.task),
        "model": to_json(config),
        "processor": processor_to_json(trained.processor),
    }
    return (json.dumps(parts) + "\n").encode()


def heads_file(config: ModelConfig, params: Params) -> bytes:
    """The file `heads.safetensors`: these parameters by path, and the model's config as metadata."""
    return save(by_path(params), metadata={"model": json.dumps(to_json(config))})


def read_exported(folder_or_name: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
    """The model that was exported: its BERT and all other parameters.

    Raises:
      ValueError: for tensors to ignore.
      PretrainedError, WeightsError: when the folder was changed since, so that a file is missing or does not fit.
      ConfigError: when the file `jaxnlp.json` cannot be read.
    """
    if ignore:
        raise ValueError(f"{folder_or_name}: this model is read whole, got tensors to ignore: {', '.join(ignore)}")
    folder = find_folder(folder_or_name)
    parts = read_object(folder / EXPORTED)
    task = from_json(parts.get("task"), Task, where=f"{folder / EXPORTED}: task")
    config: Any = from_json(on_any_machine(parts.get("model")), ModelConfig, where=f"{folder / EXPORTED}: model")
    processor = processor_from_json(parts.get("processor"), where=f"{folder / EXPORTED}: processor")
    bert = flatten_dict(read_pretrained(folder, ignore=(CLASSIFIER,)).params)
    others = flatten_dict(_heads(folder, config, processor))
    params = unflatten_dict({(*config.bert_path, *path): x for path, x in bert.items()} | others)
    model = config.build(processor)
    expected = jax.eval_shape(model.init, jax.random.key(0), *config.inputs(processor))["params"]
    shapes = [{path: x.shape for path, x in flatten_dict(tree).items()} for tree in (params, expected)]
    paths = shapes[0].keys() | shapes[1].keys()
    different = sorted("/".join(path) for path in paths if shapes[0].get(path) != shapes[1].get(path))
    if different:
        raise PretrainedError(f"{folder}: {different[0]} does not fit {EXPORTED}; export the run again")
    return Trained(task, model, jax.device_put(params, jax.local_devices()[0]), processor, name=str(folder_or_name))


def _heads(folder: Path, config: Any, processor: Any) -> Params:
    """The parameters outside the BERT, [inputs, outputs] for kernels."""
    if (folder / HEADS).is_file():
        return unflatten_dict({tuple(name.split(".")): x for name, x in load_file(folder / HEADS).items()})
    tensors = read_tensors(folder, str(folder))
    found = config.only_head(processor) if isinstance(config, BertClassifierConfig) else None
    head = LABEL_SCORES if isinstance(config, TaggerConfig) else found and found.head
    names = (f"{CLASSIFIER}weight", f"{CLASSIFIER}bias")
    if head is None or not tensors.keys() >= set(names):
        raise PretrainedError(f"{folder} has neither {HEADS} nor {names[0]}; export the run again")
    weight, bias = (np.asarray(tensors[name], np.float32) for name in names)
    kernel, bias = np.ascontiguousarray(weight.T), bias.reshape(-1)  # [1, C] next to a program of its own
    if found is not None:
        kernel, bias = kernel / found.targets.width, (bias - found.targets.lowest) / found.targets.width
    return {head: {"kernel": kernel, "bias": bias}}


def by_path(tree: Any) -> dict[str, np.ndarray]:
    """Arrays of any shape by their paths, such as `heads_sst.kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        ".".join(str(getattr(key, "key", key)) for key in path): np.ascontiguousarray(leaf) for path, leaf in leaves
    }
