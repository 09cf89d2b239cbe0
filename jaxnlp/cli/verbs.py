"""Verbs of the command line for trained models; each task defines its own."""

import dataclasses
import inspect
import shlex
from collections.abc import Sequence
from pathlib import Path

from jaxnlp.cli.format_options import FileFormat
from jaxnlp.cli.messages import summary_of, table, wrapped
from jaxnlp.cli.options import options_of, read_options, show_help
from jaxnlp.cli.suggestions import suggestion
from jaxnlp.inference.compilation import compilation_announced
from jaxnlp.runs import Checkpoint, find_task, is_run, load
from jaxnlp.tasks import Command, Weights, every_task


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """Options for loading the model."""

    checkpoint: Checkpoint = "best"
    """best on the validation split, latest, or a step."""
    ignore: tuple[str, ...] = ()
    """Pretrained tensors to leave out, by their names or prefixes, such as classifier."""
    weights: Weights = "float32"
    """bfloat16: dense layers in 16 bits, faster on processors that support it; int8: in 8 bits, faster generation on
    CPU. Results differ slightly."""


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """Options of verbs that read files."""

    data: FileFormat = dataclasses.field(default_factory=FileFormat)


def every_command() -> dict[str, list[type[Command]]]:
    """The verbs of all tasks, by name, each with its commands: tasks may share a command."""
    commands: dict[str, list[type[Command]]] = {}
    for task in every_task():
        for verb, kind in task().commands.items():
            if kind not in commands.setdefault(verb, []):
                commands[verb].append(kind)
    return dict(sorted(commands.items()))


def verb_table() -> str:
    """Every verb with one line; its own help says what it does for each model."""
    rows = {verb: [kind.summary for kind in kinds if kind.summary] for verb, kinds in every_command().items()}
    return table([(verb, (rows[verb] or [summary_of(kinds[0])])[0]) for verb, kinds in every_command().items()])


def run_verb(verb: str, arguments: Sequence[str], program: str, others: Sequence[str] = ()) -> int:
    """Loads the model, whose path is the first argument, and runs the verb. Returns: the exit status.

    Raises: ValueError, OSError for errors in the command or the model; for a misspelt verb they suggest one of
    `others`.
    """
    path, *flags = arguments or [""]
    if path in ("", "-h", "--help"):
        _show_meanings(verb, _meanings(verb, others, program), f"{program} {verb}")
        return 0 if path else 2
    if path.startswith("-"):
        raise ValueError(f"give the run's folder before the options: {program} {verb} RUN {shlex.join(arguments)}")
    # With tensors to ignore, an exported model may have another task, and so other verbs.
    whole = "--ignore" not in [flag.partition("=")[0] for flag in flags]
    try:
        verbs = find_task(path, whole=whole).commands
    except (ValueError, OSError):
        if not is_run(path):
            _meanings(verb, others, program)  # a misspelt verb is named before a folder that is not a run
        raise
    if verb not in verbs:
        raise ValueError(f"the model in {path} has no verb {verb!r}; {suggestion(verb, verbs)}")
    command, options, format = parse_options(verbs[verb], flags, f"{program} {verb} {path}")
    if not whole and not options.ignore:
        raise ValueError("--ignore: expected names of tensors, or their prefixes, got none")
    if command.as_trained and options.weights != "float32":
        raise ValueError(f"--weights does not apply: {verb} reads the weights as they were trained; leave it out")
    format.check_files(getattr(command, "file", None), *command.further_files())
    trained = load(path, checkpoint=options.checkpoint, ignore=options.ignore)
    data = {**trained.config.get("data", {}), **format.given}
    trained = dataclasses.replace(trained, config={**trained.config, "data": data})
    trained = trained if options.weights == "float32" else trained.rounded(options.weights)
    with compilation_announced():
        command(trained, *(load(further) for further in command.further_models()))
    return 0


def parse_options(kind: type[Command], flags: Sequence[str], program: str) -> tuple[Command, LoadOptions, FileFormat]:
    """The options of a verb, its model and its files. Exits with status 0 after help. Raises: ValueError."""
    found = read_options(_options_of(kind), flags, program=program, description=_help_of(kind))
    command, load_options, files = (*found, FileOptions())[:3]
    return command, load_options, files.data


def _options_of(kind: type[Command]) -> list[type]:
    """The dataclasses of a verb's options."""
    reads_files = hasattr(kind, "file") or kind.further_files is not Command.further_files
    return [kind, LoadOptions, FileOptions] if reads_files else [kind, LoadOptions]


def _help_of(kind: type[Command]) -> str:
    """A command's docstring without its `Raises`."""
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    return "\n\n".join(paragraph for paragraph in paragraphs if not paragraph.startswith("Raises"))


def _meanings(verb: str, others: Sequence[str], program: str) -> list[type[Command]]:
    """The commands of a verb. Raises: ValueError when it is unknown."""
    known = every_command()
    if verb not in known:
        first = f"give it before the folder: {program} VERB {verb}" if Path(verb).is_dir() else ""
        raise ValueError(f"there is no verb {verb!r}; {first or suggestion(verb, [*known, *others])}")
    return known[verb]


def _show_meanings(verb: str, kinds: Sequence[type[Command]], program: str) -> None:
    """Prints the help of a verb without a model."""
    if len(kinds) == 1:
        options = [option for part in _options_of(kinds[0]) for option in options_of(part)]
        show_help(options, program=f"{program} RUN", description=_help_of(kinds[0]))
        return
    print(f"usage: {program} RUN [options]\n\nWhat {verb} does depends on the model:\n")
    for kind in kinds:
        print(f"- {wrapped(_help_of(kind), '  ')[2:]}\n")
    print(wrapped(f"{program} RUN --help shows the options for the model in RUN."))
