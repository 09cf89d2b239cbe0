"""Beam search: the likeliest continuations of a prompt, as far as N of them at a time can tell.

Of each sequence the search keeps N running hypotheses and the N best that have ended. A step reads the newest token of
each running hypothesis and looks at all N V continuations. Those among the N likeliest that stop have ended; the N
likeliest that do not stop run on. One beam thus follows greedy decoding, and hypotheses are never equal: each
continuation is one hypothesis with one token more, and in the beginning there is one hypothesis alone.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.decoding.generate import (
    Decoder,
    check_capacity,
    check_request,
    pad_to_bucket,
    prepare,
    read_prompt,
)
from jaxnlp.nn.cache import cache_rows
from jaxnlp.ops.top_k import top_k
from jaxnlp.typing import Array, Params, PyTree


class BeamResult(NamedTuple):
    """Continuations of each prompt, best first.

    Of the search itself there are N of each prompt; `beam_search` returns the n_best of them. Where there are fewer
    continuations at all, the last ones have length 0 and score -inf.

    Attributes:
      tokens: [B, N, max_new_tokens] int32; behind a continuation's end the stop token, or -1 if there is none.
      lengths: [B, N] int32, tokens of each continuation; the stop that ends it is one of them.
      scores: [B, N] float32, log-probability in nats, over the length penalty.
    """

    tokens: Array
    lengths: Array
    scores: Array


class _Rules(NamedTuple):
    """What decides a search, besides the model and the prompt; see `beam_search`."""

    num_beams: int
    max_new_tokens: int
    stop: int | None
    no_repeat_ngram: int
    n_best: int


class _Weights(NamedTuple):
    """How hypotheses are ranked; see `beam_search`."""

    length: Array | float
    coverage: Array | float | None


class _Search(NamedTuple):
    """Between two steps; hypotheses with score -inf do not exist."""

    cache: PyTree  # of B N rows: what the running hypotheses' newest tokens follow
    running: BeamResult  # their scores without penalty; all of one length
    ended: BeamResult


def beam_search(
    decoder: Decoder,
    params: Params,
    prompt: np.ndarray,
    *,
    num_beams: int,
    max_new_tokens: int,
    stop: int | None = None,
    length_penalty: float = 0.0,
    coverage_penalty: float = 0.0,
    no_repeat_ngram: int = 0,
    n_best: int | None = None,
    cache: PyTree | None = None,
) -> BeamResult:
    """The best continuations that beam search finds.

    score(Y) = log P(Y | prompt) / ((5 + |Y|) / 6)^alpha + beta sum_s log min(sum_t a_ts, 1)

    a_ts is the weight with which position t attends to token s of the source. The second term is there with a coverage
    penalty alone. It ranks what has ended; which prefixes run on, their log-probabilities decide.

    A continuation ends with its stop token, or is cut at `max_new_tokens`; both are ranked alike. Of equal scores the
    one that ended first comes first; of equally likely tokens the lower is taken, as greedy decoding does. Equal means
    equal in float32, in which log-probabilities are added up.

    The search ends early only when that changes nothing: once `n_best` continuations have ended in each row, and none
    that still runs can come to a better score than the worst of them. Log-probabilities only fall, and the penalty
    divides them by most at the greatest length, so a running one with log-probability s ends at
    s / ((5 + max_new_tokens) / 6)^alpha at best. What may be lost is what beam search loses anyway: prefixes that are
    not among the N likeliest of their length.

    Args:
      decoder: the model's step function and cache. A capacity must hold the prompt and all new tokens but the last.
      params: its parameters.
      prompt: [B, T] int32, of which each row is continued by itself.
      num_beams: N, at least 1; more than V are of use from the second token on.
      max_new_tokens: length at which continuations are cut, at least 1.
      stop: the token that ends a continuation; None = all are cut.
      length_penalty: alpha, at least 0; the greater, the longer are the continuations that win.
      coverage_penalty: beta, at least 0; the greater, the more does it cost to leave tokens of the source unattended.
        Needs a decoder and a cache that count coverage.
      no_repeat_ngram: no continuation contains the same N tokens in a row twice; 0 = any may.
      n_best: how many continuations of each prompt are returned, at most N; the fewer, the sooner the search may end.
        None = N.
      cache: what the model has read before the prompt, such as the text to be translated; None = nothing.

    Raises:
      ValueError: for a prompt or a number that cannot be, or a context that cannot hold them; the message gives them.

    Source: Wu et al. 2016, section 7, eq. 14. Differs: no pruning but that to N. Paulus et al. 2018, section 2.5, for
    n-grams that are not repeated.
    """
    check_request(decoder, prompt, max_new_tokens)
    if num_beams < 1:
        raise ValueError(f"num_beams must be at least 1, got {num_beams}")
    if not 0.0 <= length_penalty < float("inf"):
        raise ValueError(f"length_penalty must be at least 0 and finite, got {length_penalty}")
    if not 0.0 <= coverage_penalty < float("inf"):
        raise ValueError(f"coverage_penalty must be at least 0 and finite, got {coverage_penalty}")
    if coverage_penalty and (decoder.coverage is None or cache is None):
        raise ValueError("coverage_penalty needs a model that attends to a source; set it to 0")
    if no_repeat_ngram < 0:
        raise ValueError(f"no_repeat_ngram must be at least 0, got {no_repeat_ngram}")
    n_best = num_beams if n_best is None else n_best
    if not 1 <= n_best <= num_beams:
        raise ValueError(f"n_best must lie in 1 to num_beams, {num_beams}, got {n_best}")
    check_capacity(decoder, prompt, max_new_tokens)
    params = prepare(decoder, params)
    window, count = pad_to_bucket(decoder, prompt), prompt.shape[1]
    rules = _Rules(num_beams, max_new_tokens, stop, no_repeat_ngram, n_best)
    # Numbers of one type are compiled once; without a coverage penalty it is not computed.
    weights = _Weights(float(length_penalty), float(coverage_penalty) if coverage_penalty else None)
    search, over = _begin(decoder, rules, params, window, count, weights, cache)
    for length in range(2, max_new_tokens + 1):
        if stop is not None and over:
            break
        search, over = _advance(decoder, rules, params, search, length, weights)
    return _ranked(decoder, rules, search, weights)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _begin(decoder, rules, params, window, count, weights, cache):
    """Reads the prompt, once for all beams, and chooses the first tokens."""
    logits, cache = read_prompt(decoder, params, window, count, cache)
    (batch, size), num_beams = logits.shape, rules.num_beams
    blank = -1 if rules.stop is None else rules.stop
    nothing = BeamResult(
        tokens=jnp.full((batch, num_beams, rules.max_new_tokens), blank, jnp.int32),
        lengths=jnp.zeros((batch, num_beams), jnp.int32),
        scores=jnp.full((batch, num_beams), -jnp.inf, jnp.float32),
    )
    # Were there more than one hypothesis without tokens, all would be continued alike.
    running = nothing._replace(scores=nothing.scores.at[:, 0].set(0.0))
    cache = cache_rows(cache, jnp.repeat(jnp.arange(batch), num_beams))
    logits = jnp.broadcast_to(logits[:, None], (batch, num_beams, size))
    return _extend(decoder, rules, _Search(cache, running, nothing), logits, 1, weights)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnames="search")
def _advance(decoder, rules, params, search, length, weights):
    """Reads each running hypothesis' newest token and chooses token number `length`."""
    tokens = search.running.tokens
    newest = jax.lax.dynamic_index_in_dim(tokens, length - 2, axis=2, keepdims=False)
    logits, cache = decoder.read(params, newest.reshape(-1, 1), search.cache, 1)
    logits = logits.reshape(*newest.shape, logits.shape[-1])
    return _extend(decoder, rules, search._replace(cache=cache), logits, length, weights)


