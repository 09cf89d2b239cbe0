"""`jaxnlp VERB PLACE`, or `python -m jaxnlp`: runs a verb of a trained model; its task defines the verbs."""

import dataclasses
import difflib
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxnlp.caches import use_compilation_cache
from jaxnlp.checkpoints import DamagedCheckpointError
from jaxnlp.runs import Checkpoint, find_task, load
from jaxnlp.tasks import Command, every_task

USAGE = """usage: {program} VERB PLACE [options]

PLACE is a run's folder; verbs of pretrained models also take a folder of their weights, or a name on the Hugging Face
Hub. {program} VERB PLACE --help shows the options; {program} --version the version.

Verbs, if the model's task has them:
"""


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """Options of loading the model."""

    checkpoint: Checkpoint = "best"
    """The checkpoint: the best on the validation split, the latest, or a step."""
    ignore: tuple[str, ...] = ()
    """Pretrained tensors to ignore, by their names or prefixes, such as classifier."""


def every_command() -> dict[str, tuple[type[Command], ...]]:
    """The verbs of all tasks, by name; several tasks may have a verb of the same name."""
    found: dict[str, tuple[type[Command], ...]] = {}
    for task in every_task():
        for verb, kind in task().commands().items():
            kinds = found.get(verb, ())
            found[verb] = kinds if kind in kinds else (*kinds, kind)
    return dict(sorted(found.items()))


def usage() -> str:
    """The help text that lists every verb."""
    commands = every_command()
    width = max(map(len, commands))
    summaries = ((verb, (kind.__doc__ or "").partition("\n")[0]) for verb, kinds in commands.items() for kind in kinds)
    return USAGE.format(program=program_name()) + "\n".join(
        f"  {verb:<{width}}  {summary}" for verb, summary in summaries
    )


def program_name() -> str:
    """The name of the program: the installed command, or the module."""
    return "jaxnlp" if Path(sys.argv[0]).stem == "jaxnlp" else "python -m jaxnlp"


def run(arguments: list[str]) -> int:
    """Loads the model and runs the verb. Returns: the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    if arguments == ["--version"]:
        print(f"jaxnlp {importlib.metadata.version('jaxnlp')}")
        return 0
    verb, *rest = arguments
    program = f"{program_name()} {verb}"
    if not rest or rest[0].startswith("-"):
        known = every_command()
        if verb not in known:
            raise ValueError(f"unknown verb {verb!r}; {_nearest(verb, known)}")
        if rest and rest[0] not in ("-h", "--help"):
            raise ValueError(f"give the run's folder before the options: {program} PLACE {' '.join(rest)}")
        meanings = "\n\n".join(kind.__doc__ or "" for kind in known[verb])
        print(f"usage: {program} PLACE [options]\n\n{meanings}\n\n{program} PLACE --help shows the options.")
        return 0 if rest else 2
    place, *flags = rest
    verbs = find_task(place).commands()
    if verb not in verbs:
        raise ValueError(f"the model in {place} has no verb {verb!r}; {_nearest(verb, verbs)}")
    command, options = parse(verbs[verb], flags, f"{program} {place}")
    use_compilation_cache(None)
    trained = load(place, checkpoint=options.checkpoint, ignore=options.ignore)
    command(trained, *(load(further) for further in command.further_models()))
    return 0


def _nearest(verb: str, verbs: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(verb, verbs, n=1)
    return f"did you mean {close[0]}?" if close else f"known verbs: {', '.join(verbs) or 'none'}"


def parse(kind: type[Command], flags: list[str], program: str) -> tuple[Command, LoadOptions]:
    """The options of a verb and those of loading. Exits with status 0 after help, and 2 for wrong options."""
    flat = tyro.conf.arg(name="")
    both = dataclasses.make_dataclass(
        "Options", [("command", Annotated[kind, flat]), ("load", Annotated[LoadOptions, flat])]
    )
    typed: Any = tyro.cli(both, args=flags, prog=program, description=kind.__doc__)
    return typed.command, typed.load


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 = done, 1 = damaged run, 2 = wrong command, or a file that cannot be read or written."""
    try:
        return run(sys.argv[1:] if arguments is None else arguments)
    except DamagedCheckpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
