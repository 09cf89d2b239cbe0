"""Beam search for the most probable continuations of a prompt.

The search keeps N running hypotheses for each sequence, and the N best finished ones. A step scores all N V
continuations by one token. Those with a stop token among the N most probable ones are finished; the N most probable
ones without it are the next running hypotheses. So one beam is greedy decoding. No two hypotheses are equal, because
the search starts with a single empty one, and continuations differ in prefix or last token.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.decoding.generation import (
    Decoder,
    check_capacity,
    check_request,
    pad_to_bucket,
    prepare,
    prepared,
    read_prompt,
)
from jaxnlp.decoding.rows import by_rows, mesh_of, on_host, rows_like, with_rows_for_all
from jaxnlp.nn.cache import cache_rows
from jaxnlp.ops.compiler_options import jit
from jaxnlp.ops.largest import top_k
from jaxnlp.text.generation_constraints import UNCONSTRAINED, GenerationConstraints
from jaxnlp.typing import Array, Params, PyTree


class BeamResult(NamedTuple):
    """Continuations of each prompt, best first: NumPy arrays.

    Entries without a continuation have length 0 and score -inf. `beam_search` returns n_best instead of N.

    Attributes:
      tokens: [B, N, max_new_tokens] int32; each continuation is padded with the stop token, or with -1 without one.
      lengths: [B, N] int32, the number of tokens in each continuation, including its stop token.
      scores: [B, N] float32, as `beam_search` defines them.
    """

    tokens: Any
    lengths: Any
    scores: Any


class _Rules(NamedTuple):
    """Static options: each combination is compiled separately; see `beam_search`."""

    num_beams: int
    max_new_tokens: int
    stop: int | None
    no_repeat_ngram: int
    n_best: int
    constraints: GenerationConstraints = UNCONSTRAINED


class _Settings(NamedTuple):
    """Options that are inputs of the compiled programs; see `beam_search`."""

    length_penalty: Array | float
    length_offset: Array | float
    coverage_penalty: Array | float | None
    max_lengths: Array | np.ndarray


class _Search(NamedTuple):
    """State between two steps; entries with score -inf are empty."""

    cache: PyTree  # B N rows: all tokens of the running hypotheses except the newest
    running: BeamResult  # log-probabilities without penalties; all hypotheses have the same length
    finished: BeamResult


def beam_search(
    decoder: Decoder,
    params: Params,
    prompt: np.ndarray,
    *,
    num_beams: int,
    max_new_tokens: int,
    stop: int | None = None,
    length_penalty: float = 0.0,
    length_offset: float = 5.0,
    coverage_penalty: float = 0.0,
    no_repeat_ngram: int = 0,
    n_best: int | None = None,
    constraints: GenerationConstraints = UNCONSTRAINED,
    max_lengths: np.ndarray | None = None,
    cache: PyTree | None = None,
) -> BeamResult:
    """The best continuations of each prompt by beam search.

    score(Y) = log P(Y | prompt) / ((o + |Y|) / (o + 1))^alpha + beta sum_s log min(sum_t a_ts, 1)

    a_ts is the attention weight of target position t on source token s; the second term needs a coverage penalty.
    Scores rank finished hypotheses, log-probabilities running ones.

    A continuation is finished when it ends with the stop token, or at its maximum length; both are ranked alike. Of
    equal scores (in float32), the hypothesis that finished first comes first; of equally probable tokens the lower one,
    as in greedy decoding.

    The search stops early only if the result stays the same: each row has `n_best` finished hypotheses, and no running
    one can reach a better score. Log-probabilities only decrease, and the penalty reduces them most at the maximum
    length, so a running hypothesis with log-probability s reaches at most s / ((o + maximum length) / (o + 1))^alpha.

    Args:
      decoder: the model's step function and cache, with capacity for the prompt and all new tokens except the last.
      params: the model's parameters.
      prompt: [B, T] int32; each row is continued independently.
      num_beams: N, at least 1.
      max_new_tokens: maximum length of all continuations, at least 1.
      stop: the token that ends a continuation; None = all continuations are truncated.
      length_penalty: alpha, at least 0; larger values favour longer continuations.
      length_offset: o, at least 0: 5 in Wu et al. 2016, 0 in Transformers.
      coverage_penalty: beta, at least 0; larger values penalise unattended source tokens more. Needs a decoder and a
        cache that count coverage.
      no_repeat_ngram: size of the n-grams that no continuation may contain twice; 0 = no restriction.
      n_best: number of continuations to return for each prompt, at most N; fewer may stop the search earlier. None = N.
      constraints: on each continuation, whose end symbol is the stop token.
      max_lengths: [B] int, the maximum length of each row's continuations, from 1 to `max_new_tokens`, without another
        compilation for other values; None = `max_new_tokens`.
      cache: tokens read before the prompt, such as the source of a translation; None = none.

    Raises: ValueError when a prompt or an option is invalid, or the context is too short.

    Source: Wu et al. 2016, section 7, eq. 14; Paulus et al. 2018, section 2.5, for n-grams. Differs: hypotheses are
    pruned only to N, not by score.
    """
    check_request(decoder, prompt, max_new_tokens)
    if num_beams < 1:
        raise ValueError(f"num_beams must be at least 1, got {num_beams}")
    if not 0.0 <= length_penalty < float("inf"):
        raise ValueError(f"length_penalty must be at least 0 and finite, got {length_penalty}")
    if not 0.0 <= length_offset < float("inf"):
        raise ValueError(f"length_offset must be at least 0 and finite, got {length_offset}")
    if not 0.0 <= coverage_penalty < float("inf"):
        raise ValueError(f"coverage_penalty must be at least 0 and finite, got {coverage_penalty}")
    if coverage_penalty and (decoder.coverage is None or cache is None):
        raise ValueError("coverage_penalty needs a model that attends to a source; set it to 0")
    if no_repeat_ngram < 0:
        raise ValueError(f"no_repeat_ngram must be at least 0, got {no_repeat_ngram}")
    n_best = num_beams if n_best is None else n_best
    if not 1 <= n_best <= num_beams:
        raise ValueError(f"n_best must be from 1 to num_beams, which is {num_beams}, got {n_best}")
    limits = np.full(len(prompt), max_new_tokens) if max_lengths is None else np.asarray(max_lengths)
    if limits.shape != (len(prompt),) or not np.issubdtype(limits.dtype, np.integer):
        raise ValueError(f"expected max_lengths [{len(prompt)}] of int, got {limits.shape} of {limits.dtype}")
    if not ((limits >= 1) & (limits <= max_new_tokens)).all():
        raise ValueError(
            f"max_lengths must be in 1 to max_new_tokens, {max_new_tokens}, got {limits.min()} to {limits.max()}"
        )
    check_capacity(decoder, prompt, max_new_tokens)
    params, mesh, rows = prepare(decoder, params), mesh_of(params), len(prompt)
    prompt, limits = with_rows_for_all(mesh, prompt), with_rows_for_all(mesh, limits)
    if constraints.forced_eos and stop is None:
        raise ValueError("forced_eos needs a stop token; give stop")
    rules = _Rules(num_beams, max_new_tokens, stop, no_repeat_ngram, n_best, constraints)
    # All numbers have one type, so that they share one program. Without a penalty, coverage is not computed.
    settings = _Settings(
        float(length_penalty),
        float(length_offset),
        float(coverage_penalty) if coverage_penalty else None,
        limits.astype(np.int32),
    )
    earlier, last = prompt[:, :-1], prompt[:, -1]
    if earlier.size:
        cache = _read(mesh, decoder, params, pad_to_bucket(decoder, earlier), earlier.shape[1], cache)
    search = _start(mesh, decoder, rules, last, cache)
    for length in range(1, int(limits.max()) + 1):
        search, over = _advance(mesh, decoder, rules, params, search, last, length, settings)
        if stop is not None and on_host(over).all():
            break
    return BeamResult(*(on_host(part)[:rows, :n_best] for part in search.finished))


def compile_beam_search(
    compile_ahead: Callable[..., Any],
    decoder: Decoder,
    params: Params,
    batch: int,
    *,
    num_beams: int,
    max_new_tokens: int,
    stop: int | None,
    coverage: bool,
    no_repeat_ngram: int,
    n_best: int,
    cache: PyTree,
    constraints: GenerationConstraints = UNCONSTRAINED,
) -> None:
    """Starts to compile the programs of `beam_search` for prompts of one token, [B, 1].

    Args:
      compile_ahead: (jitted function, its arguments) -> its abstract results; starts to compile it.
      decoder, params, num_beams, max_new_tokens, stop, no_repeat_ngram, n_best, constraints: as for `beam_search`.
      batch: B, a multiple of the devices that share the rows.
      coverage: whether there is a coverage penalty.
      cache: abstract.
    """
    rules = _Rules(num_beams, max_new_tokens, stop, no_repeat_ngram, n_best, constraints)
    settings = _Settings(0.0, 0.0, 0.0 if coverage else None, np.ones(batch, np.int32))
    last, mesh = np.zeros(batch, np.int32), mesh_of(params)
    params = compile_ahead(prepared, decoder, params)
    search = rows_like(mesh, compile_ahead(_start, mesh, decoder, rules, last, cache))
    compile_ahead(_advance, mesh, decoder, rules, params, search, last, 1, settings)


@functools.partial(jit, static_argnums=(0, 1))
def _read(mesh, decoder, params, window, count, cache):
    """The cache with the first `count` tokens of a padded prompt."""

    def of_rows(params, window, count, cache):
        return read_prompt(decoder, params, window, count, cache)[1]

    return by_rows(mesh, of_rows, params, window, count, cache)


@functools.partial(jit, static_argnums=(0, 1, 2))
def _start(mesh, decoder, rules, last, cache):
    """The search before the first token: one empty hypothesis. Several would have the same continuations."""

    def of_rows(_, last, cache):
        batch, num_beams = len(last), rules.num_beams
        empty = BeamResult(
            tokens=jnp.full(
                (batch, num_beams, rules.max_new_tokens), -1 if rules.stop is None else rules.stop, jnp.int32
            ),
            lengths=jnp.zeros((batch, num_beams), jnp.int32),
            scores=jnp.full((batch, num_beams), -jnp.inf, jnp.float32),
        )
        running = empty._replace(scores=empty.scores.at[:, 0].set(0.0))
        cache = decoder.empty_cache(batch) if cache is None else cache
        return _Search(cache_rows(cache, jnp.repeat(jnp.arange(batch), num_beams)), running, empty)

    return by_rows(mesh, of_rows, (), last, cache)


@functools.partial(jit, static_argnums=(0, 1, 2), donate_argnames="search")
def _advance(mesh, decoder, rules, params, search, last, length, settings):
    """Reads the newest token of each running hypothesis, and chooses token number `length`. `last` [B] ends the
    prompt."""

    def of_rows(params, search, last, length, settings):
        tokens = search.running.tokens
        newest = jax.lax.dynamic_index_in_dim(tokens, jnp.maximum(length - 2, 0), axis=2, keepdims=False)
        newest = jnp.where(length == 1, last[:, None], newest)
        logits, cache = decoder.read(params, newest.reshape(-1, 1), search.cache, 1)
        logits = logits.reshape(*newest.shape, logits.shape[-1])
        return _extend(decoder, rules, search._replace(cache=cache), logits, length, settings)

    return by_rows(mesh, of_rows, params, search, last, length, settings)


def _extend(
    decoder: Decoder, rules: _Rules, search: _Search, logits: Array, length: Array | int, settings: _Settings
) -> tuple[_Search, Array]:
    """Adds token number `length` to each running hypothesis, given logits [B, N, V].

    Returns:
      The search, and whether further steps would not change a row's result, [B] bool.
    """
    (batch, num_beams, size), constraints = logits.shape, rules.constraints
    logits = logits.astype(jnp.float32)
    normalisers = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    if rules.no_repeat_ngram:
        repeats = _repeats(search.running.tokens, length, rules.no_repeat_ngram, size)
        logits = jnp.where(repeats, -jnp.inf, logits)
    if constraints.suppressed_tokens:
        logits = logits.at[:, :, jnp.array(constraints.suppressed_tokens)].set(-jnp.inf)
    if constraints.min_length and rules.stop is not None:
        stopped = jnp.arange(size) == rules.stop
        logits = jnp.where(stopped & jnp.asarray(length <= constraints.min_length), -jnp.inf, logits)
    if constraints.forced_bos is not None:
        logits, normalisers = _forced(logits, normalisers, constraints.forced_bos, jnp.asarray(length == 1))
    if constraints.forced_eos and rules.stop is not None:
        logits, normalisers = _forced(logits, normalisers, rules.stop, jnp.asarray(length >= settings.max_lengths))
    if constraints.renormalize:
        normalisers = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    # The N best continuations are among the N best of each hypothesis, with or without the stop token.
    likely, tokens = top_k(logits, min(size, num_beams + (rules.stop is not None)))
    scores = search.running.scores[:, :, None] + (likely - normalisers)
    covered = _coverage(decoder, search.cache, settings, (batch, num_beams))

    def finish(hypotheses: BeamResult, parents: Array, where: Array) -> BeamResult:
        final = hypotheses.scores / _penalty(length, settings)
        final += jnp.take_along_axis(covered, parents, axis=1)
        return hypotheses._replace(scores=jnp.where(where, final, -jnp.inf))

    finished = [search.finished]
    unstopped = scores
    if rules.stop is not None:
        new, parents = _continuations(search.running, scores, tokens, length)
        last = jax.lax.dynamic_index_in_dim(new.tokens, length - 1, axis=2, keepdims=False)
        finished.append(finish(new, parents, last == rules.stop))
        unstopped = jnp.where(tokens == rules.stop, -jnp.inf, scores)
    running, parents = _continuations(search.running, unstopped, tokens, length)
    truncated = jnp.asarray(length >= settings.max_lengths)[:, None]
    finished.append(finish(running, parents, truncated))
    running = running._replace(scores=jnp.where(truncated, -jnp.inf, running.scores))
    best = _best(finished)
    rows = jnp.arange(batch)[:, None] * num_beams + parents
    cache = decoder.reorder(search.cache, rows.reshape(-1))
    bound = running.scores[:, 0] / _penalty(settings.max_lengths, settings)
    return _Search(cache, running, best), best.scores[:, rules.n_best - 1] >= bound


def _forced(logits: Array, normalisers: Array, token: int, where: Array) -> tuple[Array, Array]:
    """The logits [B, N, V] and normalisers [B, N, 1]: in the rows `where`, [B] or [], this token has probability 1."""
    where = jnp.reshape(where, (-1, 1, 1))
    only = jnp.where(jnp.arange(logits.shape[-1]) == token, 0.0, -jnp.inf)[None, None]
    return jnp.where(where, only, logits), jnp.where(where, 0.0, normalisers)


def _repeats(tokens: Array, length: Array | int, size: int, vocabulary_size: int) -> Array:
    """Whether each token, as number `length`, would repeat an n-gram of this size in tokens [B, N, T]: [B, N, V]."""
    batch, num_beams, positions = tokens.shape
    if size > positions:
        return jnp.zeros((batch, num_beams, vocabulary_size), bool)
    starts = jnp.arange(positions - size + 1)
    same = jnp.broadcast_to(starts + size <= length - 1, (batch, num_beams, len(starts)))
    for offset in range(size - 1):  # compare the last size - 1 tokens with those from each start
        last = jax.lax.dynamic_index_in_dim(tokens, length - size + offset, axis=2)
        same &= tokens[:, :, offset : offset + len(starts)] == last
    last_of_each = tokens[:, :, size - 1 :]
    rows = jnp.arange(batch)[:, None, None], jnp.arange(num_beams)[None, :, None]
    return jnp.zeros((batch, num_beams, vocabulary_size), bool).at[*rows, last_of_each].max(same, mode="drop")


def _coverage(decoder: Decoder, cache: PyTree, settings: _Settings, shape: tuple[int, ...]) -> Array:
    """The coverage term of each hypothesis' score, [B, N]."""
    if settings.coverage_penalty is None or decoder.coverage is None:
        return jnp.zeros(shape, jnp.float32)
    return settings.coverage_penalty * decoder.coverage(cache).reshape(shape)


