"""`python -m train.report RUN`."""

import sys
from pathlib import Path
from typing import NoReturn

import tyro

from jaxnlp.checkpoints import DamagedCheckpointError, check_run_files, checkpoint_steps, read_record
from train.report import write_report


def main(run: Path, /) -> None:
    """Rebuild the report of a run and print its path.

    Args:
      run: The run's folder.
    """
    try:
        _check_config(run)
        print(write_report(run))
    except FileNotFoundError as error:
        _fail(f"{error.filename} is missing; a run's folder has config.json, environment.json and metrics.jsonl")
    except (OSError, ValueError) as error:
        _fail(str(error))


def _check_config(run: Path) -> None:
    """Raises ValueError when config.json was edited since the newest checkpoint: the page would show another run."""
    for step in reversed(checkpoint_steps(run)):
        try:
            check_run_files(run, read_record(run, step))
        except DamagedCheckpointError:  # what was logged can be shown all the same
            continue
        return


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    tyro.cli(main)
