"""Gradient surgery: the gradients of several tasks, summed after projecting out conflicts.

Source: Yu et al. 2020 (PCGrad), algorithm 1.
"""

from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp

from jaxnlp.typing import Array, PRNGKey, PyTree


def project_conflicts(gradients: Sequence[PyTree], key: PRNGKey) -> PyTree:
    """The sum over tasks of each task's gradient after its projections.

    p_i = g_i, and then for each other task j, in random order: where p_i . g_j < 0,
    p_i <- p_i - (p_i . g_j) / |g_j|^2 g_j.

    All p_i are in the span of the gradients, so the function projects their N coefficients, from the N x N dot products
    of the gradients, in float32. The sum is the only new tree.

    Args:
      gradients: one tree of float arrays for each of N >= 1 tasks, all of the same shapes; they may be zero.
      key: random key of the orders.

    Returns:
      A tree of the same shapes, not finite where a gradient is not.
    """
    count = len(gradients)
    dots: dict[tuple[int, int], Array] = {}
    for i in range(count):
        for j in range(i, count):
            dots[i, j] = dots[j, i] = _dot(gradients[i], gradients[j])
    gram = jnp.stack([jnp.stack([dots[i, j] for j in range(count)]) for i in range(count)])
    chex.assert_shape(gram, (count, count))

    def coefficients(task: Array, key: PRNGKey) -> Array:
        """Coefficients [N] of a task's gradient after its projections."""

        def project(current: Array, other: Array) -> tuple[Array, None]:
            # Not a matrix product: accelerators round its operands.
            dot, square = (current * gram[other]).sum(), gram[other, other]
            conflict = (dot < 0.0) & (square > 0.0) & (other != task)
            share = jnp.where(conflict, dot / jnp.where(conflict, square, 1.0), 0.0)
            return current.at[other].add(-share), None

        initial = (jnp.arange(count) == task).astype(jnp.float32)
        return jax.lax.scan(project, initial, jax.random.permutation(key, count))[0]

    summed = jax.vmap(coefficients)(jnp.arange(count), jax.random.split(key, count)).sum(axis=0)
    chex.assert_shape(summed, (count,))

    def combined(*parts: Array) -> Array:
        products = [summed[n].astype(part.dtype) * part for n, part in enumerate(parts)]
        return sum(products[1:], products[0])

    return jax.tree.map(combined, *gradients)


def _dot(a: PyTree, b: PyTree) -> Array:
    """The dot product of two trees, [] float32."""
    chex.assert_trees_all_equal_shapes(a, b)
    return jnp.stack(
        [
            jnp.vdot(x, y, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
            for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        ]
    ).sum()
