"""Few lengths of batches, chosen from the data, for devices on which each program takes long to compile."""

from collections.abc import Sequence

import numpy as np

MOST_LENGTHS = 3
"""Maximum number of lengths, but for one more if a length is for evaluation only."""


def few_lengths(
    examples: Sequence[int], longest: int, *, most: int = MOST_LENGTHS, multiple: int = 8
) -> tuple[int, ...]:
    """At most `most` lengths of batches, with which the examples have the least padding.

    The exact optimum, by dynamic programming over the distinct lengths. In `Shapes`, batches have about the same number
    of tokens, so the cost of an example is the length of its batch.

    >>> few_lengths([5, 5, 5, 8, 30, 31, 32], 64, most=2, multiple=4)
    (8, 32, 64)

    Args:
      examples: lengths of training examples, at least one, none above `longest`.
      longest: the maximum length of any example. It is the last length: evaluation may have longer examples than
        training.
      most: maximum number of lengths of training batches.
      multiple: lengths are multiples of this, but for `longest`.
    """
    rounded = np.minimum(-(-np.asarray(examples) // multiple) * multiple, longest)
    lengths, counts = np.unique(rounded, return_counts=True)
    until = np.cumsum(counts)
    # cost[j]: of the shortest examples, up to lengths[j], in batches of k lengths whose last one is lengths[j].
    cost, choices = until * lengths, list[np.ndarray]()
    for _ in range(min(most, len(lengths)) - 1):
        longer = cost[:, None] + (until[None, :] - until[:, None]) * lengths[None, :]
        longer[np.tril_indices(len(lengths))] = np.iinfo(np.int64).max
        choices.append(np.where(longer.min(axis=0) < cost, longer.argmin(axis=0), -1))
        cost = np.minimum(cost, longer.min(axis=0))
    chosen, last = [], len(lengths) - 1
    for choice in reversed([*choices]):
        chosen.append(int(lengths[last]))
        if choice[last] < 0:
            break
        last = int(choice[last])
    else:
        chosen.append(int(lengths[last]))
    return tuple(sorted({*chosen, longest}))
