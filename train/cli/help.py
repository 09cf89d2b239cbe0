"""Help for a recipe: first the usual options, then the others by group."""

from collections.abc import Sequence

from jaxnlp.cli.messages import summary_of, table
from jaxnlp.cli.options import options_of, show_help
from jaxnlp.cli.suggestions import suggestion
from jaxnlp.config import Config

RUN, ALL = "run", "all"
"""Topics of help: options without a group; all options."""


def help_topic(fields: Sequence[str]) -> str | None:
    """The requested topic of help: "" = the usual options; None = the command does not ask for help."""
    for index, field in enumerate(fields):
        flag, _, topic = field.partition("=")
        if flag in ("-h", "--help"):
            return topic or next((word for word in fields[index + 1 : index + 2] if not word.startswith("-")), "")
    return None


def show_topic(topic: str, parts: Sequence[Config], *, program: str, description: str) -> None:
    """Prints the help of a topic.

    Args:
      topic: "" for the usual options; `RUN`, `ALL` or a group, such as `model`.
      parts: the program's options, then the config. The program's `unused` are usual options that are not shown.
      program: the program's name as typed, with the recipe.
      description: text at the top of the help.

    Raises: ValueError for an unknown topic; it suggests one.
    """
    options = [option for part in parts for option in options_of(part)]
    groups = {option.group or RUN: group_summary(parts[-1], option.group) for option in options}
    if topic not in ("", ALL, *groups):
        raise ValueError(f"there is no help on {topic!r}; {suggestion(topic, [*groups, ALL])}")
    unused = getattr(parts[0], "unused", ())
    chosen = {"": [option for option in options if option.usual and option.name not in unused], ALL: options}
    in_group = [option for option in options if (option.group or RUN) == topic]
    show_help(chosen.get(topic, in_group), program=program, description=groups.get(topic, description))
    if topic == "":
        print(f"\nThese options are changed most often. {program} --help GROUP shows others:\n")
        print(table([*groups.items(), (ALL, "All of these groups.")]))


def group_summary(config: Config, group: str) -> str:
    """The first sentence of the docstring of a group's config; "" = the options without a group."""
    if not group:
        return "Length, seed, checkpoints, folder."
    for name in group.split("."):
        config = config.__dict__[name.replace("-", "_")]
    return summary_of(config)
