"""Help for a recipe: first the usual options, then the others by group."""

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import tyro

from jaxnlp.cli.messages import summary_of, table
from jaxnlp.cli.options import field_docs, hidden_fields, show_help
from jaxnlp.cli.suggestions import suggestion
from jaxnlp.config import Config

FLAGS = ("-h", "--help")
RUN, ALL = "run", "all"
"""Topics of help: options without a group; all options."""


class Option(NamedTuple):
    """An option of a command: its name without dashes, such as `model.width`; its type, default and help; whether it is
    usual."""

    name: str
    kind: Any
    default: Any
    help: str
    usual: bool

    @property
    def group(self) -> str:
        """The part of its name before the last dot, or `RUN`."""
        return self.name.rpartition(".")[0] or RUN


def options_of(config: Config, prefix: str = "", hidden: Mapping[int, set[str]] | None = None) -> Iterator[Option]:
    """The options of a config that have an effect: its own fields, then the fields of its nested configs."""
    hidden = hidden_fields([config]) if hidden is None else hidden
    kind: Any = type(config)
    hints, docs = typing.get_type_hints(kind, include_extras=True), field_docs(kind)
    inner = []
    for field in dataclasses.fields(config):
        name, value = f"{prefix}{field.name.replace('_', '-')}", config.__dict__[field.name]
        if field.name in hidden[id(config)]:
            continue
        if isinstance(value, Config):
            inner.append((value, f"{name}."))
        elif tyro.conf.Fixed not in getattr(hints[field.name], "__metadata__", ()):
            usual = field.name in config.usual
            yield Option(name, hints[field.name], value, docs.get(field.name, ""), usual)
    for value, name in inner:
        yield from options_of(value, name, hidden)


def help_topic(fields: Sequence[str]) -> str | None:
    """The requested topic of help: "" = the usual options; None = the command does not ask for help."""
    for number, field in enumerate(fields):
        flag, _, topic = field.partition("=")
        if flag in FLAGS:
            return topic or next((word for word in fields[number + 1 : number + 2] if not word.startswith("-")), "")
    return None


def show_topic(topic: str, parts: Sequence[Config], *, program: str, description: str) -> None:
    """Prints the help of a topic.

    Args:
      topic: "" for the usual options; `RUN`, `ALL` or a group, such as `model`.
      parts: the program's options and the config.
      program: the program's name as typed, with the recipe.
      description: text at the top of the help.

    Raises: ValueError for an unknown topic; it suggests one.
    """
    options = [option for part in parts for option in options_of(part)]
    groups = {option.group: group_summary(parts, option.group) for option in options}
    if topic == "":
        show_help([_page([option for option in options if option.usual])], program=program, description=description)
        print(f"\nThese options are changed most often. {program} --help GROUP shows others:\n")
        print(table([*groups.items(), (ALL, "All of these groups.")]))
    elif topic == ALL:
        show_help(parts, program=program, description=description)
    elif topic in groups:
        chosen = [option for option in options if option.group == topic]
        show_help([_page(chosen)], program=program, description=groups[topic])
    else:
        raise ValueError(f"there is no help on {topic!r}; {suggestion(topic, [*groups, ALL])}")


def group_summary(parts: Sequence[Config], group: str) -> str:
    """The first sentence of the docstring of a group's config."""
    if group == RUN:
        return "Length, seed, checkpoints, folder."
    config: Any = parts[-1]
    for name in group.split("."):
        config = config.__dict__[name.replace("-", "_")]
    return summary_of(config)


def _page(options: Sequence[Option]) -> Any:
    """A dataclass with only these options, in one group."""
    fields: list[Any] = [
        (f"option{number}", Annotated[option.kind, tyro.conf.arg(name=option.name, help=option.help)], option.default)
        for number, option in enumerate(options)
    ]
    return dataclasses.make_dataclass("Options", fields)
