"""A training run's folder, as inference needs it: config, vocabulary, parameters. The folder can be moved."""

import dataclasses
import json
import logging
import math
import zlib
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from jaxnlp.decoding.generate import Decoder
from jaxnlp.models import ModelConfig
from jaxnlp.serialization import from_json
from jaxnlp.text.vocabulary import Vocabulary, load_vocabulary
from jaxnlp.typing import Params, PyTree

log = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
VOCABULARY_FILE = "vocabulary.json"
CHECKPOINTS = "checkpoints"


class RunError(ValueError):
    """A folder that is no run, or a run that lacks what was asked of it."""


class DamagedCheckpointError(ValueError):
    """A checkpoint whose contents are not what was saved."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained model, ready to use.

    Attributes:
      folder: where it was read from.
      step: of the checkpoint.
      config: the whole config, as JSON.
      model: the Linen module.
      params: its parameters: the moving average where the run kept one.
      vocabulary: what the token ids mean.
    """

    folder: Path
    step: int
    config: dict[str, Any]
    model: nn.Module
    params: Params
    vocabulary: Vocabulary


def load_run(folder: str | Path, *, checkpoint: int | Literal["best", "latest"] = "best") -> Run:
    """Reads a run's folder.

    Args:
      folder: what `python -m train ... --workdir` wrote.
      checkpoint: a step, the newest, or the best on the validation split; before any evaluation, the newest.

    Raises:
      RunError: when the folder is no run or has no such checkpoint; the message says what there is.
      DamagedCheckpointError: when the checkpoint is not what was saved.
    """
    folder = Path(folder)
    config_file = folder / CONFIG_FILE
    if not config_file.is_file():
        raise RunError(f"{folder} is not a run's folder: it has no {CONFIG_FILE}")
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
        if "model_type" in config:
            raise ValueError("it is a pretrained model's; predict, embed and attention take such a folder as it is")
        model_config = from_json(_for_any_machine(config["model"]), ModelConfig, where="config.model")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise RunError(f"{config_file} holds no config of a run: {error}") from error
    try:
        vocabulary = load_vocabulary(folder / VOCABULARY_FILE)
    except (ValueError, OSError) as error:
        raise RunError(f"the run in {folder} has no vocabulary that can be read: {error}") from error
    step = find_checkpoint(folder, checkpoint)
    model = model_config.build(vocabulary.size)
    return Run(
        folder=folder,
        step=step,
        config=config,
        model=model,
        params=load_params(folder / CHECKPOINTS / str(step), model),
        vocabulary=vocabulary,
    )


def _for_any_machine(held: Any) -> Any:
    """A model's config as JSON with `auto` for `cudnn`: the same function, from there where it can be had."""
    if not isinstance(held, dict):
        return "auto" if held == "cudnn" else held
    return {name: _for_any_machine(value) for name, value in held.items()}


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps whose checkpoints a run's folder holds, in ascending order; unfinished ones do not count."""
    path = (folder / CHECKPOINTS).absolute()
    return sorted(ocp.utils.checkpoint_steps(path)) if path.is_dir() else []


def find_checkpoint(folder: Path, checkpoint: int | Literal["best", "latest"]) -> int:
    """The step of a run's checkpoint. Raises: RunError when there is none such, naming those there are."""
    path, steps = (folder / CHECKPOINTS).absolute(), checkpoint_steps(folder)
    if not steps:
        raise RunError(f"{folder} has no checkpoint yet")
    if checkpoint == "latest":
        return steps[-1]
    if checkpoint == "best":
        errors = {step: _validation_error(path / str(step)) for step in steps}
        scored = {step: error for step, error in errors.items() if error is not None}
        return min(scored, key=scored.__getitem__) if scored else steps[-1]
    if checkpoint not in steps:
        raise RunError(f"{folder} has no checkpoint of step {checkpoint}; it has {', '.join(map(str, steps))}")
    return checkpoint


def load_params(checkpoint: Path, model: nn.Module) -> Params:
    """A checkpoint's parameters for evaluation, on one device, checked against the digests saved with them.

    Args:
      checkpoint: its folder.
      model: whose parameters they are; the devices that saved them do not matter.

    Raises:
      DamagedCheckpointError: when it is not what was saved.
    """
    item = "ema" if (checkpoint / "ema").is_dir() else "params"
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), shapes)
    restored = _read_items(checkpoint, **{item: ocp.args.StandardRestore(like), "digests": ocp.args.JsonRestore()})
    check_digests(restored[item], restored["digests"][item], f"{item} of checkpoint {checkpoint}")
    return restored[item]


def _read_items(checkpoint: Path, **items: Any) -> Any:
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
            return checkpointer.restore(checkpoint.absolute(), args=ocp.args.Composite(**items))
    except MemoryError:
        raise
    # Orbax and TensorStore raise errors of many types for damaged files.
    except Exception as error:
        raise DamagedCheckpointError(
            f"checkpoint {checkpoint} cannot be read, choose another with --checkpoint: {error}"
        ) from error


def _validation_error(checkpoint: Path) -> float | None:
    try:
        found = _read_items(checkpoint, run=ocp.args.JsonRestore()).run["validation_error"]
    except DamagedCheckpointError as error:
        log.warning("passing over it: %s", error)
        return None
    return None if found is None or math.isnan(found) else found


def digests(tree: PyTree) -> dict[str, int]:
    """CRC-32 of each array, by its path in the tree."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): zlib.crc32(np.ascontiguousarray(leaf).data) for path, leaf in leaves}


def check_digests(tree: PyTree, expected: dict[str, int], name: str) -> None:
    """Raises DamagedCheckpointError, naming the arrays, when a tree is not the one that the digests were taken of."""
    found = digests(tree)
    changed = sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))
    if changed:
        raise DamagedCheckpointError(f"{name}: {len(changed)} arrays are not what was saved, such as {changed[0]}")


def make_decoder(model: Any) -> Decoder:
    """The model's step function for `jaxnlp.decoding`; make it once, since each one compiles anew.

    Args:
      model: a Linen module that is called with `tokens, cache=, count=` and has `empty_cache(batch)` and `capacity`,
        all as `Decoder` says. Where it has `decoding_params(params)`, it reads with these, otherwise with `params`.

    Raises:
      RunError: for a model that continues no texts.
    """
    if not hasattr(model, "empty_cache"):
        raise RunError(f"a {type(model).__name__} continues no texts")
    return Decoder(
        prepare=getattr(model, "decoding_params", lambda params: params),
        read=lambda params, tokens, cache, count: model.apply({"params": params}, tokens, cache=cache, count=count),
        empty_cache=model.empty_cache,
        capacity=model.capacity,
        vocabulary_size=getattr(model, "vocabulary_size", None),
    )
