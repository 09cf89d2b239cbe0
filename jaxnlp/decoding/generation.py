"""Autoregressive generation with any model that has a decoding cache."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from jaxnlp.decoding.rows import by_rows, mesh_of, on_host, rows_like, with_rows_for_all
from jaxnlp.decoding.sampling import Sampling, sample
from jaxnlp.nn.cache import cache_rows
from jaxnlp.ops.checks import expect_tokens
from jaxnlp.ops.compiler_options import jit
from jaxnlp.typing import Array, Params, PRNGKey, PyTree

SMALLEST_BUCKET = 16


@dataclasses.dataclass(frozen=True)
class Decoder:
    """The functions of a model that generation uses.

    The cache of the tokens read is a pytree of arrays [B, ...], one row for each sequence, and of scalars for all rows.

    Attributes:
      prepare: trained parameters -> parameters as `read` takes them; called once, before the first token.
      read: (params, tokens [B, T], cache, count) -> (logits [B, T, V], cache). Only the first `count` tokens, [] int
        from 1 to T, are added to the cache; others are padding, with arbitrary logits. A model may return only the
        logits of the last of them, [B, 1, V]. None = all T tokens, with logits.
      empty_cache: batch size -> a cache without tokens. A model that reads a source first has none: each search gets a
        cache of its sources.
      capacity: maximum number of tokens in a cache; None = unlimited.
      vocabulary_size: V, with which prompts are checked; None = prompts are not checked.
      reorder: (cache, rows [B]) -> the cache with `rows[n]` as row n; both rows must have the same source.
      coverage: cache -> the coverage of the source by each row's attention, sum_s log min(sum_t weight_ts, 1), [B];
        None = no attention to a source.
    """

    prepare: Callable[[Params], Params]
    read: Callable[[Params, Array, PyTree, Array | int | None], tuple[Array, PyTree]]
    empty_cache: Callable[[int], PyTree]
    capacity: int | None
    vocabulary_size: int | None = None
    reorder: Callable[[PyTree, Array], PyTree] = cache_rows
    coverage: Callable[[PyTree], Array] | None = None


SMALLEST_CACHE = 256


def decoder_of(model: Any, length: int | None = None) -> Decoder:
    """The step function of a model, the same one for equal models.

    Args:
      model: a Linen module that is called with `tokens, cache=, count=` and has `empty_cache(batch)`, `capacity`,
        `vocabulary_size` and `decoding_params(params)`, all as in `Decoder`. It may have `with_cache_length(length)`:
        the same function with a smaller cache.
      length: of the longest sequence, in tokens, for a smaller cache; rounded up to a power of two, to compile few
        programs. None = the whole context.
    """
    with_cache_length = getattr(model, "with_cache_length", None)
    if length is not None and with_cache_length is not None:
        model = with_cache_length(max(SMALLEST_CACHE, 1 << (length - 1).bit_length()))
    return _decoder_of(model)


@functools.lru_cache(maxsize=8)  # each new decoder compiles its programs again
def _decoder_of(model: Any) -> Decoder:
    return Decoder(
        prepare=model.decoding_params,
        read=lambda params, tokens, cache, count: model.apply({"params": params}, tokens, cache=cache, count=count),
        empty_cache=model.empty_cache,
        capacity=model.capacity,
        vocabulary_size=model.vocabulary_size,
    )


@functools.lru_cache(maxsize=8)
def target_decoder_of(model: Any) -> Decoder:
    """The step function of a model that reads a source first; each search needs a cache from `model.initial_cache`.

    Args:
      model: a Linen module with `advance(params, tokens, cache, count)`, `capacity`, `vocabulary_size`, `reorder`,
        `coverage` and `decoding_params(params)`, all as in `Decoder`.
    """

    def empty_cache(batch: int) -> PyTree:
        raise ValueError(
            f"{type(model).__name__} reads a source first; give the result of its method initial_cache as the cache"
        )

    return Decoder(
        prepare=model.decoding_params,
        read=model.advance,
        empty_cache=empty_cache,
        capacity=model.capacity,
        vocabulary_size=model.vocabulary_size,
        reorder=model.reorder,
        coverage=model.coverage,
    )


def prompt_buckets(capacity: int | None) -> list[int]:
    """The lengths to which prompts are padded, up to the capacity, or up to 1,024 tokens without one."""
    lengths, longest = list[int](), capacity or 1024
    while not lengths or lengths[-1] < longest:
        lengths.append(bucket_length(2 * lengths[-1] if lengths else 1, capacity))
    return lengths


def bucket_length(length: int, capacity: int | None) -> int:
    """The padded length of a prompt, which is compiled once: a power of two of at least 16, or the capacity."""
    bucket = max(SMALLEST_BUCKET, 1 << (length - 1).bit_length())
    return bucket if capacity is None else min(capacity, bucket)


def generate(
    decoder: Decoder,
    params: Params,
    prompt: np.ndarray,
    *,
    max_new_tokens: int,
    key: PRNGKey,
    sampling: Sampling | None = None,
    stop: int | None = None,
    cache: PyTree | None = None,
) -> Iterator[np.ndarray]:
    """Continues prompts token by token.

    When the context is full, generation continues with the newest half of the context as the prompt, because a cache of
    learned positions cannot slide. So a token depends on at least half a context of earlier tokens.

    Args:
      decoder: the model's step function and cache.
      params: its parameters.
      prompt: [B, N] int32, N from 1 to the capacity.
      max_new_tokens: number of tokens to yield, at least 1.
      key: token n is drawn with fold_in(key, n).
      sampling: options; None = from the whole distribution.
      stop: generation ends early when every row has yielded this token; until then all rows continue.
      cache: tokens read before the prompt, such as the source of a translation; None = none. With a cache, the capacity
        must hold the prompt and all new tokens except the last.

    Returns:
      An iterator over the next token of each row, [B] int32, computed on request.

    Raises: ValueError at the call, when the prompt is not [B, N], is empty, is longer than the capacity or has tokens
      outside the vocabulary, or when max_new_tokens is below 1.
    """
    check_request(decoder, prompt, max_new_tokens)
    if cache is not None:
        check_capacity(decoder, prompt, max_new_tokens)
    return _continue(decoder, params, prompt, max_new_tokens, key, sampling or Sampling(), stop, cache)


def compile_generation(
    compile_ahead: Callable[..., Any],
    decoder: Decoder,
    params: Params,
    batch: int,
    length: int,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
) -> None:
    """Starts to compile the programs of `generate` for prompts [B, N], without a cache.

    Args:
      compile_ahead: (jitted function, its arguments) -> its abstract results; starts to compile it.
      decoder, params, max_new_tokens, sampling: as for `generate`.
      batch: B.
      length: N.
    """
    params, sampling, capacity = compile_ahead(prepared, decoder, params), sampling or Sampling(), decoder.capacity
    key, mesh = jax.random.key(0), mesh_of(params)
    filled = [length]
    if capacity is not None and length + max_new_tokens - 1 > capacity:
        filled.append(max(1, capacity // 2))
    for count in filled:
        window = pad_to_bucket(decoder, with_rows_for_all(mesh, np.zeros((batch, count), np.int32)))
        tokens, cache = compile_ahead(_prefill, mesh, decoder, sampling, params, window, count, None, key, 0)
        newest, cache = np.zeros(tokens.shape, tokens.dtype), rows_like(mesh, cache)
        compile_ahead(_decode, mesh, decoder, sampling, params, newest, cache, key, 0)


def check_request(decoder: Decoder, prompt: np.ndarray, max_new_tokens: int) -> None:
    """Raises: ValueError for invalid prompts [B, N] and numbers of tokens; see `generate`."""
    if prompt.ndim != 2 or not np.issubdtype(prompt.dtype, np.integer):
        raise ValueError(f"expected a prompt [B, N] of int, got {prompt.shape} of {prompt.dtype}")
    length = prompt.shape[1]
    if length == 0:
        raise ValueError("the prompt is empty; the model needs at least one token to continue")
    if decoder.capacity is not None and length > decoder.capacity:
        raise ValueError(
            f"the prompt has {length} tokens, but the model's context has only {decoder.capacity}; shorten it"
        )
    if decoder.vocabulary_size is not None:
        expect_tokens(prompt, decoder.vocabulary_size, "the prompt")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
    if max_new_tokens != int(max_new_tokens):
        raise ValueError(f"max_new_tokens must be a whole number, got {max_new_tokens}")


def check_capacity(decoder: Decoder, prompt: np.ndarray, max_new_tokens: int) -> None:
    """Raises: ValueError when the context cannot hold the prompt [B, N] and all new tokens except the last."""
    needed = prompt.shape[1] + max_new_tokens - 1
    if decoder.capacity is not None and needed > decoder.capacity:
        raise ValueError(
            f"the prompt, of length {prompt.shape[1]}, and max_new_tokens, {max_new_tokens}, need a context of "
            f"{needed}, but the model's context has only {decoder.capacity}; ask for fewer, or shorten the prompt"
        )


def _continue(decoder, params, prompt, max_new_tokens, key, sampling, stop, before):
    params, mesh = prepare(decoder, params), mesh_of(params)
    capacity, (rows, length) = decoder.capacity, prompt.shape
    history = list(with_rows_for_all(mesh, prompt).T)
    stopped = np.zeros(len(history[0]), bool)
    cache, filled = None, 0
    for index in range(max_new_tokens):
        if cache is None or filled == capacity:
            filled = length if cache is None else max(1, capacity // 2)
            window = pad_to_bucket(decoder, np.stack(history[-filled:], axis=1))
            cache = None  # frees the old cache before a new one is allocated
            tokens, cache = _prefill(mesh, decoder, sampling, params, window, filled, before, key, index)
        else:
            tokens, cache = _decode(mesh, decoder, sampling, params, history[-1], cache, key, index)
            filled += 1
        history.append(on_host(tokens))
        yield history[-1][:rows]
        if stop is not None:
            stopped |= history[-1] == stop
            if stopped.all():
                return


def pad_to_bucket(decoder: Decoder, prompt: np.ndarray) -> np.ndarray:
    """A prompt [B, N], padded with zeros to its bucket: [B, T]."""
    length = prompt.shape[1]
    return np.pad(prompt, [(0, 0), (0, bucket_length(length, decoder.capacity) - length)])


def prepare(decoder: Decoder, params: Params) -> Params:
    """Parameters as `decoder.read` takes them, copied only if any of them changes."""
    traced = prepared.trace(decoder, params)
    program = traced.jaxpr.jaxpr
    given = dict(zip(map(id, program.invars), jax.tree.leaves(params), strict=True))
    if not all(id(variable) in given for variable in program.outvars):
        return prepared(decoder, params)
    leaves = [given[id(variable)] for variable in program.outvars]
    return jax.device_put(jax.tree.unflatten(jax.tree.structure(traced.out_info), leaves))


@functools.partial(jit, static_argnums=0)
def prepared(decoder: Decoder, params: Params) -> Params:
    """Copies of parameters as `decoder.read` takes them: the program of `prepare`."""
    return decoder.prepare(params)


def read_prompt(
    decoder: Decoder, params: Params, window: Array, count: Array | int, cache: PyTree | None = None
) -> tuple[Array, PyTree]:
    """Reads the first `count` tokens of a padded prompt [B, T], after those in the cache.

    Returns: logits of the next token, [B, V], and the cache.
    """
    cache = decoder.empty_cache(window.shape[0]) if cache is None else cache
    logits, cache = decoder.read(params, window, cache, count)
    newest = count - 1 if logits.shape[1] == window.shape[1] else 0
    return jax.lax.dynamic_index_in_dim(logits, newest, axis=1, keepdims=False), cache


@functools.partial(jit, static_argnums=(0, 1, 2))
def _prefill(mesh, decoder, sampling, params, window, count, before, key, index):
    def of_rows(params, window, count, before, key, index):
        logits, cache = read_prompt(decoder, params, window, count, before)
        return sample(logits, jax.random.fold_in(key, index), sampling), cache

    return by_rows(mesh, of_rows, params, window, count, before, key, index)


@functools.partial(jit, static_argnums=(0, 1, 2), donate_argnames="cache")
def _decode(mesh, decoder, sampling, params, tokens, cache, key, index):
    def of_rows(params, tokens, cache, key, index):
        logits, cache = decoder.read(params, tokens[:, None], cache, 1)
        return sample(logits[:, 0], jax.random.fold_in(key, index), sampling), cache

    return by_rows(mesh, of_rows, params, tokens, cache, key, index)
