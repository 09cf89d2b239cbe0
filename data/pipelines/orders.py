"""Random orders of examples, and random numbers of each example: those of grain, made for many examples together.

Grain shuffles one index at a time. The fewer examples there are, the longer this takes: 5 to 15 microseconds each.
"""

import functools
from collections.abc import Callable, Iterable, Iterator

import grain
import numpy as np

from data.pipelines.epochs import keeps_last

Order = Callable[[np.ndarray], np.ndarray]
"""A pure function from indices [N] of an endless sequence, in increasing order, to the examples at them [N] int."""
SHUFFLED, CHANGED, BATCH_CHANGED = 1, 3, 5
"""Steps of a grain pipeline from its seed on, which give each a seed of its own: its shuffle; its random change of
examples; and that of batches of changed examples."""
_BLOCK = 2**16
"""Number of indices that the cipher permutes; grain has larger ones for more examples."""
_DRAWN = 128
"""Number of indices whose random numbers are made together."""
_HALF = np.arange(256, dtype=np.uint8)
_ROUND = (_HALF << 1 | _HALF >> 7) & _HALF ^ (_HALF << 2 | _HALF >> 6)


def shuffled_order(count: int, seed: int) -> Order:
    """Each example once an epoch, in another order in each: that of grain's `seed(seed).shuffle().repeat()`."""
    if count > _BLOCK:
        examples = grain.MapDataset.range(count).seed(seed).shuffle()
        return lambda indices: np.array([examples[index] for index in indices.tolist()])
    first = _seed_of(seed, SHUFFLED)
    epoch = keeps_last(lambda number: _permutation(count, (first + number) % 2**32))

    def order(indices: np.ndarray) -> np.ndarray:
        numbers, places = np.divmod(indices, count)
        return np.concatenate(
            [epoch(number)[places[numbers == number]] for number in range(numbers[0], numbers[-1] + 1)]
        )

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
    """A pure function from indices [N] to random numbers in [0, 1) of their own [N, count].

    The numbers are made for a block of indices at once: to make a generator for each index takes longer.
    """
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


def _permutation(count: int, seed: int) -> np.ndarray:
    """Grain's order of at most 2**16 examples [count].

    A cipher permutes the indices of a block. It is applied again to a result that is not the index of an example.

    Source: Black and Rogaway 2002 for the repetition; Beaulieu et al. 2013 for the cipher, Simon, with four rounds.
    """
    left, right = np.divmod(np.arange(_BLOCK), 256)
    for one, other in np.array(_round_keys(seed)).reshape(2, 2) % 256:
        left ^= _ROUND[right] ^ one
        right ^= _ROUND[left] ^ other
    after = 256 * left + right
    while (after[:count] >= count).any():  # each pass doubles the number of repetitions
        after = np.where(after < count, after, after[after])
    return after[:count]


def _round_keys(seed: int) -> list[int]:
    """Four numbers of C++'s `std::seed_seq` for a seed below 2**32.

    Source: ISO C++, [rand.util.seedseq].
    """

    def mixed(factor: int, value: int) -> int:
        value %= 2**32
        return factor * (value ^ value >> 27) % 2**32

    keys = [0x8B8B8B8B] * 4
    for k, added in enumerate((1, 1 + seed, 2, 3)):
        one = mixed(1664525, keys[k] ^ keys[k - 3] ^ keys[k - 1])
        keys[k - 3] = (keys[k - 3] + one) % 2**32
        keys[k] = (one + added) % 2**32
        keys[k - 2] = (keys[k - 2] + keys[k]) % 2**32
    for k in range(4):
        one = mixed(1566083941, keys[k] + keys[k - 3] + keys[k - 1])
        keys[k - 3] ^= one
        keys[k] = (one - k) % 2**32
        keys[k - 2] ^= keys[k]
    return keys
