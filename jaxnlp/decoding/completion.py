"""Greedy completions of many prompts of different lengths."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxnlp.decoding.generation import Decoder, compile_generation, generate
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.inference.batches import BATCH_SIZES
from jaxnlp.typing import Params

GREEDY = Sampling(temperature=0.0)


def complete(
    decoder: Decoder,
    params: Params,
    prompts: Sequence[np.ndarray],
    *,
    stop: int,
    max_new_tokens: int,
    batch_sizes: Sequence[int] = BATCH_SIZES,
) -> list[np.ndarray]:
    """The greedy continuation of each prompt, up to the stop token.

    Prompts of equal length form batches, so a completion does not depend on other prompts.

    Args:
      decoder: the model's step function and cache.
      params: its parameters.
      prompts: [N] int32 each, of any lengths that `generate` accepts.
      stop: the token after a completion, which is not part of it.
      max_new_tokens: maximum length of a completion, at least 1; also limited by the context.
      batch_sizes: possible numbers of prompts in a batch; a smaller last batch is padded to the smallest that fits.

    Returns:
      A completion for each prompt, [n] int32, n at most `max_new_tokens`.

    Raises: ValueError when max_new_tokens or a batch size is below 1; for a prompt that `generate` rejects.
    """
    for name, value in (("max_new_tokens", max_new_tokens), ("batch_sizes", min(batch_sizes))):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    completions: list[np.ndarray] = [np.zeros(0, np.int32)] * len(prompts)
    for part, size, length in _batches(list(map(len, prompts)), batch_sizes):
        # At the end of the context `generate` would continue with only its newest half, without the prompt.
        room = max_new_tokens if decoder.capacity is None else min(max_new_tokens, decoder.capacity - length + 1)
        rows = [prompts[index] for index in part]
        batch = np.stack(rows + rows[:1] * (size - len(rows)))
        for index, row in zip(part, _until_stop(decoder, params, batch, stop, room), strict=False):
            completions[index] = row
    return completions


def compile_completions(
    compile_ahead: Callable[..., Any],
    decoder: Decoder,
    params: Params,
    lengths: Sequence[int],
    batch_sizes: Sequence[int] = BATCH_SIZES,
) -> None:
    """Starts to compile the programs of `complete` for prompts of these lengths.

    Args: compile_ahead: see `compile_generation`. Others: as for `complete`.
    """
    for _, size, length in _batches(lengths, batch_sizes):
        compile_generation(compile_ahead, decoder, params, size, length, max_new_tokens=1, sampling=GREEDY)


def _batches(lengths: Sequence[int], batch_sizes: Sequence[int]) -> Iterator[tuple[list[int], int, int]]:
    """Batches of prompts of equal length: their indices, the number of rows, and the length."""
    by_length = defaultdict(list)
    for index, length in enumerate(lengths):
        by_length[length].append(index)
    for length, indices in by_length.items():
        for start in range(0, len(indices), max(batch_sizes)):
            part = indices[start : start + max(batch_sizes)]
            yield part, min(size for size in batch_sizes if size >= len(part)), length


def _until_stop(decoder, params, batch, stop, max_new_tokens) -> list[np.ndarray]:
    # Greedy decoding ignores the key.
    key = jax.random.key(0)
    columns = generate(decoder, params, batch, max_new_tokens=max_new_tokens, key=key, sampling=GREEDY, stop=stop)
    rows = np.stack(list(columns), axis=1)
    return [row[: np.argmax(row == stop)] if (row == stop).any() else row for row in rows]
