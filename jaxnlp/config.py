"""The base of every config: a frozen dataclass that checks its own fields."""

import dataclasses
import difflib
import functools
import os
import re
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self


class Within(NamedTuple):
    """The bounds of a number, in the type of its field: `width: Annotated[int, Within("[1, inf)")]`.

    Attributes:
      interval: "[a, b)"; a square bracket includes the bound. It never includes NaN.
    """

    interval: str

    def __contains__(self, value: object) -> bool:
        lowest, highest = map(float, self.interval[1:-1].split(","))
        number: Any = value
        above = lowest <= number if self.interval[0] == "[" else lowest < number
        return above and (number <= highest if self.interval[-1] == "]" else number < highest)

    def broken_by(self, number: int) -> str:
        """The bound that an integer violates: `at least 1`, or `less than 2147483648`."""
        lowest, highest = self.interval[1:-1].split(", ")
        if number < float(highest):
            return f"at least {lowest}" if self.interval[0] == "[" else f"more than {lowest}"
        return f"less than {highest}" if self.interval[-1] == ")" else f"at most {highest}"

    def __str__(self) -> str:
        lowest, highest = self.interval[1:-1].split(", ")
        if highest != "inf":
            return f"in {self.interval}"
        return {"[0": "finite and not negative", "(0": "positive and finite", "(-inf": "finite"}.get(
            self.interval[0] + lowest, f"at least {lowest} and finite"
        )


Count = Annotated[int, Within("[1, 2147483648)")]
"""The range of array indices and step counters: 32 bits."""
Natural = Annotated[int, Within("[0, 2147483648)")]
Layers = Annotated[int, Within("[1, 10001)")]
"""Far more than any model has. A config of a million layers is damaged, and would take hours to trace."""
BatchSize = Annotated[int, Within("[1, 1000001)")]
BatchTokens = Annotated[int, Within("[1, 100000001)")]
"""Far more than any step needs. Whole batches are made in memory, so a larger number would exhaust it."""
Workers = Annotated[int, Within("[0, 1001)")]
"""More workers than a machine has cores. Each is a process that takes hundreds of megabytes."""
TokenCount = Annotated[int, Within("[1, 10000001)")]
"""Size of a vocabulary to train. The tokenizers library reserves memory for all tokens, and aborts without it."""
PieceCount = Annotated[int, Within("[3, 2147483648)")]
"""Size of a BERT's vocabulary, with [CLS] and [SEP]."""
Window = Annotated[int, Within("[1, 1001)")]
"""Window of a convolution. Its program has a term for each position of the window."""
Seed = Annotated[int, Within("[0, 4294967296)")]
Rate = Annotated[float, Within("[0, 1)")]
Fraction = Annotated[float, Within("[0, 1]")]
ProperFraction = Annotated[float, Within("(0, 1)")]
Finite = Annotated[float, Within("(-inf, inf)")]
Positive = Annotated[float, Within("(0, inf)")]
NonNegative = Annotated[float, Within("[0, inf)")]
HOME = "home"
UserPath = Annotated[str, HOME]
"""A path as a text. ~ is the home folder, as in a `Path`: a shell leaves it unchanged in --workdir=~/runs."""


class NotReadError(ValueError):
    """A field that does not apply has another value than its default; see `Config.only_if`.

    Attributes:
      field: its name.
      default: its default.
    """

    def __init__(self, message: str, field: str, default: Any):
        super().__init__(message)
        self.field, self.default = field, default


