"""Values of options: the words of a command, read as the type of a dataclass's field."""

import contextlib
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

WORDS: Mapping[Any, tuple[str, str]] = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    str: ("TEXT", "a text"),
    Path: ("PATH", "a path"),
    type(None): ("", "None"),
}
"""The name of a type in help and errors."""


class Values(NamedTuple):
    """The values that an option takes.

    Attributes:
      single: types of one word: number, text, path, Literal, None.
      items: types of each of any number of words; () = the option does not take any number.
      row: the type of each word, where their number is fixed; () = it is not.
    """

    single: tuple[Any, ...]
    items: tuple[Any, ...] = ()
    row: tuple[Any, ...] = ()

    @property
    def one_word(self) -> bool:
        """Whether a value always has one word."""
        return not self.items and not self.row

    @property
    def metavar(self) -> str:
        """The value in a help text, such as INT."""
        if self.row:
            return " ".join(map(_metavar, self.row))
        several = self.items or self.single
        shown = "|".join(_metavar(kind, several) for kind in several if kind is not type(None))
        return f"{shown} ..." if self.items else shown

    @property
    def expected(self) -> str:
        """The value in an error, such as `a whole number or None`."""
        single = [kind for kind in self.single if kind is not type(None)] if self.items else self.single
        parts = [self.metavar] if self.row else []
        if self.items:
            parts.append(f"any number of values, each {_expected(self.items)}" if not single else "one value or more")
        elif single:
            parts.append(_expected(single))
        return " or ".join(parts)

    def read(self, words: Sequence[str]) -> Any:
        """The value of these words. Raises: ValueError naming what is expected."""
        if self.one_word or (len(words) == 1 and ((self.single and not self.row) or list(words) == ["None"])):
            if len(words) != 1:
                raise ValueError(f"expected {self.expected}, got {len(words) or 'no'} values")
            return read_word(words[0], self.single)
        if self.row:
            if len(words) != len(self.row):
                raise ValueError(f"expected {self.expected}, got {' '.join(words) or 'no value'}")
            return tuple(read_word(word, (kind,)) for word, kind in zip(words, self.row, strict=True))
        if self.single and not words:
            raise ValueError(f"expected {self.expected}, got none")
        return tuple(read_word(word, self.items) for word in words)

    def fits(self, value: Any) -> bool:
        """Whether a field may have the value."""
        if isinstance(value, tuple):
            kinds = [self.items] * len(value) if not self.row else [(kind,) for kind in self.row]
            known = bool(self.items or self.row) and len(kinds) == len(value)
            return known and all(_fits(item, kind) for item, kind in zip(value, kinds, strict=True))
        return _fits(value, self.single)


def values_of(kind: Any) -> Values | None:
    """The values of a field of this type: a number, a text, a path, a Literal, None, tuples of these, and unions.

    Returns: None for other types, such as bool.
    """
    single: list[Any] = []
    items: tuple[Any, ...] = ()
    row: tuple[Any, ...] = ()
    for part in _alternatives(kind):
        arguments = typing.get_args(part)
        if typing.get_origin(part) is not tuple:
            single.append(part)
        elif arguments[1:] == (Ellipsis,):
            items = _alternatives(arguments[0])
        else:
            row = arguments
    if not all(kind in WORDS or typing.get_origin(kind) is Literal for kind in (*single, *items, *row)):
        return None
    return Values(tuple(single), items, row)


def read_word(word: str, kinds: Sequence[Any]) -> Any:
    """The word as a value of the first type that accepts it. Raises: ValueError naming the expected types."""
    choices = _choices(kinds)
    if word in choices:
        return choices[word]
    for kind in kinds:
        if kind in (int, float, str, Path):
            with contextlib.suppress(ValueError):
                return kind(word)
    close = difflib.get_close_matches(word, choices, n=1)
    raise ValueError(f"expected {_expected(kinds)}, got {word!r}" + (f"; did you mean {close[0]}?" if close else ""))


def one_line(value: Any) -> str:
    """A default as help shows it."""
    return str(value).replace("\n", "\\n")


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union; for another type, only this type."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(option for argument in typing.get_args(kind) for option in _alternatives(argument))
    return (kind,)


def _choices(kinds: Sequence[Any]) -> dict[str, Any]:
    """The values that have a name: those of a Literal, and None."""
    choices: dict[str, Any] = {}
    for kind in kinds:
        if kind is type(None):
            choices["None"] = None
        elif typing.get_origin(kind) is Literal:
            choices |= {str(value): value for value in typing.get_args(kind)}
    return choices


def _expected(kinds: Sequence[Any]) -> str:
    words = [WORDS[kind][1] for kind in kinds if kind in WORDS and kind is not type(None)]
    choices = _choices(kinds)
    return " or ".join([*words, *([f"one of {', '.join(choices)}"] if len(choices) > 1 else choices)])


def _metavar(kind: Any, others: Sequence[Any] = ()) -> str:
    """A type in a help text; the choices of a Literal include None where it is one of the other types."""
    return WORDS[kind][0] if kind in WORDS else f"{{{','.join(_choices(others or (kind,)))}}}"


def _fits(value: Any, kinds: Sequence[Any]) -> bool:
    literals = [known for kind in kinds if typing.get_origin(kind) is Literal for known in typing.get_args(kind)]
    if type(value) is int and float in kinds:
        return True
    simple = tuple(kind for kind in kinds if kind in WORDS)
    return value in literals or (isinstance(value, simple) and not isinstance(value, bool))
