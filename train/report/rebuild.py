"""`jaxnlp report RUN`: rebuilds the page of a run."""

from pathlib import Path

from jaxnlp.cli.messages import program_name, wrapped
from jaxnlp.runs import runs_inside
from jaxnlp.saving.checkpoint_reading import DamagedCheckpointError, checkpoint_steps, read_record, read_run_files
from train.report import write_report

PROGRAM = f"{program_name()} report"
USAGE = f"""usage: {PROGRAM} RUN

Rebuilds the report of a run, and prints its path. RUN is the run's folder."""


def main(arguments: list[str]) -> int:
    """Rebuilds the report of a run, and prints its path. Returns: the exit status.

    Raises: ValueError, OSError for a wrong command, and for a folder that is not a run.
    """
    if arguments in ([], ["-h"], ["--help"]):
        print(wrapped(USAGE))
        return 0 if arguments else 2
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise ValueError(f"give one run, and no option: {PROGRAM} RUN")
    run = Path(arguments[0]).expanduser()
    _check_config(run)
    try:
        print(write_report(run))
    except FileNotFoundError as error:
        inside = runs_inside(run) or "; a run's folder has config.json, environment.json and metrics.jsonl"
        raise FileNotFoundError(f"{error.filename} is missing{inside}") from error
    return 0


def _check_config(run: Path) -> None:
    """Raises ValueError when config.json was edited after the newest checkpoint."""
    for step in reversed(checkpoint_steps(run)):
        try:
            read_run_files(run, read_record(run, step))
        except DamagedCheckpointError:  # the page can still show what was logged
            continue
        return
