"""Verbs of the command line for trained models; the task of a model defines its verbs."""

import dataclasses
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from jaxnlp.cli.messages import summary_of, table, wrapped
from jaxnlp.cli.options import read_options, show_help
from jaxnlp.cli.suggestions import suggestion
from jaxnlp.inference.compilation import compilation_announced
from jaxnlp.runs import Checkpoint, find_task, is_run, load
from jaxnlp.saving.checkpoints import DamagedCheckpointError
from jaxnlp.tasks import Command, every_task


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """Options for loading the model."""

    checkpoint: Checkpoint = "best"
    """The best on the validation split, the newest, or a step."""
    ignore: tuple[str, ...] = ()
    """Pretrained tensors to leave out, by their names or prefixes, such as classifier."""


def every_command() -> dict[str, list[type[Command]]]:
    """The verbs of all tasks, by name, and the commands of each: tasks may share a command."""
    found: dict[str, list[type[Command]]] = {}
    for task in every_task():
        for verb, kind in task().commands().items():
            kinds = found.setdefault(verb, [])
            if kind not in kinds:
                kinds.append(kind)
    return dict(sorted(found.items()))


def verb_table() -> str:
    """Every verb, each with one line. `_show_meanings` says what a verb of several tasks does with each model."""
    return table([(verb, _summary(kinds)) for verb, kinds in every_command().items()])


def _summary(kinds: Sequence[type[Command]]) -> str:
    summaries = [kind.summary for kind in kinds if kind.summary]
    return summaries[0] if summaries else summary_of(kinds[0])


def run_verb(verb: str, arguments: Sequence[str], program: str, others: Sequence[str] = ()) -> int:
    """Loads the model and runs the verb.

    Args:
      verb: name of the verb.
      arguments: the path of the model, then the verb's options.
      program: the program's name as typed, without the verb.
      others: commands that are not verbs, as suggestions for a misspelt verb.

    Returns: the exit status: 0, 1 for a damaged run, or 2 for a verb without arguments.

    Raises: ValueError, OSError for errors in the command or the model.
    """
    name = f"{program} {verb}"
    if not arguments or arguments[0].startswith("-"):
        known = _check_verb(verb, others, program)
        if arguments and arguments[0] not in ("-h", "--help"):
            raise ValueError(f"give the run's folder before the options: {name} {_run_first(arguments)}")
        _show_meanings(known[verb], name)
        return 0 if arguments else 2
    place, *flags = arguments
    # With tensors to ignore, an exported model may have another task, and so other verbs.
    whole = "--ignore" not in [flag.partition("=")[0] for flag in flags]
    try:
        verbs = find_task(place, whole=whole).commands()
    except (ValueError, OSError):
        if not is_run(place):
            _check_verb(verb, others, program)  # a misspelt verb is named before a folder that is not a run
        raise
    if verb not in verbs:
        raise ValueError(f"the model in {place} has no verb {verb!r}; {suggestion(verb, verbs)}")
    command, options = parse(verbs[verb], flags, f"{name} {place}")
    if not whole and not options.ignore:
        raise ValueError("--ignore: expected names of tensors, or their prefixes, got none")
    try:
        trained = load(place, checkpoint=options.checkpoint, ignore=options.ignore)
        with compilation_announced():
            command(trained, *(load(further) for further in command.further_models()))
    except DamagedCheckpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _run_first(arguments: Sequence[str]) -> str:
    """The arguments with the only folder among them first, or with RUN first where there is not exactly one."""
    folders = [word for word in arguments if Path(word).is_dir()]
    if len(folders) != 1:
        return f"RUN {shlex.join(arguments)}"
    return shlex.join([*folders, *(word for word in arguments if word not in folders)])


def _check_verb(verb: str, others: Sequence[str], program: str) -> Mapping[str, Collection[type[Command]]]:
    """All verbs, by name. Raises: ValueError when `verb` is unknown."""
    known = every_command()
    if verb not in known and Path(verb).is_dir():
        raise ValueError(f"give the verb before the run's folder: {program} VERB {verb}")
    if verb not in known:
        raise ValueError(f"there is no verb {verb!r}; {suggestion(verb, [*known, *others])}")
    return known


def parse(kind: type[Command], flags: Sequence[str], program: str) -> tuple[Command, LoadOptions]:
    """A verb's own options and those of loading. Exits with status 0 after help. Raises: ValueError."""
    command, load_options = read_options([kind, LoadOptions], flags, program=program, description=kind.__doc__ or "")
    return command, load_options


def _show_meanings(kinds: Collection[type[Command]], program: str) -> None:
    """Prints the help of a verb without a model."""
    if len(kinds) == 1:
        (kind,) = kinds
        show_help([kind, LoadOptions], program=f"{program} RUN", description=kind.__doc__ or "")
        return
    print(f"usage: {program} RUN [options]\n\nWhat this verb does depends on the model:\n")
    for kind in kinds:
        print(f"- {wrapped(kind.__doc__ or '', '  ')[2:]}\n")
    print(wrapped(f"{program} RUN --help shows the options for the model in RUN."))
