"""`python -m jaxnlp export`."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro
from safetensors.numpy import save

from jaxnlp.convert.pretrained import architecture, save_pretrained
from jaxnlp.encoders import encoder_of
from jaxnlp.runs import load_run
from jaxnlp.serialization import to_json

HEADS = "heads.safetensors"


@dataclasses.dataclass(frozen=True)
class Export:
    """Writes the BERT of a run as a folder that Hugging Face Transformers reads, with its tokenizer.

    Pretraining heads go with it. Heads of text tasks, which Transformers does not have, are put beside it in
    heads.safetensors.
    """

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    folder: tyro.conf.Positional[Path]
    """Where to write; new, or empty."""
    checkpoint: int | Literal["best", "latest"] = "best"
    """The best on the validation split, the newest, or a step."""


def export(command: Export) -> None:
    """Writes the folder, whole or not at all, and says what is in it.

    Raises:
      RunError, DamagedCheckpointError: when there is no such run or checkpoint, or it has no BERT.
      WeightsError: for variants that Transformers' BERT has not.
      OSError: when the folder holds something, or cannot be written.
    """
    run = load_run(command.run, checkpoint=command.checkpoint)
    pretrained = encoder_of(run)
    written = {"encoder"} | ({"heads"} if pretrained.heads is not None else set())
    others = {name: params for name, params in run.params.items() if name not in written}
    beside = {HEADS: save(_named(others), metadata={"model": json.dumps(_shape(run.model))})} if others else {}
    save_pretrained(command.folder, pretrained, beside=beside)
    kind = architecture(pretrained.heads)
    print(f"{command.folder}: transformers.{kind}.from_pretrained reads it, and jaxnlp.convert.pretrained")
    if others:
        print(
            f"{command.folder / HEADS}: {', '.join(sorted(others))}, which Transformers has no place for; kernels are "
            "[inputs, outputs], and its metadata says how the model uses them"
        )


def _named(tree: Any) -> dict[str, np.ndarray]:
    """Arrays by their paths, such as `heads_sst.kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        ".".join(str(getattr(key, "key", key)) for key in path): np.ascontiguousarray(leaf) for path, leaf in leaves
    }


def _shape(model: Any) -> Any:
    """Its config, without what it began with: a place on the disk of whoever trained it."""
    config = to_json(model.config)
    return {name: value for name, value in config.items() if not name.startswith("pretrained")}
