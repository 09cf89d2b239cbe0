"""Layer-wise learning rates: the deeper a layer, the smaller its updates."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import Params, PyTree
from train.optimizer.parameters import Describe, names


def layer_factors(params: Params, describe: Describe, decay: float, ratio: float = 1.0) -> PyTree:
    """Factors of the updates for layer-wise learning rates.

    ratio decay^(L - l)   block l of L, counted from 0; the last block has ratio decay
    ratio decay^(L + 1)   below the blocks: embeddings and their normalisation
    1                     above the blocks: final normalisation, pooler, heads

    An output layer that shares the embedding matrix has the embedding's factor.

    L is counted in the parameters, for each stack of blocks separately:

    - A stacked parameter (axis L) has the length of that axis.
    - A parameter of block l belongs to the stack in the smallest subtree around it that also has parameters of other
      blocks, or of none; L is one more than the highest block in that subtree.
    - A parameter below the blocks takes L from the smallest subtree around it that has blocks. In an encoder-decoder,
      the encoder's embeddings take the encoder's L. Embeddings outside both take the larger L.

    Args:
      params: parameters, as nested dicts.
      describe: see `train.optimizer.parameters`.
      decay: in (0, 1].
      ratio: of the blocks and the parameters below them, in (0, 1].

    Returns:
      Float32 arrays in a tree like `params`: [1, ..., L, ..., 1] with the axes of a stacked parameter, and [] for
      others.

    Raises: ConfigError when no parameter belongs to a block, or the model's table does not have a parameter.

    Source: Howard and Ruder 2018, section 3.2 (discriminative fine-tuning); Clark et al. 2020, appendix B, for one
    decay between successive layers.
    """
    described = jax.tree.map(lambda parameter, value: _Leaf(parameter, value.shape), describe(params), params)
    leaves = {names(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(described)}
    blocks = _blocks_in_subtrees(leaves)
    mixed = {path[:length] for path, leaf in leaves.items() if not leaf.blocks for length in range(len(path))}
    if not blocks:
        raise ConfigError(
            "optimizer.layer_decay and optimizer.blocks_lr_ratio need a model with trained blocks, which this model "
            "does not have; set them to 1"
        )

    def factor(path: tuple[Any, ...], leaf: _Leaf) -> np.ndarray:
        depth, axis = leaf.parameter.depth, leaf.stacked_axis
        if axis is not None:
            layers = leaf.shape[axis]
            shape = [layers if n == axis else 1 for n in range(len(leaf.shape))]
            return (ratio * decay ** np.arange(layers, 0, -1)).reshape(shape).astype(np.float32)
        if depth == "above":
            return np.ones((), np.float32)
        around = [names(path)[:length] for length in reversed(range(len(path)))]
        if depth == "below":
            subtree = next(subtree for subtree in around if subtree in blocks)
            return np.asarray(ratio * decay ** (max(blocks[subtree]) + 2), np.float32)
        subtree = next((subtree for subtree in around if subtree in mixed or blocks[subtree] != {depth}), ())
        return np.asarray(ratio * decay ** (max(blocks[subtree]) + 1 - depth), np.float32)

    return jax.tree_util.tree_map_with_path(factor, described)


@dataclasses.dataclass(frozen=True)
class _Leaf:
    parameter: Parameter
    shape: tuple[int, ...]

    @property
    def stacked_axis(self) -> int | None:
        return self.parameter.axes.index("L") if "L" in self.parameter.axes else None

    @property
    def blocks(self) -> set[int]:
        """Indices of the parameter's blocks; empty below and above the blocks."""
        if self.stacked_axis is not None:
            return set(range(self.shape[self.stacked_axis]))
        return {self.parameter.depth} if isinstance(self.parameter.depth, int) else set()


def _blocks_in_subtrees(leaves: dict[tuple[str, ...], _Leaf]) -> dict[tuple[str, ...], set[int]]:
    """Indices of the blocks in each subtree that has blocks, by its path."""
    blocks: dict[tuple[str, ...], set[int]] = {}
    for path, leaf in leaves.items():
        if leaf.blocks:
            for length in range(len(path)):
                blocks.setdefault(path[:length], set()).update(leaf.blocks)
    return blocks


def scale_by_layer(decay: float, describe: Describe, ratio: float = 1.0) -> optax.GradientTransformation:
    """Multiplies updates by `layer_factors`."""

    def init(params: Params) -> optax.EmptyState:
        layer_factors(params, describe, decay, ratio)  # an error for a model without blocks, before the first step
        return optax.EmptyState()

    def update(updates: PyTree, state: optax.EmptyState, params: Params | None = None):
        del params
        factors = layer_factors(updates, describe, decay, ratio)
        return jax.tree.map(lambda u, f: u * jnp.asarray(f, u.dtype), updates, factors), state

    return optax.GradientTransformation(init, update)
