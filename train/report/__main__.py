"""`python -m train.report RUN`."""

import sys
from pathlib import Path
from typing import NoReturn

import tyro

from train.report import write_report


def main(run: Path, /) -> None:
    """Rebuild the report of a run and print its path.

    Args:
      run: The run's folder.
    """
    try:
        print(write_report(run))
    except FileNotFoundError as error:
        _fail(f"{error.filename} is missing; a run's folder has config.json, environment.json and metrics.jsonl")
    except (OSError, ValueError) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    tyro.cli(main)
