"""The base of every config: a frozen dataclass that checks its own fields."""

import dataclasses
import difflib
import functools
import re
import types
import typing
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple


@dataclasses.dataclass(frozen=True)
class Config:
    """A frozen dataclass that checks its choices (`Literal` fields) whenever it is created, and refuses a text as a
    number.

    A whole number in a field of type float becomes a float, so 1 and 1.0 give equal configs.

    A subclass with its own checks defines `__post_init__` and calls `super().__post_init__()` first.
    """

    section: ClassVar[str] = ""
    """The first part of its fields' names on the command line, such as `model`; "" = none."""

    @property
    def usual(self) -> tuple[str, ...]:
        """Fields that are changed most often: help shows them first."""
        return ()

    def __post_init__(self):
        for name, expected in _hints(type(self)).items():  # type: ignore[arg-type]
            value = _with_floats(getattr(self, name), expected)
            object.__setattr__(self, name, value)
            choices = _choices(expected)
            if isinstance(value, str) and {*_options(expected)} <= {int, float, type(None)}:
                what = "a whole number" if float not in _options(expected) else "a number"
                raise ValueError(f"{self.full_name(name)} must be {what}, got the text {value!r}")
            if choices and not _fits(value, expected):
                close = difflib.get_close_matches(str(value), map(str, choices), n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ValueError(
                    f"{self.full_name(name)} must be one of {', '.join(map(str, choices))}, got {value!r}{hint}"
                )

    @classmethod
    def full_name(cls, field: str) -> str:
        """A field's name in messages: `model.width`."""
        return f"{cls.section}.{field}" if cls.section else field


class ReadWhen(NamedTuple):
    """A field that only some configs read.

    Attributes:
      field: its name.
      default: the value of a config that does not read it.
      is_read: whether this config reads it.
      what: the configs that read it, to complete "applies only to ..."; a field and its value, such as
        `data.source files`, are also a remedy.
    """

    field: str
    default: Any
    is_read: bool
    what: str


def refuse_unread(config: Config, rules: Iterable[ReadWhen]) -> None:
    """Raises ValueError, naming the field, when an unread field does not have its default."""
    for rule in rules:
        value = getattr(config, rule.field)
        if not rule.is_read and value != rule.default:
            name = config.full_name(rule.field)
            other = f"set {rule.what}, or set {name} to" if _SETTING.fullmatch(rule.what) else "set it to"
            raise ValueError(f"{name} applies only to {rule.what}; {other} {rule.default!r}, got {value!r}")


_SETTING = re.compile(r"\w+\.[\w.]+ \S+")
"""A field and its value, such as `data.source files`."""


@functools.cache
def _hints(config: type) -> dict[str, Any]:
    hints = typing.get_type_hints(config, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}


def _options(expected: Any) -> tuple[Any, ...]:
    """The types of a union; for any other type only the type itself."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is typing.Annotated:
        return _options(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(option for argument in arguments for option in _options(argument))
    return (expected,)


def _with_floats(value: Any, expected: Any) -> Any:
    """The value, with whole numbers as floats if the type has floats and no integers."""
    options = _options(expected)
    if isinstance(value, tuple):
        items = [typing.get_args(option)[0] for option in options if typing.get_origin(option) is tuple]
        return tuple(_with_floats(item, items[0]) for item in value) if items else value
    return float(value) if type(value) is int and float in options and int not in options else value


def _choices(expected: Any) -> tuple[Any, ...]:
    """The values of a type's Literals; () for a type without Literals."""
    found: list[Any] = []
    for option in _options(expected):
        if typing.get_origin(option) is typing.Literal:
            found += typing.get_args(option)
        elif typing.get_origin(option) is tuple:
            found += _choices(typing.get_args(option)[0])
    return tuple(found)


def _fits(value: Any, expected: Any) -> bool:
    return any(_fits_one(value, option) for option in _options(expected))


def _fits_one(value: Any, option: Any) -> bool:
    origin, arguments = typing.get_origin(option), typing.get_args(option)
    if origin is typing.Literal:
        return any(value == choice and type(value) is type(choice) for choice in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    return isinstance(value, option) if isinstance(option, type) else True
