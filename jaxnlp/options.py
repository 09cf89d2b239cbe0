"""Options of a program: the fields of dataclasses, read from the command line by tyro.

Help texts are the docstrings of the fields, as one line each. The error for a value of the wrong type names the
expected type.
"""

import contextlib
import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import docstring_parser
import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from jaxnlp.messages import wrapped

_registry = ConstructorRegistry()
FLAT = tyro.conf.arg(name="")
"""Marks a dataclass whose options have no prefix: --checkpoint, not --load.checkpoint."""


def read_options(parts: Sequence[Any], arguments: Sequence[str], *, program: str, description: str = "") -> list[Any]:
    """Reads a command into dataclasses; their fields are the options, without a prefix.

    Exits with status 0 after printing help, and with status 2 for unknown options and values of the wrong type.

    Args:
      parts: dataclasses, or instances of them whose values are the defaults.
      arguments: the command without the program's name.
      program: the program's name in messages.
      description: text at the top of the help.

    Returns: an instance of each part.

    Raises: ValueError when a dataclass refuses its values.
    """
    fields: list[Any] = []
    for number, part in enumerate(parts):
        kind = part if isinstance(part, type) else type(part)
        default = dataclasses.field() if part is kind else dataclasses.field(default=part)
        fields.append((f"part{number}", Annotated[kind, FLAT], default))
    command: Any = tyro.cli(
        dataclasses.make_dataclass("Command", fields, kw_only=True),
        args=arguments,
        prog=program,
        description=wrapped(description, "  "),  # tyro joins lines that are not indented
        config=(tyro.conf.SuppressFixed,),
        registry=_registry,
    )
    return [getattr(command, name) for name, *_ in fields]


def show_help(parts: Sequence[Any], *, program: str, description: str = "") -> None:
    """Prints the help of `read_options`."""
    with contextlib.suppress(SystemExit):
        read_options(parts, ["--help"], program=program, description=description)


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields, by their names, each as one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            documented = docstring_parser.parse_from_object(base).params
            found |= {doc.arg_name: " ".join((doc.description or "").split()) for doc in documented}
    return found


@_registry.struct_rule
def _fields_with_docs(info: StructTypeInfo) -> StructConstructorSpec | None:
    """A dataclass. (tyro's own rule keeps the line breaks of the source in help texts.)"""
    if not dataclasses.is_dataclass(info.type):
        return None
    hints, docs = typing.get_type_hints(info.type, include_extras=True), field_docs(info.type)
    fields = tuple(
        _field_spec(field.name, hints[field.name], _default(field, info.default), docs.get(field.name))
        for field in dataclasses.fields(info.type)
    )
    return StructConstructorSpec(info.type, fields)


def _field_spec(name: str, kind: Any, default: Any, help: str | None) -> StructFieldSpec:
    if default == ():  # an empty tuple would be shown as "(default: )"
        kind = Annotated[kind, tyro.conf.arg(help_behavior_hint="")]
    return StructFieldSpec(name, kind, default, help)


def _default(field: dataclasses.Field[Any], instance: Any) -> Any:
    if dataclasses.is_dataclass(instance):
        return getattr(instance, field.name)
    if field.default is not dataclasses.MISSING:
        return field.default
    return tyro.MISSING if field.default_factory is dataclasses.MISSING else field.default_factory()


@_registry.primitive_rule
def _simple_values(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """A number, a text, a path, one of a Literal's values, or None; unions of these; and tuples of them.

    tyro's own rules make no suggestions, and name Python's types in their errors.
    """
    is_tuple = typing.get_origin(info.type) is tuple and typing.get_args(info.type)[1:] == (Ellipsis,)
    alternatives = _alternatives(typing.get_args(info.type)[0] if is_tuple else info.type)
    if not all(kind in _WORDS or typing.get_origin(kind) is Literal for kind in alternatives):
        return None
    metavar = "|".join(_metavar(kind) for kind in alternatives if kind is not type(None))
    if not is_tuple:
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=metavar,
            instance_from_str=lambda texts: _read(texts[0], alternatives),
            is_instance=lambda value: _fits(value, alternatives),
            str_from_instance=lambda value: [_one_line(value)],
        )
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{metavar} ...",
        instance_from_str=lambda texts: tuple(_read(text, alternatives) for text in texts),
        is_instance=lambda value: isinstance(value, tuple) and all(_fits(item, alternatives) for item in value),
        str_from_instance=lambda value: [_one_line(item) for item in value],
    )


_WORDS: Mapping[Any, tuple[str, str]] = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    str: ("TEXT", "a text"),
    Path: ("PATH", "a path"),
    type(None): ("", "None"),
}
"""The name of a type in help and errors."""


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union; for another type, only this type."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(option for argument in typing.get_args(kind) for option in _alternatives(argument))
    return (kind,)


def _metavar(kind: Any) -> str:
    return _WORDS[kind][0] if kind in _WORDS else f"{{{','.join(map(str, typing.get_args(kind)))}}}"


def _read(text: str, alternatives: Sequence[Any]) -> Any:
    """The text as a value of the first type that accepts it. Raises: ValueError naming the expected types."""
    choices: dict[str, Any] = {}
    for kind in alternatives:
        if kind is type(None):
            choices["None"] = None
        elif typing.get_origin(kind) is Literal:
            choices |= {str(value): value for value in typing.get_args(kind)}
    if text in choices:
        return choices[text]
    words = [_WORDS[kind][1] for kind in alternatives if kind in _WORDS and kind is not type(None)]
    for kind in alternatives:
        if kind in (int, float, str, Path):
            with contextlib.suppress(ValueError):
                return kind(text)
    expected = " or ".join([*words, *([f"one of {', '.join(choices)}"] if len(choices) > 1 else choices)])
    close = difflib.get_close_matches(text, choices, n=1)
    raise ValueError(f"expected {expected}, got {text!r}" + (f"; did you mean {close[0]}?" if close else ""))


def _one_line(value: Any) -> str:
    return str(value).replace("\n", "\\n")


def _fits(value: Any, alternatives: Sequence[Any]) -> bool:
    literals = [known for kind in alternatives if typing.get_origin(kind) is Literal for known in typing.get_args(kind)]
    if type(value) is int and float in alternatives:
        return True
    kinds = tuple(kind for kind in alternatives if kind in _WORDS)
    return value in literals or (isinstance(value, kinds) and not isinstance(value, bool))
