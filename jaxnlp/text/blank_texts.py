"""Blank texts: which rows have one, and answers that keep a blank row's place."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jaxnlp.input_files import text_files
from jaxnlp.text.raw_texts import require_texts

T = TypeVar("T")
Row = TypeVar("Row", bound=Sequence[Any])


def is_blank(row: Sequence[Any]) -> bool:
    """Whether a text of a row, or of a pair, is blank, see `jaxnlp.input_files.text_files.is_blank`."""
    return any(isinstance(text, str) and text_files.is_blank(text) for text in row)


def blank_rows(rows: Sequence[Sequence[Any]], count: int) -> list[int]:
    """The numbers of the blank rows, from 1. Args: count: number of the rows before these."""
    return [number for number, row in enumerate(rows, count + 1) if is_blank(row)]


def unless_blank(rows: Sequence[Row], answers: Callable[[list[Row]], Sequence[T]], empty: T) -> list[T]:
    """The answers to rows of texts, in order; a blank row has the empty answer.

    Args:
      rows: [N], each with one text or two.
      answers: of the rows that are not blank; not called if there are none.
      empty: the empty answer.
    """
    kept = [index for index, row in enumerate(rows) if not is_blank(row)]
    results = [empty] * len(rows)
    for index, one in zip(kept, answers([rows[index] for index in kept]) if kept else (), strict=True):
        results[index] = one
    return results


def refuse_blank(row: Sequence[Any]) -> None:
    """Raises: ValueError as `require_texts`, and for a blank text, or a pair with one."""
    require_texts(row, "a text" if len(row) == 1 else "two texts")
    if is_blank(row):
        raise ValueError(f"the text is blank{', or its pair is' if len(row) == 2 else ''}; give a text with characters")
