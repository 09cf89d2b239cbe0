"""Linear-chain conditional random fields: log-likelihood with its gradient by hand, and marginal probabilities.

`jaxnlp.ops.crf_viterbi` finds the best sequences.

A sequence of labels y_1 ... y_T has the score

    s(y) = start[y_1] + sum_t scores[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]

and the probability exp(s(y)) / Z, where Z is the sum of exp(s) over all C^T sequences. The forward and the backward
recursion sum over what comes before and after a position. With u the scores, start and end added to them at both ends,

    alpha_1 = u_1,   alpha_t[j] = u_t[j] + log sum_i exp(alpha_{t-1}[i] + transitions[i, j])
    beta_T = 0,      beta_t[i]  = log sum_j exp(transitions[i, j] + u_{t+1}[j] + beta_{t+1}[j])

    log Z = log sum_i exp(alpha_T[i])
    P(y_t = i)              = exp(alpha_t[i] + beta_t[i]) / Z
    P(y_t = i, y_{t+1} = j) = exp(alpha_t[i] + transitions[i, j] + u_{t+1}[j] + beta_{t+1}[j]) / Z

The derivative of log Z with respect to a score is a marginal probability. So the gradient of the log-likelihood log
P(y) = s(y) - log Z is

    d / d u_t[i]              [y_t = i] - P(y_t = i)
    d / d transitions[i, j]   sum_t [y_t = i, y_{t+1} = j] - P(y_t = i, y_{t+1} = j)

alpha and beta are kept relative to their maximum at each position, so that scores of 1e4 over long sequences lose no
digits. For transitions within 40 of each other, as trained ones are, sums over labels are products with the matrix
exp(transitions), without underflow. Others, such as -inf, need sums over [B, C, C] in log space.

Sources: Lafferty et al. 2001; Rabiner 1989 for the recursions; Collobert et al. 2011 for the sentence-level
log-likelihood of a network's scores.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array

from jaxnlp.ops.checks import expect, expect_float

LARGEST_SPREAD = 40.0
"""Maximum difference of two transitions for which exp(transitions) is used: e^-40 is far above float32's 1e-38."""


class Chain(NamedTuple):
    """Scores that do not depend on the sequence; -inf forbids a transition, a first or a last label.

    At least one sequence of each length must be allowed: otherwise its probabilities are NaN.

    Attributes:
      transitions: score of label j after label i [C, C].
      start, end: of the first and of the last label [C].
    """

    transitions: Array
    start: Array
    end: Array


def crf_log_likelihood(scores: Array, labels: Array, lengths: Array, chain: Chain) -> Array:
    """log P(labels) of each sequence, see this module's docstring, with the gradient of scores and chain.

    Args:
      scores: of each label at each position [B, T, C], float; values at padding are ignored.
      labels: [B, T] int, in [0, C).
      lengths: [B] int, from 0 to T: the number of real positions, which come first.
      chain: transitions, start and end.

    Returns:
      [B], dtype of scores; 0 for a sequence of length 0. -inf for forbidden labels.

    Raises: ValueError when shapes do not fit.

    >>> chain = Chain(jnp.zeros((2, 2)), jnp.zeros(2), jnp.zeros(2))
    >>> log_likelihood = crf_log_likelihood(jnp.zeros((1, 3, 2)), jnp.zeros((1, 3), int), jnp.array([3]), chain)
    >>> print(jnp.exp(log_likelihood))  # one of 8 equally likely sequences
    [0.125]
    """
    check_chain(scores, lengths, chain)
    expect(labels.shape == scores.shape[:2], "scores [B, T, C] and labels [B, T]", scores=scores, labels=labels)
    unary, valid = with_ends(scores, lengths, chain)
    return _log_likelihood(unary, chain.transitions, labels.swapaxes(0, 1), valid)


def crf_log_normalizer(scores: Array, lengths: Array, chain: Chain) -> Array:
    """log Z of each sequence [B]; 0 for a sequence of length 0. Arguments: as for `crf_log_likelihood`.

    Its gradient is autodiff's.
    """
    check_chain(scores, lengths, chain)
    unary, valid = with_ends(scores, lengths, chain)
    alpha, shifts = _by_transitions(_forward_scan, chain.transitions, unary, valid)
    return jnp.where(valid[0], shifts.sum(axis=0) + jax.nn.logsumexp(alpha[-1], axis=-1), 0.0)


def crf_marginals(scores: Array, lengths: Array, chain: Chain) -> Array:
    """P(y_t = i) of each label at each position [B, T, C]; 0 at padding. Arguments: as for `crf_log_likelihood`."""
    check_chain(scores, lengths, chain)
    unary, valid = with_ends(scores, lengths, chain)
    alpha, _, beta = _by_transitions(_both_scans, chain.transitions, unary, valid)
    return _unary_marginals(alpha, beta, valid).swapaxes(0, 1)


