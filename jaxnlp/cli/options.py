"""Options of a program: the fields of dataclasses, whose docstrings are the help texts; tyro reads them.

tyro gets a flat list of options, and the dataclasses are built from their values. So a dataclass's error is a plain
ValueError, and help may show only some options.
"""

import contextlib
import copy
import dataclasses
import functools
import itertools
import re
import shlex
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, NamedTuple

import docstring_parser
import tyro

from jaxnlp.cli.messages import wrapped
from jaxnlp.cli.suggestions import similar_options
from jaxnlp.config import Choice, changed

FLAT = tyro.conf.arg(name="")
"""Marks a dataclass whose options have no prefix: --checkpoint, not --load.checkpoint."""
LIKELY = "likely"
"""Marks the field that an error suggests for a word without an option: Annotated[str, LIKELY]."""


EMPTY = "empty"
"""The value for an empty tuple in a field of a recipe that takes several values."""


class _Shown(str):
    """A text for tyro to show unchanged: it would double the blank lines between indented paragraphs."""

    def split(self, *_: Any) -> Any:
        return [str(self)]


class Option(NamedTuple):
    """An option: its name without dashes, such as `model.width`; its type; its default, or `tyro.MISSING`; its field's
    docstring; the marks of `typing.Annotated`; and whether it is changed most often."""

    name: str
    kind: Any
    default: Any
    help: str
    marks: tuple[Any, ...] = ()
    usual: bool = False

    @property
    def group(self) -> str:
        """The name up to the last dot; "" = none."""
        return self.name.rpartition(".")[0]


def _fields(part: Any, prefix: str) -> Iterator[tuple[str, str, Any, tuple[Any, ...], Any]]:
    """The fields that are options, or contain options: name, name or prefix of the options, type, marks and default."""
    kind = part if isinstance(part, type) else type(part)
    hints, marked = typing.get_type_hints(kind), typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        marks = getattr(marked[field.name], "__metadata__", ())
        default = field.default if part is kind else getattr(part, field.name, dataclasses.MISSING)
        if default is dataclasses.MISSING:
            make: Any = field.default_factory
            default = tyro.MISSING if make is dataclasses.MISSING else make()
        name = f"{prefix}{field.name.replace('_', '-')}"
        if dataclasses.is_dataclass(default):
            name = prefix if FLAT in marks else f"{name}."
        if tyro.conf.Fixed not in marks:
            yield field.name, name, hints[field.name], marks, default


def options_of(part: Any, prefix: str = "") -> Iterator[Option]:
    """The options of a dataclass, or of an instance with the defaults: first its own fields, then those of nested
    dataclasses."""
    docs = field_docs(part if isinstance(part, type) else type(part))
    usual = () if isinstance(part, type) else getattr(part, "usual", ())
    nested: list[Iterator[Option]] = []
    for field, name, kind, marks, default in _fields(part, prefix):
        if dataclasses.is_dataclass(default):
            if isinstance(default, Choice) and default.kind:
                yield Option(name[:-1], Literal[*default.kinds()], default.kind, docs.get(field, ""), marks)
            nested.append(options_of(default, name))
        else:
            yield Option(name, kind, default, docs.get(field, ""), marks, field in usual)
    for options in nested:
        yield from options


def with_kinds(part: Any, arguments: Sequence[str], prefix: str = "") -> Any:
    """The instance with nested configs of the kinds that a command names, such as `--optimizer muon`."""
    if isinstance(part, type):
        return part
    words = " ".join(arguments).replace("=", " ").split()
    part, named = copy.copy(part), dict(itertools.pairwise(words))
    for field, name, _, _, default in _fields(part, prefix):
        if dataclasses.is_dataclass(default):
            kind = named.get(f"--{name[:-1]}", "")
            inner = default.as_kind(kind) if isinstance(default, Choice) and kind in default.kinds() else default
            object.__setattr__(part, field, with_kinds(inner, arguments, name))
    return part


def _kinds_with(option: str, part: Any, prefix: str = "") -> Iterator[str]:
    """The choices that add this option to a command, such as `--optimizer muon`."""
    for _, name, _, _, default in _fields(part, prefix):
        for kind, chosen in default.kinds().items() if isinstance(default, Choice) else ():
            if any(option == one.name for one in options_of(chosen, name)):
                yield f"--{name[:-1]} {kind}"
        if dataclasses.is_dataclass(default):
            yield from _kinds_with(option, default, name)


def _built(part: Any, values: Mapping[str, Any], words: AbstractSet[str], prefix: str = "") -> Any:
    """The dataclass with the values of its options. Args: words: the options of the command."""
    fields, given = {}, set()
    for field, name, _, _, default in _fields(part, prefix):
        nested = dataclasses.is_dataclass(default)
        fields[field] = _built(default, values, words, name) if nested else values[name]
        if nested or not words.isdisjoint((f"--{name}", f"--{prefix}no-{name.removeprefix(prefix)}")):
            given.add(field)
    return part(**fields) if isinstance(part, type) else changed(part, fields, given)