@dataclasses.dataclass(frozen=True)
class Config:
    """A frozen dataclass that checks types, choices (`Literal`) and bounds (`Within`) of its fields whenever it is
    created.

    Values are converted to the field's type where nothing is lost: int to float, so 1 and 1.0 give equal configs; list
    to tuple; `Path` to str, and the other way round. In a `Path` or `UserPath`, ~ becomes the home folder.

    A subclass with its own checks defines `__post_init__` and calls `super().__post_init__()` first.
    """

    section: ClassVar[str] = ""
    """The first part of the fields' names on the command line, such as `model`; "" = none."""

    @property
    def usual(self) -> tuple[str, ...]:
        """Fields that are changed most often, which help shows first."""
        return ()

    def __post_init__(self):
        for name, expected in _hints(type(self)).items():  # type: ignore[arg-type]
            value = _converted(getattr(self, name), expected)
            object.__setattr__(self, name, value)
            choices = _choices(expected)
            options = {*_options(expected)}
            if isinstance(value, str) and options <= {int, float, type(None)}:
                what = "a whole number" if float not in options else "a number"
                raise ValueError(f"{self.full_name(name)} must be {what}, got the text {value!r}")
            if isinstance(value, float) and int in options and float not in options:
                raise ValueError(f"{self.full_name(name)} must be a whole number, got {value!r}")
            if choices and not _fits(value, expected):
                close = difflib.get_close_matches(str(value), map(str, choices), n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ValueError(
                    f"{self.full_name(name)} must be one of {', '.join(map(str, choices))}, got {value!r}{hint}"
                )
            if not _fits(value, expected):
                hint = f"; give [{value!r}]" if _fits((value,), expected) else ""
                raise ValueError(f"{self.full_name(name)} must be {_described(expected)}, got {value!r}{hint}")
            if _is_path(expected) and "" in (value if isinstance(value, tuple) else (value,)):
                raise ValueError(f"{self.full_name(name)} must be a path, got an empty text")
            bound = outside(value, expected)
            if bound:
                raise ValueError(f"{self.full_name(name)} must be {bound}, got {value}")

    def only_if(self, is_read: object, what: str, *fields: str) -> None:
        """Refuses fields that do not apply to this config, unless they have their defaults.

        Args:
          is_read: whether the fields apply.
          what: completes "applies only to ..."; a field and its value, such as `data.source files`, is also a remedy.
          fields: their names.

        Raises: NotReadError naming the field and the remedy.
        """
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for field in fields if not is_read else ():
            value, name = getattr(self, field), self.full_name(field)
            if value != defaults[field]:
                other = f"set {what}, or set {name} to" if _SETTING.fullmatch(what) else "set it to"
                message = f"{name} applies only to {what}; {other} {defaults[field]!r}, got {value!r}"
                raise NotReadError(message, field, defaults[field])

    @classmethod
    def full_name(cls, field: str) -> str:
        """A field's name in messages: `model.width`."""
        return f"{cls.section}.{field}" if cls.section else field


def changed(config: Any, fields: Mapping[str, Any], given: Collection[str]) -> Any:
    """A copy of a config with new values. Fields that no longer apply get their defaults, unless they are given."""
    try:
        return dataclasses.replace(config, **fields)
    except NotReadError as error:
        if error.field in given:
            raise
        return changed(config, {**fields, error.field: error.default}, given)


class Choice(Config):
    """A config of several kinds, each a class: a name such as `--optimizer muon` chooses one.

    The kinds of a base are its subclasses with a name: `class Muon(OptimizerConfig, kind="muon")`.
    """

    kind: ClassVar[str] = ""
    """The name; "" = an abstract class."""

    def __init_subclass__(cls, *, kind: str = "") -> None:
        super().__init_subclass__()
        cls.kind = kind

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """The classes that can be chosen for this base, itself included, by name."""
        family: list[Any] = [cls.__mro__[cls.__mro__.index(Choice) - 1]]
        for one in family:  # which grows
            family += one.__subclasses__()
        return {one.kind: one for one in family if one.kind}

    def as_kind(self, name: str) -> Self:
        """A config of another kind, with the values of the fields that both have. Unchecked: `dataclasses.replace`
        checks it, after other fields are replaced."""
        kinds = self.kinds()
        if name not in kinds:
            raise ValueError(f"{self.section} must be one of {', '.join(kinds)}, got {name!r}")
        other, names = object.__new__(kinds[name]), {field.name for field in dataclasses.fields(kinds[name])}
        vars(other).update({name: value for name, value in vars(self).items() if name in names})
        return other


_SETTING = re.compile(r"\w+\.[\w.]+ \S+")
"""A field and its value, such as `data.source files`."""
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "None"}
"""Types in messages."""