def check_chain(scores: Array, lengths: Array, chain: Chain) -> None:
    """Raises ValueError unless the shapes fit."""
    fits = (
        scores.ndim == 3
        and scores.shape[1] > 0
        and chain.transitions.shape == (scores.shape[2], scores.shape[2])
        and chain.start.shape == chain.end.shape == scores.shape[2:]
        and lengths.shape == scores.shape[:1]
        and jnp.issubdtype(lengths.dtype, jnp.integer)
    )
    expected = "scores [B, T, C] with T at least 1, lengths [B] int, transitions [C, C], start and end [C]"
    expect(fits, expected, scores=scores, lengths=lengths, **chain._asdict())
    expect_float(scores=scores, **chain._asdict())


def with_ends(scores: Array, lengths: Array, chain: Chain) -> tuple[Array, Array]:
    """Scores with start and end added at both ends, 0 at padding [T, B, C]; and whether positions are real [T, B]."""
    batch, length, classes = scores.shape
    position = jnp.arange(length)[:, None]
    valid, last = position < lengths[None], position == lengths[None] - 1
    # Padding may have any values, also NaN, which a product with 0 would pass on.
    unary = jnp.where(valid[:, :, None], scores.swapaxes(0, 1), 0.0)
    unary = unary.at[0].add(jnp.where(valid[0, :, None], chain.start, 0.0).astype(scores.dtype))
    unary = unary + jnp.where(last[:, :, None], chain.end, 0.0).astype(scores.dtype)
    chex.assert_shape((unary, valid), [(length, batch, classes), (length, batch)])
    return unary, valid


class _Sums(NamedTuple):
    """Logarithms of sums over labels, for vectors relative to their maximum.

    Attributes:
      forward: a [B, C] -> log sum_i exp(a[i] + transitions[i, j]), [B, C] over j.
      backward: v [B, C] -> log sum_j exp(transitions[i, j] + v[j]), [B, C] over i.
      pairs: a [T, B, C], v [T, B, C], weights [T, B] -> sum over T and B of the weights times the distribution over
        pairs of labels that is proportional to exp(a[i] + transitions[i, j] + v[j]), [C, C].
    """

    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    pairs: Callable[[Array, Array, Array], Array]


def _by_products(transitions: Array) -> _Sums:
    """With the matrix exp(transitions), relative to the largest."""
    largest = transitions.max()
    matrix = jnp.exp(transitions - largest)
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

    def pairs(a: Array, v: Array, weights: Array) -> Array:
        classes = len(transitions)
        a, v = (jnp.exp(x).reshape(-1, classes) for x in (a, v))
        total = (product(a, matrix) * v).sum(axis=-1)  # at least e^-40, since a and v have an entry of 1
        return matrix * product(a.T, v * (weights.reshape(-1) / total)[:, None])

    return _Sums(
        lambda a: jnp.log(product(jnp.exp(a), matrix)) + largest,
        lambda v: jnp.log(product(jnp.exp(v), matrix.T)) + largest,
        pairs,
    )


def _in_log_space(transitions: Array) -> _Sums:
    """With sums over [B, C, C]."""

    def pairs(a: Array, v: Array, weights: Array) -> Array:
        def step(total: Array, now: tuple[Array, Array, Array]) -> tuple[Array, None]:
            a, v, weight = now
            joint = a[:, :, None] + transitions[None] + v[:, None]
            # Where a weight is 0, as at padding, all pairs may be forbidden: their distribution would be NaN.
            joint = jnp.where((weight != 0)[:, None, None], joint, 0.0)
            share = jax.nn.softmax(joint.reshape(len(a), -1), axis=-1).reshape(joint.shape)
            return total + jnp.einsum("bij,b->ij", share, weight), None

        return jax.lax.scan(step, jnp.zeros_like(transitions), (a, v, weights))[0]

    return _Sums(
        lambda a: _log_sum(a[:, :, None] + transitions[None], axis=1),
        lambda v: _log_sum(transitions[None] + v[:, None], axis=2),
        pairs,
    )


def _log_sum(x: Array, axis: int) -> Array:
    """log sum exp(x) over an axis; -inf, with gradient 0, where all are -inf: logsumexp has NaN there."""
    some = x.max(axis=axis, keepdims=True) > -jnp.inf
    return jnp.where(some.squeeze(axis), jax.nn.logsumexp(jnp.where(some, x, 0.0), axis=axis), -jnp.inf)


def _by_transitions(function: Callable, transitions: Array, *arrays: Array):
    """`function` of the sums and the arrays; the transitions decide how to compute the sums."""
    spread = transitions.max() - transitions.min()
    return jax.lax.cond(
        spread <= LARGEST_SPREAD,
        lambda t, *rest: function(_by_products(t), *rest),
        lambda t, *rest: function(_in_log_space(t), *rest),
        *(transitions, *arrays),
    )


def _relative(x: Array) -> tuple[Array, Array]:
    """Vectors [..., C] relative to their maximum, and the maximum [...]."""
    largest = x.max(axis=-1)
    return x - largest[..., None], largest