def read_options(
    parts: Sequence[Any],
    arguments: Sequence[str],
    *,
    program: str,
    description: str = "",
    similar: Callable[[str, list[str]], list[str]] = similar_options,
) -> list[Any]:
    """Instances of some dataclasses, read from a command; their fields are the options, without a prefix.

    Exits with status 0 after help, and with status 2 after tyro's error for a value that is missing or of the wrong
    type.

    Args:
      parts: dataclasses, or instances with the defaults.
      arguments: the command without the program's name.
      program: the program's name in messages.
      description: text at the top of the help.
      similar: (option without dashes, known options) -> the known options that a misspelt one may mean.

    Raises: ValueError for an unknown option, and for a value that a dataclass refuses.
    """
    parts = [with_kinds(part, arguments) for part in parts]
    options = [option for part in parts for option in options_of(part)]
    values, unknown = _parse(options, _with_empty_lists(arguments, options), program, description)
    if unknown:
        name = unknown[0].partition("=")[0]
        choices = [choice for part in parts for choice in _kinds_with(name.removeprefix("--"), part)]
        if choices:
            *others, last = choices
            raise ValueError(f"{name} applies only to {' and '.join([', '.join(others), last] if others else [last])}")
        raise ValueError(_unknown(unknown[0], options, program, similar))
    for name, kind, default, *_ in options:  # tyro reads "one value or several" without a value as an empty tuple
        if values[name] == () != default and typing.get_origin(kind) is not tuple:
            raise ValueError(f"--{name} needs a value")
    try:
        words = {word.partition("=")[0].replace("_", "-") for word in arguments}
        return [_built(part, values, words) for part in parts]
    except ValueError as error:
        raise ValueError(with_option_names(str(error), parts)) from error


def _with_empty_lists(arguments: Sequence[str], options: Sequence[Option]) -> list[str]:
    """The command with `--model.widths empty` replaced by `--model.widths`: tyro's form of an empty tuple. Options
    without a group may be texts: there `empty` is a text."""
    lists = {f"--{one.name}" for one in options if one.group and typing.get_origin(one.kind) is tuple}
    words: list[str] = []
    for word in arguments:
        name, equals, value = word.partition("=")
        if word == EMPTY and words and words[-1].replace("_", "-") in lists:
            continue
        words.append(name if equals and value == EMPTY and name.replace("_", "-") in lists else word)
    return words


def show_help(options: Sequence[Option], *, program: str, description: str = "") -> None:
    """Prints help that shows these options."""
    with contextlib.suppress(SystemExit):
        _parse(options, ["--help"], program, description)


def _parse(
    options: Sequence[Option], arguments: Sequence[str], program: str, description: str
) -> tuple[dict[str, Any], list[str]]:
    """The value of each option, by name; and the words that tyro does not know."""
    groups: dict[str, list[Option]] = {}
    for option in options:
        groups.setdefault(option.group, []).append(option)
    fields: list[Any] = []
    for group, inner in groups.items():
        names = [option.name.removeprefix(f"{group}.").replace("-", "_") for option in inner]
        defaults: list[Any] = [option.default for option in inner]
        typed = zip(names, map(_typed, inner), defaults, strict=True)
        kind: Any = dataclasses.make_dataclass("Options", typed, kw_only=True)
        fields.append((f"group{len(fields)}", Annotated[kind, tyro.conf.arg(name=group)]))
    command: Any
    command, unknown = tyro.cli(
        dataclasses.make_dataclass("Command", fields),
        args=arguments,
        prog=program,
        description=_Shown(wrapped(description, "  ")),  # tyro does not wrap it
        return_unknown_args=True,
        config=(tyro.conf.HelptextFromCommentsOff,),  # its search takes half of the time
    )
    values = [value for group in vars(command).values() for value in vars(group).values()]
    inner = [option for group in groups.values() for option in group]
    return {option.name: value for option, value in zip(inner, values, strict=True)}, unknown


def _typed(option: Option) -> Any:
    """The type that tells tyro how to read an option, and how to show it."""
    # tyro would show a line break as it is, and an empty tuple as "(default: )".
    hint = {"\n": r"(default: \n)", (): ""}.get(option.default)
    positional = tyro.conf.Positional in option.marks and typing.get_origin(option.kind) is not tuple
    name = option.name.upper() if positional else None
    argument = tyro.conf.arg(help=option.help, help_behavior_hint=hint, metavar=name)
    return Annotated[option.kind, *option.marks, argument]


def _unknown(word: str, options: Sequence[Option], program: str, similar: Callable[..., list[str]]) -> str:
    """The error for a word that is neither an option nor the value of one."""
    known = [option.name for option in options if tyro.conf.Positional not in option.marks]
    name = word.partition("=")[0]
    nearest = [f"--{one}" for one in similar(name.lstrip("-").replace("_", "-"), known)]
    if not word.startswith("-"):
        nearest = nearest or [f"--{one.name} {shlex.quote(word)}" for one in options if LIKELY in one.marks]
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"see {program} --help"
    if word.lower() in ("true", "false"):
        hint = "options that are true or false take no value; give --NAME or --no-NAME"
    return f"there is no option {name}; {hint}" if word.startswith("-") else f"unexpected {word!r}: {hint}"


def with_option_names(message: str, parts: Sequence[Any]) -> str:
    """A dataclass's error with fields as options: --data.bpe-dropout for data.bpe_dropout.

    A name without a dot and an underscore stays unchanged: it may be an ordinary word.
    """
    options = {option.name.replace("-", "_"): option.name for part in parts for option in options_of(part)}
    names = sorted((name for name in options if "." in name or "_" in name), key=len, reverse=True)
    known = "|".join(map(re.escape, names)) or "(?!)"
    return re.sub(rf"(?<![\w./-])({known})(?![\w/-]|\.\w)", lambda name: f"--{options[name[0]]}", message)


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields, by name, each as one line."""
    docs: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        documented = docstring_parser.parse_from_object(base).params
        docs |= {doc.arg_name: " ".join((doc.description or "").split()) for doc in documented}
    return docs
