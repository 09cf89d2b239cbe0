"""Batches of a few shapes for the methods of trained models, so that few programs are compiled."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxnlp.ops.devices import target_platform
from jaxnlp.typing import PyTree


class Shape(NamedTuple):
    """The shape of a batch: number of rows, and their length in tokens, words or other positions."""

    rows: int
    length: int


BatchFunction = Callable[[Sequence[int], Shape], PyTree]
"""(indices of inputs, at most `rows`; the shape of their batch) -> arrays with one row an input; the last rows are
padding. Without indices all rows are padding, as in `warm_up`."""

SHORT, LONGER = 32, 128
"""Lengths for most texts."""
BATCH_SIZES = (1, 8, 64)
"""Numbers of rows in batches; they are few, so few programs are compiled."""
ROW_SHAPES = tuple(Shape(rows, 64) for rows in BATCH_SIZES)
"""The shapes of batches of inputs of one size, such as images. One costs as much as 64 positions."""
FAR = 16 * LONGER
"""Models with longer texts get one more length for batches of one text, and one less for batches of 64."""
OVERHEAD = 100
"""Cost of a batch in positions: on a CPU, reading the weights takes as long as computing this number of positions."""


def text_shapes(longest: int) -> tuple[Shape, ...]:
    """The shapes of batches of texts for one forward pass: at most nine, to compile few programs.

    On a CPU a batch costs what its rows and lengths cost, so batches of one text have many lengths. On other devices
    eight texts cost little more than one.

    Args: longest: maximum length of a text.
    """
    if target_platform() != "cpu":
        return decoding_shapes(longest)
    many: tuple[int, ...] = (SHORT // 2, SHORT, 3 * SHORT // 2, 2 * SHORT)
    if longest > LONGER:  # one text has more lengths then
        many = (SHORT,) if longest > FAR else (SHORT, 2 * SHORT)
    lengths = {1: (SHORT // 2, SHORT, *_up_to(longest)), 8: (SHORT, LONGER), 64: many}
    return _shapes(lengths, longest)


def sentence_shapes(longest: int) -> tuple[Shape, ...]:
    """As `text_shapes`, for sentences of treebanks, few of which have more than `LONGER` positions.

    On a CPU, if the longest has up to four times as many, a batch of many has one more length, and one long sentence
    has one less.

    Args: longest: maximum length of a sentence.
    """
    if target_platform() != "cpu" or not LONGER < longest <= 4 * LONGER:
        return text_shapes(longest)
    lengths = {1: (SHORT // 2, SHORT, LONGER, longest), 8: (SHORT, LONGER), 64: (SHORT // 2, SHORT, 2 * SHORT)}
    return _shapes(lengths, longest)


def decoding_shapes(longest: int) -> tuple[Shape, ...]:
    """The shapes of batches of texts whose outputs are found step by step: at most nine.

    Each step reads the weights, so eight texts take little more time than one, also on a CPU.

    Args: longest: maximum length of a text.
    """
    lengths: dict[int, tuple[int, ...]] = {
        1: (SHORT, LONGER, longest),
        8: (SHORT, *_up_to(longest)),
        64: (SHORT, 2 * SHORT),
    }
    if longest > FAR:
        lengths = {1: lengths[8], 8: lengths[1], 64: (SHORT,)}
    return _shapes(lengths, longest)


def _shapes(lengths: Mapping[int, Sequence[int]], longest: int) -> tuple[Shape, ...]:
    """Each number of rows with its lengths, up to the longest."""
    return tuple(
        Shape(rows, length)
        for rows, some in lengths.items()
        for length in sorted({min(length, longest) for length in some})
    )


def _up_to(longest: int) -> list[int]:
    """Lengths from `LONGER` to the longest, in a geometric sequence, rounded up to multiples of 16."""
    steps = 3 if longest > FAR else 2
    exact = [round(LONGER * (longest / LONGER) ** (step / steps)) for step in range(steps)]
    return [-(-length // 16) * 16 for length in exact] + [longest]


def padded_length(length: int, shapes: Sequence[Shape]) -> int:
    """The padded length of a single input."""
    return min(shape.length for shape in shapes if shape.rows == 1 and shape.length >= length)


def batches(lengths: Sequence[int], shapes: Sequence[Shape], step_cost: int = 0) -> Iterator[tuple[list[int], Shape]]:
    """Divides inputs into batches of these shapes with the lowest total cost.

    A batch costs all its positions, padding included, its steps and `OVERHEAD`. Batches have inputs of similar length,
    by dynamic programming over the n shortest inputs.

    Args:
      lengths: of each input [N], at most that of the longest shape.
      shapes: of `text_shapes`, `sentence_shapes`, `decoding_shapes` or `ROW_SHAPES`.
      step_cost: cost of a decoding step, in positions; a batch takes one step for each position of its longest input.

    Yields:
      The indices of at most `rows` inputs, and the shape.
    """
    order = np.argsort(np.asarray(lengths, np.int64), kind="stable").tolist()
    cost, chosen = [0.0], list[Shape]()
    for count, input_ in enumerate(order, 1):
        fitting = [shape for shape in shapes if shape.length >= lengths[input_]]
        steps = OVERHEAD + step_cost * lengths[input_]
        costs = [cost[max(0, count - rows)] + steps + rows * length for rows, length in fitting]
        cost.append(min(costs))
        chosen.append(fitting[costs.index(cost[-1])])
    stop = len(order)
    while stop:
        shape = chosen[stop - 1]
        yield order[max(0, stop - shape.rows) : stop], shape
        stop = max(0, stop - shape.rows)


def packed_rows(lengths: Sequence[int], longest: int, most: int) -> list[list[int]]:
    """Divides inputs into rows without padding between them; inputs of similar length share a row.

    Args:
      lengths: of each input [N].
      longest: length of a row; a longer input has its own row.
      most: maximum number of inputs in a row.

    Returns: the indices of the inputs in each row.
    """
    rows, room = list[list[int]](), 0
    for input_ in np.argsort(np.asarray(lengths, np.int64), kind="stable").tolist():
        if not rows or lengths[input_] > room or len(rows[-1]) == most:
            rows.append([])
            room = longest
        rows[-1].append(input_)
        room -= lengths[input_]
    return rows


def in_batches(
    lengths: Sequence[int], shapes: Sequence[Shape], compute: BatchFunction, step_cost: int = 0
) -> list[PyTree]:
    """The results of a function of batches for each input, in order: trees of NumPy arrays.

    Args:
      lengths: of each input [N].
      shapes: of the batches.
      compute: the function; see `BatchFunction`.
      step_cost: see `batches`.
    """
    results: list[PyTree] = [None] * len(lengths)
    for indices, shape in batches(lengths, shapes, step_cost):
        arrays, structure = jax.tree.flatten(jax.device_get(compute(indices, shape)))
        for index, row in zip(indices, zip(*arrays, strict=True), strict=False):
            results[index] = jax.tree.unflatten(structure, row)
    return results


def warm_up(shapes: Sequence[Shape], compute: BatchFunction) -> None:
    """Compiles the program of each shape ahead, and runs it once on padding."""
    for shape in shapes:
        jax.block_until_ready(compute((), shape))