def _continuations(running: BeamResult, scores: Array, tokens: Array, length: Array | int) -> tuple[BeamResult, Array]:
    """The N most probable of continuations [B, N, C] by one token each, and the indices of their parents [B, N]."""
    batch, num_beams, choices = scores.shape
    best, indices = top_k(scores.reshape(batch, num_beams * choices), num_beams)
    parents = indices // choices
    chosen = jnp.take_along_axis(tokens.reshape(batch, num_beams * choices), indices, axis=1)
    longer = jnp.take_along_axis(running.tokens, parents[:, :, None], axis=1).at[:, :, length - 1].set(chosen)
    return BeamResult(longer, jnp.full_like(running.lengths, length), best), parents


def _best(groups: Sequence[BeamResult]) -> BeamResult:
    """The N best hypotheses of groups of N; of equal scores, those of earlier groups.

    The first group starts with N empty hypotheses, which come before other groups' empty ones with tokens and a length.
    """
    joined = BeamResult(*(jnp.concatenate(parts, axis=1) for parts in zip(*groups, strict=True)))
    scores, indices = top_k(joined.scores, groups[0].scores.shape[1])
    return BeamResult(
        tokens=jnp.take_along_axis(joined.tokens, indices[:, :, None], axis=1),
        lengths=jnp.take_along_axis(joined.lengths, indices, axis=1),
        scores=scores,
    )


def _penalty(length: Array | np.ndarray | int, settings: _Settings) -> Array:
    offset = settings.length_offset
    return ((offset + jnp.asarray(length, jnp.float32)) / (offset + 1.0)) ** settings.length_penalty
