"""Gradient surgery: several tasks' gradients, added up without what one would undo of another.

Source: Yu et al. 2020 (PCGrad), algorithm 1.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxnlp.typing import Array, PRNGKey, PyTree


def project_conflicts(gradients: Sequence[PyTree], key: PRNGKey) -> PyTree:
    """The sum over tasks of each one's gradient after its projections.

    p_i = g_i, and then for each other task j, in random order: where p_i . g_j < 0,
    p_i <- p_i - (p_i . g_j) / |g_j|^2 g_j.

    All p_i lie in the span of the gradients: what is projected are their N coefficients in it, by the N x N dot
    products of the gradients, in float32, so that no tree is made but the sum.

    Args:
      gradients: one tree of float arrays for each of N >= 1 tasks, all of the same shapes; they may be zero.
      key: decides the orders.

    Returns:
      A tree like each of them. Not finite where one of them is not.
    """
    count = len(gradients)
    dots: dict[tuple[int, int], Array] = {}
    for i in range(count):
        for j in range(i, count):
            dots[i, j] = dots[j, i] = _dot(gradients[i], gradients[j])
    gram = jnp.stack([jnp.stack([dots[i, j] for j in range(count)]) for i in range(count)])

    def coefficients(task: Array, key: PRNGKey) -> Array:
        """[N], of a task's gradient after its projections."""

        def project(held: Array, other: Array) -> tuple[Array, None]:
            # Not as a matrix product, which accelerators round.
            dot, square = (held * gram[other]).sum(), gram[other, other]
            conflict = (dot < 0.0) & (square > 0.0) & (other != task)
            share = jnp.where(conflict, dot / jnp.where(conflict, square, 1.0), 0.0)
            return held.at[other].add(-share), None

        begin = (jnp.arange(count) == task).astype(jnp.float32)
        return jax.lax.scan(project, begin, jax.random.permutation(key, count))[0]

    summed = jax.vmap(coefficients)(jnp.arange(count), jax.random.split(key, count)).sum(axis=0)

    def combined(*parts: Array) -> Array:
        products = [summed[n].astype(part.dtype) * part for n, part in enumerate(parts)]
        return sum(products[1:], products[0])

    return jax.tree.map(combined, *gradients)


def _dot(a: PyTree, b: PyTree) -> Array:
    """Over all values, [] float32."""
    return jnp.stack(
        [
            jnp.vdot(x, y, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
            for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        ]
    ).sum()
