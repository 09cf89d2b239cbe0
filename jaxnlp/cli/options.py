"""Options of a program: the fields of dataclasses, read from the command line by tyro.

Help texts are the docstrings of the fields, as one line each. The error for a value of the wrong type names the
expected type.
"""

import collections
import contextlib
import dataclasses
import functools
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

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

from jaxnlp.cli.messages import wrapped
from jaxnlp.cli.option_values import one_line, values_of
from jaxnlp.cli.suggestions import similar_options
from jaxnlp.config import Config

Similar = Callable[[str, list[str]], list[str]]
"""The options that a misspelt one may mean: (option without dashes, known options) -> some of these."""
FLAT = tyro.conf.arg(name="")
"""Marks a dataclass whose options have no prefix: --checkpoint, not --load.checkpoint."""

LIKELY = "likely"
"""Marks the field whose option an error names for a word without an option: Annotated[str, LIKELY]."""


def read_options(
    parts: Sequence[Any],
    arguments: Sequence[str],
    *,
    program: str,
    description: str = "",
    similar: Similar = similar_options,
) -> list[Any]:
    """Reads a command into dataclasses; their fields are the options, without a prefix.

    Exits with status 0 after printing help.

    Args:
      parts: dataclasses, or instances of them whose values are the defaults.
      arguments: the command without the program's name.
      program: the program's name in messages.
      description: text at the top of the help.
      similar: finds the options that a misspelt one may mean.

    Returns: an instance of each part.

    Raises: ValueError for an unknown option, and for a value that is missing, of the wrong type or refused by a
    dataclass.
    """
    for_help = bool({"-h", "--help"} & set(arguments))
    if not for_help:
        _check(arguments, _options(parts), program, similar)
    fields: list[Any] = []
    for number, part in enumerate(parts):
        kind = part if isinstance(part, type) else type(part)
        default = dataclasses.field() if part is kind else dataclasses.field(default=part)
        fields.append((f"part{number}", Annotated[kind, FLAT], default))
    try:
        command: Any = tyro.cli(
            dataclasses.make_dataclass("Command", fields, kw_only=True),
            args=arguments,
            prog=program,
            description=wrapped(description, "  "),  # tyro joins lines that are not indented
            config=(tyro.conf.SuppressFixed,),
            registry=_registry(hidden_fields(parts) if for_help else {}),
        )
    except _RefusedError as refused:
        raise ValueError(with_option_names(str(refused), parts)) from None
    return [getattr(command, name) for name, *_ in fields]


def show_help(parts: Sequence[Any], *, program: str, description: str = "") -> None:
    """Prints the help of `read_options`."""
    with contextlib.suppress(SystemExit):
        read_options(parts, ["--help"], program=program, description=description)


def with_option_names(message: str, parts: Sequence[Any]) -> str:
    """An error of a dataclass with its fields as they are typed: --data.bpe-dropout for data.bpe_dropout.

    A name without a dot and an underscore stays unchanged, because it may be a word of the text.
    """
    found = _options(parts)
    options = {name.replace("-", "_"): name for name in (*found.kinds, *found.flags)}
    names = sorted((name for name in options if "." in name or "_" in name), key=len, reverse=True)
    if not names:
        return message
    known = "|".join(map(re.escape, names))
    return re.sub(rf"(?<![\w./-])({known})(?![\w/-]|\.\w)", lambda name: f"--{options[name[0]]}", message)


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields, by their names, each as one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            documented = docstring_parser.parse_from_object(base).params
            found |= {doc.arg_name: " ".join((doc.description or "").split()) for doc in documented}
    return found


def hidden_fields(parts: Sequence[Any]) -> dict[int, set[str]]:
    """The names of the fields that help does not show (`Config.ignores`), by the `id` of each config in the parts."""
    found: dict[int, set[str]] = {}
    for part in parts:
        if not isinstance(part, Config):
            continue
        hidden = found.setdefault(id(part), set())
        hidden.update(part.ignores)
        inner = {field.name: part.__dict__[field.name] for field in dataclasses.fields(part)}
        for key, names in hidden_fields([*inner.values()]).items():
            found.setdefault(key, set()).update(names)
        for first, _, rest in (name.partition(".") for name in hidden):
            if rest:
                found[id(inner[first])].add(rest)
    return found


def _registry(hidden: Mapping[int, set[str]]) -> ConstructorRegistry:
    """The rules by which tyro reads options, without the hidden fields."""
    registry = ConstructorRegistry()

    @registry.struct_rule
    def _fields_with_docs(info: StructTypeInfo) -> StructConstructorSpec | None:
        """A dataclass. (tyro's own rule keeps the line breaks of the source in help texts.)"""
        if not dataclasses.is_dataclass(info.type):
            return None
        hints, docs = typing.get_type_hints(info.type, include_extras=True), field_docs(info.type)
        out_of_sight = hidden.get(id(info.default), set())
        fields = []
        for field in dataclasses.fields(info.type):
            kind: Any = hints[field.name]
            if field.name in out_of_sight:
                kind = Annotated[kind, tyro.conf.Suppress]
            fields.append(_field_spec(field.name, kind, _default(field, info.default), docs.get(field.name)))
        return StructConstructorSpec(functools.partial(_build, info.type), tuple(fields))

    registry.primitive_rule(_simple_values)
    return registry


class _RefusedError(Exception):
    """A dataclass refused its values. (tyro would catch a ValueError.)"""


def _build(kind: Any, **values: Any) -> Any:
    try:
        return kind(**values)
    except ValueError as error:
        raise _RefusedError(str(error)) from error


def _field_spec(name: str, kind: Any, default: Any, help: str | None) -> StructFieldSpec:
    if default == ():  # an empty tuple would be shown as "(default: )"
        kind = Annotated[kind, tyro.conf.arg(help_behavior_hint="")]
    return StructFieldSpec(name, kind, default, help)


