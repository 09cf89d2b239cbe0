"""Random orders of examples, and random numbers of each example, made for many examples at once."""

import functools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from data.pipelines.epochs import keeps_last

Order = Callable[[np.ndarray], np.ndarray]
"""A pure function from increasing indices [N] of an endless sequence to the examples at them [N] int."""
SHUFFLED, CHANGED, BATCH_CHANGED = 1, 3, 5
"""Uses of a run's seed, each with its own seed: the order of examples; their random changes, and those of batches of
changed examples, with the numbers of these steps of a grain pipeline."""
_DRAWN = 128
"""Number of indices whose random numbers are made at once."""


def shuffled_order(count: int, seed: int) -> Order:
    """Each example once an epoch, reshuffled in each. It keeps 4 bytes for each example."""
    first = _seed_of(seed, SHUFFLED)
    examples = np.arange(count, dtype=np.uint32 if count < 2**32 else np.uint64)
    epoch = keeps_last(lambda number: np.random.default_rng((first, number)).permutation(examples))

    def order(indices: np.ndarray) -> np.ndarray:
        numbers, places = np.divmod(indices, count)
        return np.concatenate(
            [epoch(number)[places[numbers == number]] for number in range(numbers[0], numbers[-1] + 1)]
        ).astype(int)

    return order


def generators(seed: int, indices: Iterable[int], step: int = CHANGED) -> Iterator[np.random.Generator]:
    """A generator for each index, with the numbers of grain's `random_map`. It is one object, set to each in turn."""
    generator = np.random.Generator(np.random.Philox(_seed_of(seed, step)))
    state = generator.bit_generator.state
    for index in indices:
        state["state"]["counter"][-1] = index
        generator.bit_generator.state = state
        yield generator


def random_numbers(seed: int, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """A pure function from indices [N] to their own random numbers in [0, 1) [N, count], made for a block of indices at
    once, since a generator for each index takes longer."""
    first = _seed_of(seed, CHANGED)
    block = keeps_last(lambda number: np.random.default_rng((first, number)).random((_DRAWN, count)))

    def numbers(indices: np.ndarray) -> np.ndarray:
        blocks, places = np.divmod(indices, _DRAWN)
        found = np.empty((len(indices), count))
        for number in np.unique(blocks).tolist():
            found[blocks == number] = block(number)[places[blocks == number]]
        return found

    return numbers


@functools.lru_cache
def _seed_of(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0])
