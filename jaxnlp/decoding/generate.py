"""Autoregressive generation with a key-value cache."""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import jax
import numpy as np

from jaxnlp.decoding.sampling import Sampling, sample
from jaxnlp.nn.cache import KVCache
from jaxnlp.typing import Array, Params, PRNGKey

SMALLEST_BUCKET = 16


@dataclasses.dataclass(frozen=True)
class Decoder:
    """All that generation knows of a model.

    Attributes:
      prepare: parameters as they were trained -> as `read` takes them; done once, before the first token.
      read: (params, tokens [B, T], cache) -> (logits [B, T, V], cache with the T positions added).
      empty_cache: batch size -> a cache with nothing in it.
    """

    prepare: Callable[[Params], Params]
    read: Callable[[Params, Array, KVCache], tuple[Array, KVCache]]
    empty_cache: Callable[[int], KVCache]


def bucket_length(length: int, capacity: int) -> int:
    """The shape that a prompt is padded to: a power of two of at least 16, or the capacity; one compilation each."""
    return min(capacity, max(SMALLEST_BUCKET, 1 << (length - 1).bit_length()))


def generate(
    decoder: Decoder,
    params: Params,
    prompt: np.ndarray,
    *,
    max_new_tokens: int,
    key: PRNGKey,
    sampling: Sampling | None = None,
) -> Iterator[np.ndarray]:
    """Continues prompts, token by token.

    When the context is full, the newest half of it is read again as a prompt and generation goes on: learned positions
    start at 0, so a cache cannot slide. A token thus always sees at least half a context, once there is one.

    Args:
      decoder: the model's step function and cache.
      params: its parameters.
      prompt: [B, N] int32, N from 1 to the context length.
      max_new_tokens: how many to yield, at least 1.
      key: token n is drawn with fold_in(key, n).
      sampling: how tokens are drawn; None = from the whole distribution.

    Returns:
      An iterator over the next token of each row, [B] int32; each is computed when it is asked for.

    Raises:
      ValueError: at the call, for a prompt that is not [B, N] int, is empty, or longer than the context, and for
        max_new_tokens below 1; the message gives the numbers.
    """
    if prompt.ndim != 2 or not np.issubdtype(prompt.dtype, np.integer):
        raise ValueError(f"expected a prompt [B, N] of int, got {prompt.shape} of {prompt.dtype}")
    batch, length = prompt.shape
    cache = decoder.empty_cache(batch)
    capacity = cache.capacity
    if length == 0:
        raise ValueError("the prompt is empty; the model needs at least one token to continue")
    if length > capacity:
        raise ValueError(f"the prompt has {length} tokens, but the model's context holds {capacity}; shorten it")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
    return _tokens(decoder, params, prompt, max_new_tokens, key, sampling or Sampling(), cache)


def _tokens(decoder, params, prompt, max_new_tokens, key, sampling, cache) -> Iterator[np.ndarray]:
    length, capacity = prompt.shape[1], cache.capacity
    params = _prepare(decoder, params)
    history = [prompt[:, i] for i in range(length)]
    filled = 0
    for number in range(max_new_tokens):
        if filled == 0 or filled == capacity:
            kept = length if filled == 0 else max(1, capacity // 2)
            window = np.stack(history[-kept:], axis=1)
            padding = bucket_length(kept, capacity) - kept
            window = np.pad(window, [(0, 0), (0, padding)])
            tokens, cache = _prefill(decoder, sampling, params, window, kept, cache, key, number)
            filled = kept
        else:
            tokens, cache = _decode(decoder, sampling, params, history[-1], cache, key, number)
            filled += 1
        history.append(np.asarray(tokens))
        yield history[-1]


@functools.partial(jax.jit, static_argnums=0)
def _prepare(decoder, params):
    return decoder.prepare(params)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnames="cache")
def _prefill(decoder, sampling, params, window, length, cache, key, number):
    """Reads a padded prompt from position 0; what the padding left in the cache lies behind `length`, unseen."""
    logits, cache = decoder.read(params, window, cache.replace(length=0 * cache.length))
    last = jax.lax.dynamic_index_in_dim(logits, length - 1, axis=1, keepdims=False)
    return sample(last, jax.random.fold_in(key, number), sampling), cache.replace(length=length + 0 * cache.length)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnames="cache")
def _decode(decoder, sampling, params, tokens, cache, key, number):
    logits, cache = decoder.read(params, tokens[:, None], cache)
    return sample(logits[:, 0], jax.random.fold_in(key, number), sampling), cache
