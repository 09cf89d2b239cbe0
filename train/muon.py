"""Muon: momentum, made orthogonal: every direction of a weight matrix learns at the same pace.

A gradient of a matrix is mostly of a few directions, those that many examples share; Adam follows them. With all
singular values brought to about 1, what only a few examples ask for is learnt as fast as what all of them do.

Source: Jordan et al. 2024 (Muon); Liu et al. 2025, section 2.2, for the size of the update; Wang et al. 2025 for what
it does to rare facts.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxnlp.ops.matmul import operand_dtype, product, transposed
from jaxnlp.typing import Array, Params, PyTree

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the iteration's quintic: steepest at 0, and then near 1 without ever settling."""
ITERATIONS = 5
ADAM_SIZE = 0.2
"""Root mean square of an update, about that of Adam's: so the same learning rate and decay suit both."""


def orthogonalized(x: Array) -> Array:
    """U V^T of the singular value decomposition U S V^T, about: singular values between about 0.6 and 1.3.

    X <- a X + (b X X^T + c (X X^T)^2) X, five times, from X / ||X||. Products of bfloat16 operands where
    the processor has instructions for them, summed in float32.

    Args:
      x: matrices [..., M, N], float.

    Returns:
      [..., M, N], float32.
    """
    wide = x.shape[-2] <= x.shape[-1]
    # Transposed in memory: XLA on CPU refuses some bfloat16 products of an operand that is only relabelled.
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
    """Running mean of the gradient."""

    momentum: PyTree


def scale_by_muon(decay: float, *, batched: Callable[[tuple], bool]) -> optax.GradientTransformation:
    """From gradients of matrices to directions of root mean square `ADAM_SIZE`.

    A matrix has its input axis first; all further axes are outputs: a kernel [D, 3, H, K] is made orthogonal as
    [D, 3 H K].

    Args:
      decay: of the running mean, which looks one step ahead (Nesterov).
      batched: whether the first axis of the parameter at a path counts matrices, as that of stacked blocks does.
    """

    def init(params: Params) -> MuonState:
        return MuonState(jax.tree.map(jnp.zeros_like, params))

    def update(updates: PyTree, state: MuonState, params: Params | None = None) -> tuple[PyTree, MuonState]:
        del params
        momentum = jax.tree.map(lambda m, g: decay * m + (1.0 - decay) * g, state.momentum, updates)

        def direction(path: tuple, m: Array, g: Array) -> Array:
            ahead = decay * m + (1.0 - decay) * g
            count, inputs = (g.shape[0], g.shape[1]) if batched(path) else (1, g.shape[0])
            matrices = orthogonalized(ahead.reshape(count, inputs, -1))
            longest = max(matrices.shape[-2:])
            return (ADAM_SIZE * longest**0.5 * matrices).reshape(g.shape).astype(g.dtype)

        return jax.tree_util.tree_map_with_path(direction, momentum, updates), MuonState(momentum)

    return optax.GradientTransformation(init, update)
