"""The axis glossary and the type aliases that every other file uses.

One letter for each axis, in einsums, docstrings and comments:

    B batch            T query or target positions   S key or source positions
    D model width      H heads                       K head width, or width of a recurrent state
    F feed-forward     V vocabulary                  L layers
    M latents          N beams, or rows in general   C classes, or kinds of segments
    G key heads, or gates of a recurrent cell        P positions to predict
    Q query width, if it is not K                    W positions in a neural cache
    A parts of an accumulated batch                  O outputs of all heads, H K of them
    E embedding width, if it may differ from D       R rank of a matrix that is a product of two

A file that gives a letter another meaning defines it in its docstring.

Masks are boolean: True = a query may attend to the key, or the position counts in the loss. Random keys are typed keys
(`jax.random.key`).
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
"""Batches of several parts for one training step, by the part's name."""

Metrics = dict[str, tuple[jax.Array, jax.Array]]
"""Named (sum, count) pairs: they add up over batches, devices and processes; the value is sum / count."""

BATCH_AXIS = "data"
"""Name of the axis along which devices share a batch, of a mesh (jit) or mapped (pmap)."""

MODEL_AXIS = "model"
"""Name of the mesh axis along which devices share heads, feed-forward widths and vocabularies."""
