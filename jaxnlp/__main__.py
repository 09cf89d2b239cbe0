"""`jaxnlp VERB RUN`, or `python -m jaxnlp`: what a trained model can do. `jaxnlp train` and its like are in a checkout.

JAX is imported after the first line, since that takes seconds.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder: python -m puts it before the libraries, and it may have a numpy.py

import importlib.metadata
from pathlib import Path

from jaxnlp.cli.checkout import MODULES, SUMMARIES, run_in_checkout
from jaxnlp.cli.closed_pipes import end_on_closed_pipe
from jaxnlp.cli.messages import reason, say_that_jax_loads, show_plain_warnings, table, usage_text
from jaxnlp.cli.suggestions import suggestion

USAGE = """usage: {program} VERB RUN [options]

RUN is a run's folder; verbs of pretrained models also take a folder of their weights, or a name on the Hugging Face
Hub. {program} VERB RUN --help shows the options; {program} --version the version.

{program} VERB --help says what a verb does, with each kind of model:

{verbs}

Programs for training, in a checkout of the repository:
{programs}"""


def program_name() -> str:
    """The name of the program: the installed command, or the module."""
    return "jaxnlp" if Path(sys.argv[0]).stem == "jaxnlp" else "python -m jaxnlp"


def usage() -> str:
    """The help text that lists every verb."""
    from jaxnlp.cli.verbs import verb_table

    return usage_text(USAGE.format(program=program_name(), verbs=verb_table(), programs=table([*SUMMARIES.items()])))


def run(arguments: list[str]) -> int:
    """Does what was typed. Returns: the exit status."""
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
    if verb in MODULES:
        run_in_checkout(verb, rest, f"{program_name()} {verb}")
    say_that_jax_loads(rest)
    from jaxnlp.cli.verbs import run_verb

    return run_verb(verb, rest, program_name(), others=[*MODULES])


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a damaged run, 2 a wrong command, or a file that cannot be read or written."""
    arguments = sys.argv[1:] if arguments is None else arguments
    end_on_closed_pipe()
    show_plain_warnings()
    try:
        return run(arguments)
    except KeyboardInterrupt:
        print()
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {reason(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
