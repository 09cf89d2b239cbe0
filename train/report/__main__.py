"""`python -m train.report RUN`."""

import sys
import time

from train.cli.launcher import program_name, start

if __name__ == "__main__":
    start("train.report", started=time.time(), huge_pages=False, results=True)

from pathlib import Path
from typing import NoReturn

from jaxnlp.cli.messages import reason, usage_text
from jaxnlp.saving.checkpoints import (
    DamagedCheckpointError,
    check_run_files,
    checkpoint_steps,
    read_record,
    runs_inside,
)
from train.report import write_report

PROGRAM = program_name("train.report")
USAGE = f"""usage: {PROGRAM} RUN

Rebuilds the report of a run, and prints its path. RUN is the run's folder."""


def main(run: Path) -> None:
    """Rebuilds the report of a run and prints its path. Raises: SystemExit with status 2 when it cannot."""
    try:
        _check_config(run)
        print(write_report(run))
    except FileNotFoundError as error:
        inside = runs_inside(run) or "; a run's folder has config.json, environment.json and metrics.jsonl"
        _fail(f"{error.filename} is missing{inside}")
    except (OSError, ValueError) as error:
        _fail(reason(error))


def _check_config(run: Path) -> None:
    """Raises ValueError when config.json was edited after the newest checkpoint: the page would show a wrong config."""
    for step in reversed(checkpoint_steps(run)):
        try:
            check_run_files(run, read_record(run, step))
        except DamagedCheckpointError:  # the page can still show what was logged
            continue
        return


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def command(arguments: list[str]) -> int:
    """Runs the command. Returns: the exit status; 2 for a wrong command."""
    if arguments in ([], ["-h"], ["--help"]):
        print(usage_text(USAGE))
        return 0 if arguments else 2
    if len(arguments) != 1 or arguments[0].startswith("-"):
        _fail(f"give one run, and no option: {PROGRAM} RUN")
    main(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
