"""Values of options: the words of a command, read as the type of a dataclass's field.

tyro's own errors name Python's types and functions, and for a union those of each of its types.
"""

import contextlib
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

NAMES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH", types.NoneType: "None"}
"""The types of one word, as help and errors name them."""


def alternatives(kind: Any) -> list[Any]:
    """The types of a union; for another type, only this type."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return [inner for one in typing.get_args(kind) for inner in alternatives(one)] if union else [kind]


def takes_several(kind: Any) -> bool:
    """Whether a value of the type may have several words."""
    return any(typing.get_origin(one) is tuple for one in alternatives(kind))


def metavar(kind: Any) -> str:
    """The values of a type in help and errors, such as `INT|None`, `{a,b}` or `TEXT ...`."""
    names = []
    for one in alternatives(kind):
        inner = typing.get_args(one)
        if typing.get_origin(one) is Literal:
            names.append(f"{{{','.join(map(str, inner))}}}")
        elif typing.get_origin(one) is tuple:
            names.append(f"{metavar(inner[0])} ..." if inner[-1] is Ellipsis else " ".join(map(metavar, inner)))
        else:
            names.append(NAMES[one])
    return "|".join(name for name in names if f"{name} ..." not in names)


def read_value(words: Sequence[str], kind: Any) -> Any:
    """The words as a value of the type. Raises: ValueError, naming the type and the words."""
    kinds = alternatives(kind)
    named = {str(value): value for one in kinds if typing.get_origin(one) is Literal for value in typing.get_args(one)}
    named |= {"None": None} if types.NoneType in kinds else {}
    if len(words) == 1 and words[0] in named:
        return named[words[0]]
    for one in kinds:
        with contextlib.suppress(ValueError):
            if typing.get_origin(one) is tuple and (words or one is kind):
                inner = typing.get_args(one)
                items = inner[:1] * len(words) if inner[-1] is Ellipsis else inner
                return tuple(read_value([word], item) for word, item in zip(words, items, strict=True))
            if len(words) == 1 and one in (int, float, str, Path):
                return one(words[0])
    raise ValueError(f"expected {metavar(kind)}, got {repr(' '.join(words)) if words else 'no value'}")
