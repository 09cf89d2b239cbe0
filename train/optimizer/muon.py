"""Muon: the gradients of weight matrices are orthogonalised, with all singular values near 1.

A few directions, which many examples share, dominate the gradient of a matrix, and Adam follows them. Muon makes the
update orthogonal: directions of few examples are learnt as fast as those of all.

Source: Jordan et al. 2024 (Muon); Liu et al. 2025, section 2.2, for the size of the update; Wang et al. 2025 for its
effect on rare facts.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxnlp.ops.matrix_products import operand_dtype, product, transposed
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import Array, Params, PyTree
from train.optimizer.parameters import Describe

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration: steep at 0, so that singular values approach 1 fast, without convergence."""
ITERATIONS = 5
ADAM_SIZE = 0.2
"""Root mean square of an update, about Adam's, so that one learning rate and weight decay fit both."""


def orthogonalized(x: Array) -> Array:
    """An approximation of U V^T, for X = U S V^T: its singular values are between about 0.6 and 1.3.

    X <- a X + (b X X^T + c (X X^T)^2) X, five times, from X / ||X||. Operands of the products are bfloat16 where the
    processor supports it; sums are float32.

    Args:
      x: matrices [..., M, N], float.

    Returns:
      [..., M, N], float32.
    """
    wide = x.shape[-2] <= x.shape[-1]
    # Transposed in memory: XLA on CPU rejects some bfloat16 products of an operand with only relabelled axes.
    x = jnp.asarray(x if wide else transposed(x), jnp.float32)
    batch = x.shape[:-2]
    x = x.reshape(-1, *x.shape[-2:])
    x = x / (jnp.linalg.norm(x, axis=(-2, -1), keepdims=True) + 1e-7)
    a, b, c = COEFFICIENTS
    operands = operand_dtype("auto") or jnp.float32
    for _ in range(ITERATIONS):
        short = x.astype(operands)
        square = product(short, short, "lmk,lnk->lmn")
        short_square = square.astype(operands)
        polynomial = b * square + c * product(short_square, short_square, "lmk,lkn->lmn")
        x = a * x + product(polynomial.astype(operands), short, "lmk,lkn->lmn")
    x = x.reshape(*batch, *x.shape[-2:])
    return x if wide else x.swapaxes(-1, -2)


class MuonState(NamedTuple):
    """Running mean of the gradients."""

    momentum: PyTree


def scale_by_muon(momentum: float, describe: Describe) -> optax.GradientTransformation:
    """Turns gradients of matrices into orthogonalised updates with the root mean square `ADAM_SIZE`.

    The iteration reads a gradient as a stack of matrices [..., M, N]: see `as_matrices`.

    Args:
      momentum: decay rate of the running mean of gradients, which looks one step ahead (Nesterov).
      describe: see `train.optimizer.parameters`.
    """

    def init(params: Params) -> MuonState:
        return MuonState(jax.tree.map(jnp.zeros_like, params))

    def update(updates: PyTree, state: MuonState, params: Params | None = None) -> tuple[PyTree, MuonState]:
        del params
        mean = jax.tree.map(lambda m, g: momentum * m + (1.0 - momentum) * g, state.momentum, updates)
        ahead = jax.tree.map(lambda m, g: momentum * m + (1.0 - momentum) * g, mean, updates)
        return _directions(ahead, describe(updates)), MuonState(mean)

    return optax.GradientTransformation(init, update)


def _directions(gradients: PyTree, parameters: PyTree) -> PyTree:
    """The orthogonalised updates of gradients. Those of equal axes and shape are one stack of matrices, so that a
    program with few products compiles faster."""
    leaves, structure = jax.tree.flatten(gradients)
    alike: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    letters = jax.tree.leaves(jax.tree.map(lambda _, parameter: parameter.axes, gradients, parameters))
    for index, (x, axes) in enumerate(zip(leaves, letters, strict=True)):
        alike.setdefault((axes, x.shape), []).append(index)
    for (axes, shape), indices in alike.items():
        *_, rows, columns = as_matrices(axes, shape)
        ahead = orthogonalized(jnp.concatenate([leaves[index].reshape(-1, rows, columns) for index in indices]))
        directions = jnp.split(ADAM_SIZE * max(rows, columns) ** 0.5 * ahead, len(indices))
        for index, direction in zip(indices, directions, strict=True):
            leaves[index] = direction.reshape(shape).astype(leaves[index].dtype)
    return jax.tree.unflatten(structure, leaves)


def as_matrices(axes: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A kernel's shape as one matrix or a stack of matrices: [L, D, 3, H, K] as [L, D, 3 * H * K].

    The first axis, or the first after L, is the inputs; all further ones are the outputs. So a convolution for Muon
    must have a kernel [patch height * patch width * channels, D].

    Raises: ConfigError when there are no outputs, or L is not the first axis.
    """
    batch = axes.startswith("L")
    if len(shape) < 2 + batch or "L" in axes[batch:]:
        raise ConfigError(f"Muon needs matrices [inputs, outputs...] or [L, inputs, outputs...], got {axes!r} {shape}")
    return (*shape[: 1 + batch], math.prod(shape[1 + batch :]))
