"""Projective dependency trees with one root: the best tree, log Z and marginal probabilities, in time O(n^3).

A tree is projective if all words between a head and its dependent are below the head. Its arcs and subtrees are built
from spans of words i ... j. The head of a complete span is one of its ends. An incomplete span also has the arc between
its ends. With R for the head i and L for the head j, s(i, j) the score of the arc from i to j, and (+) the sum over k,

    incomplete R(i, j) = s(i, j) + (+) complete R(i, k) + complete L(k + 1, j)        i <= k < j
    incomplete L(i, j) = s(j, i) + (+) complete R(i, k) + complete L(k + 1, j)        i <= k < j
    complete R(i, j)   = (+) incomplete R(i, k) + complete R(k, j)                    i < k <= j
    complete L(i, j)   = (+) complete L(i, k) + incomplete L(k, j)                    i <= k < j
    tree               = (+) complete L(1, r) + complete R(r, n) + s(ROOT, r)         1 <= r <= n

With (+) as the maximum, this is Eisner's algorithm; with (+) as log-sum-exp, it is the inside algorithm, and the last
line is log Z. The outside algorithm is its gradient by hand: from wide spans to narrow ones, it divides the probability
of each span among its k by their shares of the sum. With share 1 for the best k and 0 for others, it reads off Eisner's
best tree.

All spans of a width are computed together. A chart [T, B, T] has spans by width and by start, or by width and by end.

Sources: Eisner 1996 for the spans; Baker 1979 for inside and outside; Eisner 2016 for outside as the gradient.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxnlp.ops.dependency_trees import checked_arcs

Sum = Callable[[Array], tuple[Array, Array]]
"""Values [K, ...] -> (+) over K [...], and the share of each value [K, ...]."""


class _Charts(NamedTuple):
    """Scores of spans [T, B, T] by width, -inf for missing ones; or their probabilities."""

    right_by_start: Array
    right_by_end: Array
    left_by_start: Array
    left_by_end: Array
    incomplete_right_by_start: Array
    incomplete_left_by_end: Array


def eisner(scores: Array, lengths: Array) -> Array:
    """The heads of the best projective tree with one root.

    Args:
      scores: of arcs [B, T, T + 1], float, finite, see `jaxnlp.ops.dependency_trees`; values at padding are ignored.
      lengths: number of words [B] int, from 0 to T; words come first.

    Returns:
      Heads [B, T] int32, 0 for ROOT and at padding.

    Raises: ValueError when shapes do not fit.

    >>> scores = jnp.array([[[0.0, 0.0, 3.0], [1.0, 2.0, 0.0]]])  # 2 -> 1 and 1 -> 2 are best, but they are a cycle
    >>> print(eisner(scores, jnp.array([2])))
    [[2 0]]
    """
    words, roots, _ = checked_arcs(scores, lengths)
    charts, _ = _inside(words, roots, lengths, _best)
    return _outside(words, roots, lengths, charts, _best).argmax(axis=-1).astype(jnp.int32)


def projective_log_normalizer(scores: Array, lengths: Array) -> Array:
    """log Z over projective trees with one root [B]; 0 for a sentence without words. Arguments: as for `eisner`.

    The gradient with respect to the scores is `projective_marginals`.
    """
    words, roots, shift = checked_arcs(scores, lengths)
    return shift + _log_normalizer(words, roots, lengths)


def projective_marginals(scores: Array, lengths: Array) -> Array:
    """The probability of each arc, over projective trees [B, T, T + 1]; 0 at padding. Arguments: as for `eisner`.

    The probabilities of a word's heads add up to 1.
    """
    words, roots, _ = checked_arcs(scores, lengths)
    charts, _ = _inside(words, roots, lengths, _log_sum)
    return _outside(words, roots, lengths, charts, _log_sum)


def _best(x: Array) -> tuple[Array, Array]:
    return x.max(axis=0), jax.nn.one_hot(x.argmax(axis=0), x.shape[0], axis=0, dtype=x.dtype)


def _log_sum(x: Array) -> tuple[Array, Array]:
    total = jax.nn.logsumexp(x, axis=0)
    return total, jnp.exp(x - total[None])


def _counterpart(chart: Array, width: Array, gap: int) -> Array:
    """From a chart by end, the second parts of spans [T, B, T], by the width of the first part and the start.

    Entry [k, :, i] has the width `width - gap - k` and ends at i + width; -inf if there is none. The function is its
    own adjoint, except for the direction of the shift.
    """
    rows = width - gap - jnp.arange(chart.shape[0])
    moved = jnp.roll(chart, -width, axis=2)[jnp.maximum(rows, 0)]
    return jnp.where((rows >= 0)[:, None, None], moved, -jnp.inf)


def _returned(parts: Array, width: Array, gap: int) -> Array:
    """The adjoint of `_counterpart`: probabilities of second parts, added to a chart by end [T, B, T]."""
    rows = width - gap - jnp.arange(parts.shape[0])
    return jnp.where((rows >= 0)[:, None, None], jnp.roll(parts[jnp.maximum(rows, 0)], width, axis=2), 0.0)


def _splits(charts: _Charts, width: Array) -> tuple[Array, Array, Array]:
    """The candidates of incomplete spans, of complete R and of complete L of a width, each [K, B, T]."""
    return (
        charts.right_by_start + _counterpart(charts.left_by_end, width, 1),
        charts.incomplete_right_by_start + _counterpart(charts.right_by_end, width, 0),
        charts.left_by_start + _counterpart(charts.incomplete_left_by_end, width, 0),
    )


def _by_width(words: Array) -> tuple[Array, Array]:
    """Scores of arcs by width and start [T, B, T]: those to the right, and those to the left."""
    length = words.shape[1]
    start = jnp.arange(length)[None]
    end = jnp.minimum(start + jnp.arange(length)[:, None], length - 1)
    return words[:, end, start].swapaxes(0, 1), words[:, start, end].swapaxes(0, 1)


def _roots(charts: _Charts, roots: Array, lengths: Array) -> Array:
    """The candidates of the root [T, B]; -inf at padding, except for the first word."""
    word, row, last = _places(roots, lengths)
    after = charts.right_by_end[jnp.maximum(last - word, 0), row, last]
    return jnp.where(word <= last, charts.left_by_start[:, :, 0] + after + roots.T, -jnp.inf)


def _places(roots: Array, lengths: Array) -> tuple[Array, Array, Array]:
    """Indices of words [T, 1], of sentences [1, B], and of the last word of each sentence [1, B]."""
    batch, length = roots.shape
    return jnp.arange(length)[:, None], jnp.arange(batch)[None], jnp.maximum(lengths - 1, 0)[None]


def _inside(words: Array, roots: Array, lengths: Array, add: Sum) -> tuple[_Charts, Array]:
    """All spans, and (+) over the trees [B]; 0 for a sentence without words."""
    batch, length, _ = words.shape
    none = jnp.full((length, batch, length), -jnp.inf, words.dtype)
    one = none.at[0].set(0.0)
    to_right, to_left = _by_width(words)

    def step(width: Array, charts: _Charts) -> _Charts:
        incomplete, _ = add(_splits(charts, width)[0])
        right, left = incomplete + to_right[width], jnp.roll(incomplete + to_left[width], width, 1)
        charts = charts._replace(
            incomplete_right_by_start=charts.incomplete_right_by_start.at[width].set(right),
            incomplete_left_by_end=charts.incomplete_left_by_end.at[width].set(left),
        )
        right, left = (add(candidates)[0] for candidates in _splits(charts, width)[1:])
        return charts._replace(
            right_by_start=charts.right_by_start.at[width].set(right),
            right_by_end=charts.right_by_end.at[width].set(jnp.roll(right, width, 1)),
            left_by_start=charts.left_by_start.at[width].set(left),
            left_by_end=charts.left_by_end.at[width].set(jnp.roll(left, width, 1)),
        )

    charts = jax.lax.fori_loop(1, length, step, _Charts(one, one, one, one, none, none))
    return charts, jnp.where(lengths > 0, add(_roots(charts, roots, lengths))[0], 0.0)


def _outside(words: Array, roots: Array, lengths: Array, charts: _Charts, add: Sum) -> Array:
    """The probability of each arc [B, T, T + 1], from all spans."""
    length = words.shape[1]
    word, row, last = _places(roots, lengths)
    root = jnp.where((lengths > 0)[None], add(_roots(charts, roots, lengths))[1], 0.0)
    zeros = jnp.zeros_like(charts.left_by_start)
    start = _Charts(*(zeros,) * len(charts))._replace(
        left_by_start=zeros.at[:, :, 0].set(root),
        right_by_end=zeros.at[jnp.maximum(last - word, 0), row, last].add(root),
    )

    def step(number: Array, found: _Charts) -> _Charts:
        width = length - number
        incomplete, right, left = (add(candidates)[1] for candidates in _splits(charts, width))
        right = right * (found.right_by_start[width] + jnp.roll(found.right_by_end[width], -width, 1))[None]
        left = left * (found.left_by_start[width] + jnp.roll(found.left_by_end[width], -width, 1))[None]
        found = found._replace(
            incomplete_right_by_start=found.incomplete_right_by_start + right,
            right_by_end=found.right_by_end + _returned(right, width, 0),
            left_by_start=found.left_by_start + left,
            incomplete_left_by_end=found.incomplete_left_by_end + _returned(left, width, 0),
        )
        to_left = jnp.roll(found.incomplete_left_by_end[width], -width, 1)
        incomplete = incomplete * (found.incomplete_right_by_start[width] + to_left)[None]
        return found._replace(
            right_by_start=found.right_by_start + incomplete,
            left_by_end=found.left_by_end + _returned(incomplete, width, 1),
        )

    found = jax.lax.fori_loop(1, length, step, start)
    to_right, to_left = (x.swapaxes(0, 1) for x in (found.incomplete_right_by_start, found.incomplete_left_by_end))
    dependent, head = jnp.arange(length)[:, None], jnp.arange(length)[None]
    distance = jnp.abs(dependent - head)
    between = jnp.where((head < dependent)[None], to_right[:, distance, head], to_left[:, distance, head])
    between = jnp.where((head == dependent)[None], 0.0, between)
    return jnp.concatenate([root.T[:, :, None], between], axis=-1)


@jax.custom_vjp
def _log_normalizer(words: Array, roots: Array, lengths: Array) -> Array:
    return _inside(words, roots, lengths, _log_sum)[1]


def _normalizer_forward(words, roots, lengths):
    charts, total = _inside(words, roots, lengths, _log_sum)
    return total, (words, roots, lengths, charts)


def _normalizer_backward(residuals, cotangent):
    words, roots, lengths, charts = residuals
    marginals = cotangent[:, None, None] * _outside(words, roots, lengths, charts, _log_sum)
    return marginals[:, :, 1:], marginals[:, :, 0], None


_log_normalizer.defvjp(_normalizer_forward, _normalizer_backward)