def _extend(
    decoder: Decoder, rules: _Rules, search: _Search, logits: Array, length: Array | int, weights: _Weights
) -> tuple[_Search, Array]:
    """Adds token number `length` to each running hypothesis, scored by logits [B, N, V].

    Returns:
      The search, and whether going on would change nothing, [] bool.
    """
    batch, num_beams, size = logits.shape
    chances = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    if rules.no_repeat_ngram:
        repeats = _repeats(search.running.tokens, length, rules.no_repeat_ngram, size)
        chances = jnp.where(repeats, -jnp.inf, chances)
    scores = (search.running.scores[:, :, None] + chances).reshape(batch, num_beams * size)
    going_on, ended = scores, search.ended
    if rules.stop is not None:
        stops = (jnp.arange(num_beams * size) % size == rules.stop)[None]
        going_on = jnp.where(stops, -jnp.inf, scores)
        new, parents = _continuations(search.running, scores, length)
        has_ended = jax.lax.dynamic_index_in_dim(new.tokens, length - 1, axis=2, keepdims=False) == rules.stop
        covered = _coverage(decoder, search.cache, weights, new.scores.shape)
        new_scores = new.scores / _penalty(length, weights.length) + jnp.take_along_axis(covered, parents, axis=1)
        ended = _best(ended, new._replace(scores=jnp.where(has_ended, new_scores, -jnp.inf)))
    running, parents = _continuations(search.running, going_on, length)
    rows = jnp.arange(batch)[:, None] * num_beams + parents
    cache = decoder.reorder(search.cache, rows.reshape(-1))
    within_reach = running.scores[:, 0] / _penalty(running.tokens.shape[-1], weights.length)
    return _Search(cache, running, ended), (ended.scores[:, rules.n_best - 1] >= within_reach).all()


