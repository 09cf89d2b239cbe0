"""Shared code of the methods of trained models: one input gives one result, a list gives a list."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def one_or_many(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a function of a trained model and a list of inputs also take a single input.

    A text, a path or an image [I, I, R] is one input: its result is returned, not a list. The second texts of pairs,
    the function's argument `pairs`, are then a single one, too. The signature and the docstring do not change.
    """
    signature = inspect.signature(function)
    name = list(signature.parameters)[1]

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*arguments, **options).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}: {error}") from None
        inputs, pairs = given[name], given.get("pairs")
        if is_one(inputs):
            seconds = {} if pairs is None else {"pairs": [pairs]}
            return function(**given | {name: [inputs]} | seconds)[0]
        if not isinstance(inputs, Iterable):
            raise ValueError(f"{function.__name__}: expected one input, or a list of them, got {type(inputs).__name__}")
        if isinstance(pairs, str):
            raise ValueError(f"{function.__name__}: a list of inputs needs a list of second texts, got one text")
        return function(**given | {name: list(inputs)})

    return called


def is_one(inputs: Any) -> bool:
    """Whether the argument is one input: a text, a path, or an image: an array of 2 or 3 axes, or one of Pillow's."""
    match inputs:
        case str() | Path() | object(ndim=2 | 3):  # an array of NumPy, JAX or PyTorch
            return True
    return not isinstance(inputs, Iterable) and np.ndim(inputs) in (2, 3)  # Pillow's images are not iterable


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """Texts as a list; one text gives a list of one. Raises: ValueError as `require_texts`, but not for blank texts."""
    return require_texts([texts] if isinstance(texts, str) else list(texts), keep_blank=True)


def padded_rows(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of ids as one array [B, T] int32, padded with 0 at the end of each row."""
    found = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for number, row in enumerate(rows):
        found[number, : len(row)] = row
    return found


def require_texts(texts: Sequence[Any], what: str = "texts", *, keep_blank: bool = False) -> list[str]:
    """The texts.

    Args:
      texts: the argument of a method.
      what: the name of the texts in messages.
      keep_blank: whether blank texts are kept, not refused.

    Raises: ValueError for an empty list, and for an entry that is not a text or is blank.
    """
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"expected {what}, got {type(text).__name__} at index {number}")
        if not keep_blank:
            refuse_blank((text,), number + 1)
    if not len(texts):
        raise ValueError(f"there are no {what}")
    return list(texts)


def refuse_blank(row: Sequence[Any], number: int) -> None:
    """Raises: ValueError, with the number of the row, for a text without characters, or a pair with such a text."""
    if any(isinstance(text, str) and not text.strip() for text in row):
        pair = ", or its pair is" if len(row) == 2 else ""
        raise ValueError(f"text {number} is blank{pair}; give texts with characters")
