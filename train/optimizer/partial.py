"""Optimizers and gradients for a part of the parameters."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxnlp.tasks import Objective
from jaxnlp.typing import Array, Params, PyTree
from train.optimizer.parameters import names

Index = tuple[slice, ...]
"""Index of an array."""


def without_gradients(objective: Objective, frozen: Callable[[tuple[str, ...]], bool]) -> Objective:
    """The objective with a gradient of 0 for frozen parameters, which a step does not compute.

    Args: frozen: whether the parameter at a path is frozen.
    """

    def loss(params: Params, *arguments: Any) -> Any:
        def fixed(path: tuple[Any, ...], x: Array) -> Array:
            return jax.lax.stop_gradient(x) if frozen(names(path)) else x

        return objective.loss(jax.tree_util.tree_map_with_path(fixed, params), *arguments)

    return dataclasses.replace(objective, loss=loss)


def leave_frozen(
    optimizer: optax.GradientTransformationExtraArgs,
    frozen: Callable[[tuple[str, ...]], bool],
    rows: Callable[[tuple[str, ...]], Index | None] = lambda path: None,
) -> optax.GradientTransformationExtraArgs:
    """Hides frozen parameters and rows from an optimizer: their update is 0, and they have no optimizer state.

    If nothing is frozen, the state is that of the optimizer.

    Args:
      optimizer: for the other parameters, some perhaps with fewer rows.
      frozen: whether the parameter at a path is frozen.
      rows: the index of the trained rows of another parameter; None = all.
    """

    def trained(path: tuple[Any, ...], x: Array) -> PyTree:
        if frozen(names(path)):
            return optax.MaskedNode()
        index = rows(names(path))
        return x if index is None else x[index]

    def whole(path: tuple[Any, ...], x: Array, new: PyTree) -> Array:
        if isinstance(new, optax.MaskedNode):
            return jnp.zeros_like(x)
        index = rows(names(path))
        return new if index is None else jnp.zeros_like(x).at[index].set(new)

    def seen(tree: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(trained, tree)

    def init(params: Params) -> PyTree:
        return optimizer.init(seen(params))

    def update(updates: PyTree, state: PyTree, params: Params | None = None, **extra: Any):
        moved, state = optimizer.update(seen(updates), state, None if params is None else seen(params), **extra)
        return jax.tree_util.tree_map_with_path(whole, updates, moved), state

    return optax.GradientTransformationExtraArgs(init, update)
