"""The axis glossary and the type aliases that every other file uses.

One letter an axis, in einsums, docstrings and comments alike:

    B batch            T query or target positions   S key or source positions
    D model width      H heads                       K head width
    F feed-forward     V vocabulary                  L layers
    M latents          N beams, or rows in general   C classes
    G key heads        Q query width, unlike K       P predicted positions
    W window

Masks are boolean, True = may attend, or counts. Random keys are typed keys (`jax.random.key`).
"""

from collections.abc import Mapping
from typing import Any

import jax

Array = jax.Array
PRNGKey = jax.Array
PyTree = Any
Params = PyTree

Batch = Mapping[str, jax.Array]
"""Named arrays of static shape; the first axis is B."""

PartBatches = Mapping[str, Batch]
"""What a training step takes of several parts at once: a batch of each, by the part's name."""

Metrics = dict[str, tuple[jax.Array, jax.Array]]
"""Named (sum, count) pairs: they add up over batches, devices and processes; the value is sum / count."""

BATCH_AXIS = "batch"
"""Name of the axis over which devices share a batch: of the mesh under jit, of the mapped axis under pmap."""
