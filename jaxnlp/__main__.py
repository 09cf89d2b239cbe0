"""`jaxnlp VERB RUN`, or `python -m jaxnlp`: verbs of trained models, and programs such as `jaxnlp train`.

JAX is imported after the first line, since that takes seconds.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder: python -m puts it before the libraries, and it may have a numpy.py

from jaxnlp.cli.interrupts import end_at_interrupt, hold_interrupts, raise_at_interrupt

if __name__ == "__main__" or sys.argv[0].endswith(("/jaxnlp", "\\jaxnlp.exe")):  # before imports that take longer
    end_at_interrupt()

import importlib.metadata
import os

from jaxnlp.cli.messages import exit_status, program_name, say_that_jax_loads, table, wrapped
from jaxnlp.cli.programs import PROGRAMS, run_program
from jaxnlp.cli.restart import restart
from jaxnlp.cli.suggestions import suggestion

USAGE = """usage: {program} VERB RUN [options]

RUN is a run's folder; verbs of pretrained models also take a folder of their weights, or a name on the Hugging Face
Hub. {program} VERB RUN --help shows the options; {program} --version the version.

{program} VERB --help says what a verb does, with each kind of model:

{verbs}

Programs for training:
{programs}"""


def usage() -> str:
    """The help text that lists every verb."""
    from jaxnlp.cli.verbs import verb_table

    programs = table([(name, summary) for name, (_, summary) in PROGRAMS.items()])
    return wrapped(USAGE.format(program=program_name(), verbs=verb_table(), programs=programs))


def run(arguments: list[str]) -> int:
    """Runs a command. Returns: the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    if arguments == ["--version"]:
        print(f"jaxnlp {importlib.metadata.version('jaxnlp')}")
        return 0
    verb, *rest = arguments
    if verb == "help":
        return run([*rest[:1], "--help"])
    if verb.startswith("-"):
        raise ValueError(f"there is no option {verb}; {suggestion(verb, ['--help', '--version'])}")
    if verb in PROGRAMS:
        return run_program(verb, rest)
    say_that_jax_loads(rest)
    from jaxnlp.cli.verbs import run_verb

    raise_at_interrupt()
    return run_verb(verb, rest, program_name(), others=[*PROGRAMS])


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a run that failed or is damaged, 2 a wrong command, or a file that cannot be read or
    written."""
    if arguments is None:  # a process of its own
        hold_interrupts()
        arguments = sys.argv[1:]
        restart(huge_pages=not {*arguments[:1]}.isdisjoint(PROGRAMS))
        end_at_interrupt()
        os.environ["PYTHONSAFEPATH"] = "1"  # worker processes import nothing from the current folder, either
    in_code = arguments[:1] and arguments[0] in ("train", "lr-find", "compile", "shardings")
    return exit_status(lambda: run(arguments), bare_errors=not in_code)


if __name__ == "__main__":
    sys.exit(main())
