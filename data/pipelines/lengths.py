"""The lengths of batches: multiples of a number, or few lengths where programs compile slowly."""

import bisect
from collections.abc import Sequence

import numpy as np

MOST_LENGTHS = 3
"""Maximum number of lengths that `few_lengths` chooses."""


def fitting(length: int, lengths: Sequence[int]) -> int:
    """The first of increasing lengths that is at least this one; the last one always must be."""
    return lengths[bisect.bisect_left(lengths, length)]


def multiples(examples: Sequence[int], most: int, multiple: int, *, few: bool | None) -> tuple[int, ...]:
    """The lengths of batches of examples: multiples, up to the longest example.

    >>> multiples([3, 17], 128, 8, few=False)
    (8, 16, 24)
    >>> multiples([3, 17], 128, 8, few=True)
    (24,)

    Args:
      examples: lengths of all examples, of all splits; at least one.
      most: maximum length of a batch and of an example; need not be a multiple.
      multiple: of the lengths.
      few: whether all batches have the last length.
    """
    last = min(-(-max(examples) // multiple) * multiple, most)
    return (last,) if few else (*range(multiple, last, multiple), last)


def up_to(longest: int, lengths: tuple[int, ...], examples: Sequence[int], *, few: bool | None) -> tuple[int, ...]:
    """The lengths of batches up to the first one that fits the longest example.

    >>> up_to(30, (8, 16, 32, 64), [3, 17], few=False)
    (8, 16, 32)

    Args:
      longest: maximum length of an example of any epoch and split.
      lengths: increasing lengths.
      examples: lengths of training examples.
      few: whether to replace more than `MOST_LENGTHS` lengths by few lengths for these examples.
    """
    lengths = lengths[: bisect.bisect_left(lengths, longest) + 1]
    return few_lengths(examples, lengths[-1]) if few and len(lengths) > MOST_LENGTHS else lengths


def few_lengths(
    examples: Sequence[int], longest: int, *, most: int = MOST_LENGTHS, multiple: int = 8
) -> tuple[int, ...]:
    """At most `most` lengths of batches with the least padding.

    The exact optimum, by dynamic programming over the distinct lengths. Batches have about the same number of tokens,
    so the cost of an example is the length of its batch.

    >>> few_lengths([5, 5, 5, 8, 30, 31, 32], 64, most=3, multiple=4)
    (8, 32, 64)

    Args:
      examples: lengths of training examples, at least one, none above `longest`.
      longest: the last length, for evaluation or a later epoch.
      most: maximum number of lengths.
      multiple: lengths are multiples of this, except `longest`.
    """
    rounded = np.minimum(-(-np.asarray([*examples, longest]) // multiple) * multiple, longest)
    lengths, counts = np.unique(rounded, return_counts=True)
    until = np.cumsum(counts)
    # cost[j]: of the shortest examples, up to lengths[j], in batches of k lengths whose last one is lengths[j].
    cost, choices = until * lengths, list[np.ndarray]()
    for _ in range(min(most, len(lengths)) - 1):
        longer = cost[:, None] + (until[None, :] - until[:, None]) * lengths[None, :]
        longer[np.tril_indices(len(lengths))] = np.iinfo(np.int64).max
        choices.append(np.where(longer.min(axis=0) < cost, longer.argmin(axis=0), -1))
        cost = np.minimum(cost, longer.min(axis=0))
    chosen, last = [int(lengths[-1])], len(lengths) - 1
    for choice in reversed(choices):
        if choice[last] >= 0:
            last = int(choice[last])
            chosen.append(int(lengths[last]))
    return tuple(reversed(chosen))