def _repeats(tokens: Array, length: Array | int, size: int, vocabulary_size: int) -> Array:
    """Which tokens would end an n-gram of that size that tokens [B, N, T] contain, of which length - 1 are there.

    Returns: [B, N, V] bool.
    """
    batch, num_beams, longest = tokens.shape
    if size > longest:
        return jnp.zeros((batch, num_beams, vocabulary_size), bool)
    starts = jnp.arange(longest - size + 1)
    same = jnp.broadcast_to(starts + size <= length - 1, (batch, num_beams, len(starts)))
    for place in range(size - 1):  # the last size - 1 tokens, beside those at each start
        last = jax.lax.dynamic_index_in_dim(tokens, length - size + place, axis=2)
        same &= tokens[:, :, place : place + len(starts)] == last
    last_of_each = tokens[:, :, size - 1 :]
    rows = jnp.arange(batch)[:, None, None], jnp.arange(num_beams)[None, :, None]
    return jnp.zeros((batch, num_beams, vocabulary_size), bool).at[*rows, last_of_each].max(same, mode="drop")


def _coverage(decoder: Decoder, cache: PyTree, weights: _Weights, shape: tuple[int, ...]) -> Array:
    """What the coverage penalty adds to each hypothesis, [B, N]."""
    if weights.coverage is None or decoder.coverage is None:
        return jnp.zeros(shape, jnp.float32)
    return weights.coverage * decoder.coverage(cache).reshape(shape)


def _continuations(running: BeamResult, scores: Array, length: Array | int) -> tuple[BeamResult, Array]:
    """The N likeliest of all N V continuations [B, N V] by one token, and whose they are, [B, N]."""
    num_beams = running.scores.shape[1]
    best, places = top_k(scores, num_beams)
    parents, chosen = jnp.divmod(places, scores.shape[1] // num_beams)
    tokens = jnp.take_along_axis(running.tokens, parents[:, :, None], axis=1).at[:, :, length - 1].set(chosen)
    return BeamResult(tokens, jnp.full_like(running.lengths, length), best), parents


def _best(first: BeamResult, second: BeamResult) -> BeamResult:
    """The N best hypotheses of two times N; of equals those of the first.

    Where fewer exist, the blank ones that `ended` began with stay behind them.
    """
    both = BeamResult(*(jnp.concatenate(parts, axis=1) for parts in zip(first, second, strict=True)))
    scores, places = top_k(both.scores, first.scores.shape[1])
    return BeamResult(
        tokens=jnp.take_along_axis(both.tokens, places[:, :, None], axis=1),
        lengths=jnp.take_along_axis(both.lengths, places, axis=1),
        scores=scores,
    )


def _penalty(length: Array | int, length_penalty: Array | float) -> Array:
    return jnp.asarray((5 + length) / 6, jnp.float32) ** length_penalty


@functools.partial(jax.jit, static_argnums=(0, 1))
def _ranked(decoder, rules, search, weights):
    """What has ended and what is cut, best first."""
    running = search.running
    scores = running.scores / _penalty(running.lengths, weights.length)
    scores += _coverage(decoder, search.cache, weights, scores.shape)
    best = _best(search.ended, running._replace(scores=scores))
    return BeamResult(*(part[:, : rules.n_best] for part in best))