def _default(field: dataclasses.Field[Any], instance: Any) -> Any:
    if dataclasses.is_dataclass(instance) and not isinstance(instance, type):
        return getattr(instance, field.name)
    if field.default is not dataclasses.MISSING:
        return field.default
    return tyro.MISSING if field.default_factory is dataclasses.MISSING else field.default_factory()


def _simple_values(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Everything that `values_of` reads. (tyro's own rules make no suggestions, and name Python's types in errors.)"""
    values = values_of(info.type)
    if values is None:
        return None
    return PrimitiveConstructorSpec(
        nargs=1 if values.one_word else "*",
        metavar=values.metavar,
        instance_from_str=values.read,
        is_instance=values.fits,
        str_from_instance=lambda value: [one_line(item) for item in (value if isinstance(value, tuple) else [value])],
    )


class _Options(NamedTuple):
    """What a command may have.

    Attributes:
      flags: the names of options of type bool, without dashes.
      kinds: by the name of each other option, the type of its value.
      places: the arguments without a name: name, type, help, and whether there is a default.
      likely: the options that are marked `LIKELY`.
    """

    flags: set[str]
    kinds: dict[str, Any]
    places: list[tuple[str, Any, str, bool]]
    likely: list[str]


def _options(parts: Sequence[Any], prefix: str = "") -> _Options:
    found = _Options(set(), {}, [], [])
    for part in parts:
        kind = part if isinstance(part, type) else type(part)
        hints, docs = typing.get_type_hints(kind, include_extras=True), field_docs(kind)
        for field in dataclasses.fields(kind):
            marks = getattr(hints[field.name], "__metadata__", ())
            inner = typing.get_type_hints(kind)[field.name]
            value, name = _default(field, part), f"{prefix}{field.name.replace('_', '-')}"
            if tyro.conf.Fixed in marks:
                continue
            if dataclasses.is_dataclass(inner) or dataclasses.is_dataclass(value):
                flat = any(getattr(mark, "name", None) == "" for mark in marks)
                below = _options([inner if value is tyro.MISSING else value], prefix if flat else f"{name}.")
                found.flags.update(below.flags)
                found.kinds.update(below.kinds)
            elif tyro.conf.Positional in marks:
                found.places.append((field.name, inner, docs.get(field.name, ""), value is not tyro.MISSING))
            elif inner is bool:
                found.flags.add(name)
            else:
                found.kinds[name] = inner
            if LIKELY in marks:
                found.likely.append(name)
    return found


def _check(arguments: Sequence[str], options: _Options, program: str, similar: Similar) -> None:
    """Raises ValueError for the first word of a command that cannot be read; tyro's own errors fill a screen."""
    words, loose, literal = collections.deque(arguments), [], False
    while words:
        word = words.popleft()
        if word == "--" and not literal:
            literal = True
        elif literal or not _is_option(word):
            loose.append(word)
        else:
            _check_option(word, words, options, program, similar)
    endless = any(values is not None and values.items for values in (values_of(kind) for _, kind, *_ in options.places))
    if not endless and len(loose) > len(options.places):
        word = loose[len(options.places)]
        known = [*options.kinds, *sorted(options.flags)]
        hint = _hint(word.replace("_", "-"), known, program, similar)
        if options.likely and not similar(word.replace("_", "-"), known):
            hint = f"did you mean --{options.likely[0]} {shlex.quote(word)}?"
        raise ValueError(f"unexpected {word!r}: options start with --; {hint}")
    for name, kind, help, has_default in options.places[len(loose) :]:
        values = values_of(kind)
        if not has_default and (values is None or not values.items):  # any number of words may be none
            raise ValueError(
                f"{name.upper()} is missing: {help[:1].lower()}{help[1:].rstrip('.')}; see {program} --help"
            )


def _check_option(word: str, words: collections.deque[str], options: _Options, program: str, similar: Similar) -> None:
    """Takes the option's value from the words after it, and checks it."""
    option, attached, value = word.partition("=")
    name = option.lstrip("-").replace("_", "-") if option.startswith("--") else ""
    section, dot, last = name.rpartition(".")
    positive = f"{section}{dot}{last.removeprefix('no-')}"
    if name in options.flags or positive in options.flags:
        given = value if attached else words[0] if words and words[0].lower() in ("true", "false") else None
        if given is not None:
            off = f"--{positive.removesuffix(last.removeprefix('no-'))}no-{last.removeprefix('no-')}"
            raise ValueError(f"{option} takes no value, got {given!r}; give --{positive} or {off}")
        return
    if name not in options.kinds:
        known = [*options.kinds, *sorted(options.flags)]
        raise ValueError(f"there is no option {option}; {_hint(name or option[1:], known, program, similar)}")
    values = values_of(options.kinds[name])
    given_words = [value] if attached else []
    while words and not _is_option(words[0]) and words[0] != "--":
        if values is not None and values.one_word and given_words:
            break
        given_words.append(words.popleft())
    if values is None:
        return
    if not given_words and not (values.items and not values.single):
        raise ValueError(f"{option} needs a value: {values.expected}")
    try:
        values.read(given_words)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def _hint(name: str, known: list[str], program: str, similar: Similar) -> str:
    nearest = similar(name, known)
    return f"did you mean {' or '.join(f'--{one}' for one in nearest)}?" if nearest else f"see {program} --help"


def _is_option(word: str) -> bool:
    """Whether a word is an option, not a value: a dash, and then a letter. -5 and -inf are numbers."""
    return (
        word.startswith("-") and word.lstrip("-")[:1].isalpha() and word[1:].lower() not in ("inf", "nan", "infinity")
    )