def _forward_step(sums: _Sums, alpha: Array, unary: Array, valid: Array) -> tuple[Array, Array]:
    """alpha at the next position [B, C], and its maximum [B]; unchanged, and 0, at padding."""
    # Nothing may follow the last label of some chains: at padding, the maximum would be -inf, and the gradient NaN.
    before = jnp.where(valid[:, None], alpha, 0.0)
    new, shift = _relative(sums.forward(before) + unary)
    return jnp.where(valid[:, None], new, alpha), jnp.where(valid, shift, 0.0)


def _forward_scan(sums: _Sums, unary: Array, valid: Array) -> tuple[Array, Array]:
    """The last alpha [1, B, C], and the subtracted maxima [T, B]."""
    first, shift = _relative(unary[0])

    def step(alpha: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        return _forward_step(sums, alpha, *now)

    alpha, shifts = jax.lax.scan(step, first, (unary[1:], valid[1:]))
    return alpha[None], jnp.concatenate([jnp.where(valid[0], shift, 0.0)[None], shifts])


def _both_scans(sums: _Sums, unary: Array, valid: Array) -> tuple[Array, Array, Array]:
    """alpha [T, B, C], the maxima subtracted from it [T, B], and beta [T, B, C], by one loop."""
    first, shift = _relative(unary[0])
    last = jnp.zeros_like(first)

    def step(carry: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        alpha, beta = carry
        unary, valid, later_unary, later_valid = now
        alpha, shift = _forward_step(sums, alpha, unary, valid)
        v, _ = _relative(later_unary + beta)
        beta = jnp.where(later_valid[:, None], _relative(sums.backward(v))[0], beta)
        return (alpha, beta), (alpha, shift, beta)

    rest = (unary[1:], valid[1:])
    reverse = tuple(jnp.flip(x, axis=0) for x in rest)
    _, (alpha, shifts, beta) = jax.lax.scan(step, (first, last), (*rest, *reverse))
    alpha = jnp.concatenate([first[None], alpha])
    beta = jnp.concatenate([jnp.flip(beta, axis=0), last[None]])
    return alpha, jnp.concatenate([jnp.where(valid[0], shift, 0.0)[None], shifts]), beta


def _unary_marginals(alpha: Array, beta: Array, valid: Array) -> Array:
    return jnp.where(valid[:, :, None], jax.nn.softmax(alpha + beta, axis=-1), 0.0)


def _scores_on_path(unary: Array, transitions: Array, labels: Array, valid: Array) -> Array:
    """The part of each position in the score of the labels [T, B]; 0 at padding."""
    emitted = jnp.take_along_axis(unary, labels[:, :, None], axis=-1)[..., 0]
    moved = jnp.pad(transitions[labels[:-1], labels[1:]], ((1, 0), (0, 0)))
    return jnp.where(valid, emitted + moved, 0.0)


def _difference(on_path: Array, shifts: Array, last_alpha: Array, valid: Array) -> Array:
    """log P [B]; both sums are subtracted position by position, since each may be large."""
    log_likelihood = (on_path - shifts).sum(axis=0) - jax.nn.logsumexp(last_alpha, axis=-1)
    return jnp.where(valid[0], log_likelihood, 0.0)


@jax.custom_vjp
def _log_likelihood(unary, transitions, labels, valid):
    alpha, shifts = _by_transitions(_forward_scan, transitions, unary, valid)
    return _difference(_scores_on_path(unary, transitions, labels, valid), shifts, alpha[-1], valid)


def _likelihood_forward(unary, transitions, labels, valid):
    alpha, shifts, beta = _by_transitions(_both_scans, transitions, unary, valid)
    log_likelihood = _difference(_scores_on_path(unary, transitions, labels, valid), shifts, alpha[-1], valid)
    return log_likelihood, (unary, transitions, labels, valid, alpha, beta)


def _likelihood_backward(residuals, cotangent):
    unary, transitions, labels, valid, alpha, beta = residuals
    classes = transitions.shape[0]
    real = valid.astype(unary.dtype)
    chosen = jax.nn.one_hot(labels, classes, dtype=unary.dtype) * real[:, :, None]
    dunary = cotangent[None, :, None] * (chosen - _unary_marginals(alpha, beta, valid))
    if len(unary) == 1:
        return dunary, jnp.zeros_like(transitions), None, None
    weights = cotangent[None] * real[1:]
    v, _ = _relative(unary[1:] + beta[1:])
    expected = _by_transitions(lambda sums, *rest: sums.pairs(*rest), transitions, alpha[:-1], v, weights)
    used = jnp.einsum(
        "tbi,tbj,tb->ij", chosen[:-1], chosen[1:], weights, precision=jax.lax.Precision.HIGHEST, optimize="optimal"
    )
    chex.assert_shape((expected, used), (classes, classes))
    return dunary, (used - expected).astype(transitions.dtype), None, None


_log_likelihood.defvjp(_likelihood_forward, _likelihood_backward)
