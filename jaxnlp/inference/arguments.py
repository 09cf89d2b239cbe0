"""Methods of trained models accept one input or many: one input gives one result, a list gives a list."""

import functools
import inspect
import operator
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Row = TypeVar("Row", bound=Sequence[Any])
_WORDS: dict[type, str] = {bool: "True or False", float: "a number", int: "a whole number"}
"""The values of a type in words."""


def one_or_many(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a function of a trained model and a list of inputs also take a single input.

    A text, a path or an image [I, I, R] is one input: its result is returned, not a list. The argument `pairs`, the
    second texts, is then also a single text. An array of texts is a list. A list of pairs of texts, such as tuples, is
    divided into the inputs and `pairs`. The signature and the docstring do not change.
    """
    signature = inspect.signature(function)
    name = list(signature.parameters)[1]

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        inputs, pairs = given[name], given.get("pairs")
        if is_one(inputs):
            seconds = {} if pairs is None else {"pairs": [pairs]}
            return function(**given | {name: [inputs]} | seconds)[0]
        items = listed(inputs, f"{function.__name__}: expected one input")
        if pairs is None and "pairs" in signature.parameters and items and all(map(_is_pair, items)):
            return function(**given | dict(zip((name, "pairs"), map(list, zip(*items, strict=True)), strict=True)))
        if isinstance(pairs, str):
            raise ValueError(f"{function.__name__}: a list of inputs needs a list of second texts, got one text")
        seconds = {} if pairs is None else {"pairs": listed(pairs, f"{function.__name__}: expected one second text")}
        return function(**given | {name: items} | seconds)

    return called


def listed(items: Any, expected: str) -> list[Any]:
    """The items as a list. Args: expected: the start of the message, with the name of one item.

    Raises: ValueError for anything else: a number, bytes, a mapping, whose items would be its keys, or a set, whose
    results could not be told apart.
    """
    if is_frame(items):  # its items are the names of columns, or columns
        raise ValueError(f"{expected}, or a list of them, got {type(items).__name__}; give one of its columns")
    if getattr(items, "ndim", None) == 0:  # it has __iter__, which raises
        raise ValueError(f"{expected}, or a list of them, got an array without axes; give its .item()")
    if not isinstance(items, Iterable) or isinstance(items, bytes | bytearray | Mapping | Set):
        raise ValueError(f"{expected}, or a list of them, got {type(items).__name__}")
    return list(items)


def plain_kinds(signature: inspect.Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with Python's numbers instead of NumPy's and JAX's.

    Raises: ValueError naming an argument with a value of another type than True or False, or a number. A text such as
    "no" would be true.
    """
    plain = dict(given)
    for name, value in given.items():
        kind = signature.parameters[name].annotation
        options = typing.get_args(kind) or (kind,)
        expected = next((words for option, words in _WORDS.items() if option in options), None)
        if expected is None or (value is None and type(None) in options):
            continue
        is_flag, is_word = isinstance(value, bool | np.bool_), isinstance(value, str | bytes)
        reads = "__index__" if float not in options else "__float__"
        if not is_flag if bool in options else (is_flag or is_word or not hasattr(value, reads)):
            raise ValueError(f"{name} must be {expected}, got {'the text ' * isinstance(value, str)}{value!r}")
        if bool in options:
            plain[name] = bool(value)
        elif float not in options:
            plain[name] = operator.index(value)
        elif not isinstance(value, int):
            plain[name] = float(value)
    return plain


def with_plain_kinds(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of its `plain_kinds`; a TypeError names the function and its arguments."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **options)
        except TypeError as error:
            reason = str(error)
            if unknown := [option for option in options if option not in signature.parameters]:
                known = ", ".join([*signature.parameters][1:])
                reason = f"got an unexpected keyword argument {unknown[0]!r}; its arguments are {known}"
            raise TypeError(f"{function.__name__}: {reason}") from None
        bound.arguments.update(plain_kinds(signature, bound.arguments))
        return function(*bound.args, **bound.kwargs)

    return called


def is_frame(items: Any) -> bool:
    """Whether an argument is a table, such as a DataFrame of pandas or polars, which iterates over names or columns."""
    return hasattr(items, "columns") and hasattr(items, "shape")


def is_one(inputs: Any) -> bool:
    """Whether an argument is one input: a text, a path, or an image: an array of 2 or 3 axes, or Pillow's."""
    if isinstance(inputs, str | Path):  # also an element of an array of strings, which has a dtype
        return True
    if is_frame(inputs) or getattr(getattr(inputs, "dtype", None), "kind", "") in ("O", "S", "T", "U"):  # texts
        return False
    match inputs:
        case object(ndim=2 | 3):  # an array of NumPy, JAX or PyTorch
            return True
    return not isinstance(inputs, Iterable) and np.ndim(inputs) in (2, 3)  # Pillow's images are not iterable


def _is_pair(item: Any) -> bool:
    """Whether an input is two texts, in a tuple, a list or a row of an array; one of them may be missing."""
    sequence = isinstance(item, tuple | list | np.ndarray)
    return sequence and len(item) == 2 and any(isinstance(text, str) for text in item)
