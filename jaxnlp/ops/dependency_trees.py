"""Scores of arcs and of dependency trees, shared by `jaxnlp.ops.projective_trees` and `jaxnlp.ops.spanning_trees`.

A sentence of n words has a tree if each word has one head, exactly one word has the head ROOT, and no heads form a
cycle. With a score for each arc, a tree with the heads h_1 ... h_n has the score and the probability

    s(h) = sum_d scores[d, h_d],     P(h) = exp(s(h)) / Z

Z is the sum of exp(s) over all trees, or over all projective trees. The derivative of log Z with respect to the score
of an arc is the arc's marginal probability.

Axes: `scores[b, t, h]` is the score of the arc from head h to word t + 1. Heads are numbered from 1, and 0 is ROOT.
"""

import jax
import jax.numpy as jnp
from jax import Array

from jaxnlp.ops.checks import expect, expect_float


def checked_arcs(scores: Array, lengths: Array) -> tuple[Array, Array, Array]:
    """Scores relative to the best head of each word, since each word has one head.

    Args:
      scores: of arcs [B, T, T + 1], float, finite; values at padding are ignored.
      lengths: number of words [B] int, from 0 to T; words come first.

    Returns:
      Scores of arcs between words [B, T, T], by word and head; scores of arcs from ROOT [B, T]; and the sum of the
      subtracted scores [B]. Values at padding, and of arcs from a word to itself, are 0.

    Raises: ValueError when shapes do not fit.
    """
    fits = (
        scores.ndim == 3
        and scores.shape[1] > 0
        and scores.shape[2] == scores.shape[1] + 1
        and lengths.shape == scores.shape[:1]
        and jnp.issubdtype(lengths.dtype, jnp.integer)
    )
    expect(fits, "scores [B, T, T + 1] with T at least 1, and lengths [B] int", scores=scores, lengths=lengths)
    expect_float(scores=scores)
    arc = possible_arcs(lengths, scores.shape[1])
    real = arc.any(axis=-1)
    # A constant of all trees: without its gradient, the gradient of log Z is the marginals.
    best = jax.lax.stop_gradient(jnp.where(real, jnp.where(arc, scores, -jnp.inf).max(axis=-1), 0.0))
    relative = jnp.where(arc, scores - best[:, :, None], 0.0)
    return relative[:, :, 1:], relative[:, :, 0], best.sum(axis=-1)


def possible_arcs(lengths: Array, positions: int) -> Array:
    """Whether a tree may have an arc: from ROOT or another word, to a word [B, T, T + 1] bool."""
    word, head = jnp.arange(1, positions + 1), jnp.arange(positions + 1)
    within = (word[None, :, None] <= lengths[:, None, None]) & (head[None, None] <= lengths[:, None, None])
    return within & (word[None, :, None] != head[None, None])


def allowed_arcs(scores: Array, lengths: Array) -> Array:
    """Scores of arcs [B, T, T + 1]; a very low finite score for impossible arcs, also at padding.

    With -inf, the gradient of a softmax at padding would be NaN.
    """
    return jnp.where(possible_arcs(lengths, scores.shape[1]), scores, jnp.finfo(scores.dtype).min / 2)


def tree_scores(scores: Array, heads: Array, lengths: Array) -> Array:
    """s(h) of each tree [B]; 0 for a tree without words.

    Args:
      scores: of arcs [B, T, T + 1].
      heads: [B, T] int, in [0, T]; values at padding are ignored.
      lengths: number of words [B] int.
    """
    chosen = jnp.take_along_axis(scores, heads[:, :, None], axis=-1)[:, :, 0]
    return jnp.where(jnp.arange(scores.shape[1])[None] < lengths[:, None], chosen, 0.0).sum(axis=-1)