@functools.cache
def _hints(config: type) -> dict[str, Any]:
    hints = typing.get_type_hints(config, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}


def _options(expected: Any) -> tuple[Any, ...]:
    """The types of a union; for any other type itself."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is typing.Annotated:
        return _options(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(option for argument in arguments for option in _options(argument))
    return (expected,)


def _converted(value: Any, expected: Any) -> Any:
    """The value converted to the type, as `Config` documents."""
    options = _options(expected)
    if isinstance(value, str | Path) and _is_path(expected):
        value = type(value)(os.path.expanduser(value))
    if isinstance(value, Path) and Path not in options and str in options:
        return str(value)
    if isinstance(value, str) and str not in options and Path in options:
        return Path(value)
    if isinstance(value, tuple | list):
        items = [typing.get_args(option)[0] for option in options if typing.get_origin(option) is tuple]
        return tuple(_converted(item, items[0]) for item in value) if items else value
    return float(value) if type(value) is int and float in options and int not in options else value


def path_fields(of: type[Config]) -> tuple[str, ...]:
    """Names of a config's text fields that are paths."""
    return tuple(name for name, expected in _hints(of).items() if _is_path(expected))  # type: ignore[arg-type]


def _is_path(expected: Any) -> bool:
    """Whether a text in a field of this type is a path."""
    parts = typing.get_args(expected)
    return Path in _options(expected) or HOME in parts or any(map(_is_path, parts))


def _choices(expected: Any) -> tuple[Any, ...]:
    """The values of a type's Literals; () = none."""
    choices: list[Any] = []
    for option in _options(expected):
        if typing.get_origin(option) is typing.Literal:
            choices += typing.get_args(option)
        elif typing.get_origin(option) is tuple:
            choices += _choices(typing.get_args(option)[0])
    return tuple(dict.fromkeys(choices))


def outside(value: Any, expected: Any) -> str:
    """The bounds that a number, or a tuple's number, violates; "" = none."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is typing.Annotated:
        bounds = [bound for bound in arguments[1:] if isinstance(bound, Within)]
        for bound in bounds if isinstance(value, int | float) else ():
            if value not in bound:
                return bound.broken_by(value) if arguments[0] is int else str(bound)
        return outside(value, arguments[0])
    if origin is tuple and isinstance(value, tuple):
        problems = [outside(item, arguments[0]) for item in value]
        return next((f"{text} each" for text in problems if text), "")
    if origin in (typing.Union, types.UnionType) and value is not None:
        return next(filter(None, (outside(value, option) for option in arguments)), "")
    return ""


def _fits(value: Any, expected: Any) -> bool:
    return any(_fits_one(value, option) for option in _options(expected))


def _fits_one(value: Any, option: Any) -> bool:
    origin, arguments = typing.get_origin(option), typing.get_args(option)
    if origin is typing.Literal:
        return any(value == choice and type(value) is type(choice) for choice in arguments)
    if origin is tuple:
        if not isinstance(value, tuple) or (... not in arguments and len(value) != len(arguments)):
            return False
        return all(_fits(item, arguments[0]) for item in value)
    if isinstance(value, bool) and option in (int, float):
        return False  # a bool is an int for Python
    return isinstance(value, option) if isinstance(option, type) else True


def _described(expected: Any) -> str:
    """The values of a type in words: `a whole number or None`."""
    return " or ".join(dict.fromkeys(map(_described_one, _options(expected))))


def _described_one(option: Any) -> str:
    if typing.get_origin(option) is typing.Literal:
        return f"one of {', '.join(map(str, typing.get_args(option)))}"
    if typing.get_origin(option) is tuple:
        first, *others = typing.get_args(option)
        count = "" if ... in others else f"{1 + len(others)} "
        return f"a list of {count}values, each {_described(first)}"
    return _NAMES.get(option, f"of the type {option.__name__ if isinstance(option, type) else option}")
