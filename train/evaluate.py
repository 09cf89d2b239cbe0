"""`python -m train.evaluate RUN`: scores a run on a split or a file, and records the number in the ledger."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Literal

import tyro

from data import DataError
from jaxnlp.runs import DamagedCheckpointError, Run, RunError, load_run
from jaxnlp.serialization import to_json
from train import folder
from train.command_line import use_compilation_cache
from train.evaluation import compile_evaluation, evaluate
from train.objectives import OBJECTIVES
from train.parallel import make_parallel

MOST_METRICS_LINES = 2000
"""Lines of a run's metrics that the ledger keeps."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Scores a run with its own objective."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    split: str = "validation"
    """The split of its data set to score."""
    file: Path | None = None
    """Score this UTF-8 text instead of a split."""
    checkpoint: int | Literal["best", "latest"] = "latest"
    """The newest, the one with the lowest validation loss, or a step."""
    record: Path | None = None
    """Append the numbers to this ledger file, docs/results/RECIPE.json, and lay the run's metrics beside it."""

    def __post_init__(self):
        if self.file is not None and self.record is not None:
            raise ValueError("the ledger holds numbers on splits: give --record without --file")


def score(command: Evaluate) -> list[dict[str, Any]]:
    """An entry for each metric, as the ledger keeps it.

    Raises:
      RunError, DamagedCheckpointError: when there is no such run or checkpoint.
      RunMismatchError: when the data has changed since the run began.
      DataError: when there is no such split, or the file cannot be scored.
    """
    run = load_run(command.run, checkpoint=command.checkpoint)
    config = folder.read_config(run.folder)
    if command.file is None:
        corpus = config.data.load(config.seed)
        folder.claim(run.folder, config, corpus)
        split, batches = command.split, corpus.batches(command.split)
    else:
        split, batches = str(command.file), config.data.read_file(command.file, run.vocabulary)
    layout = make_parallel("jit")
    step = compile_evaluation(OBJECTIVES[config.objective](run.model), layout)
    values, examples = evaluate(step, run.params, batches, layout)
    return [
        {
            "recipe": config.recipe,
            "metric": metric,
            "split": split,
            "value": value,
            "examples": examples,
            "steps": run.step,
            **_circumstances(run),
            "seed": config.seed,
            "config": to_json(config),
        }
        for metric, value in values.items()
    ]


def _circumstances(run: Run) -> dict[str, Any]:
    environment = json.loads((run.folder / folder.ENVIRONMENT_FILE).read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in (run.folder / folder.METRICS_FILE).read_text(encoding="utf-8").splitlines()]
    return {
        "train_seconds": max(row["train_seconds"] for row in rows if row["step"] <= run.step),
        "device": f"{environment['devices']} x {environment['device']}, {environment['cpu_cores']} CPU cores",
        "versions": environment["versions"],
        "commit": environment["commit"],
        "command": environment["command"],
        "seconds_to_first_step": environment.get("seconds_to_first_step"),
    }


def record(entries: list[dict[str, Any]], ledger: Path, run: Path) -> Path:
    """Adds entries to a ledger file; the run's metrics, thinned, go beside it. Returns: the metrics' path."""
    held = json.loads(ledger.read_text(encoding="utf-8")) if ledger.exists() else []
    ledger.parent.mkdir(parents=True, exist_ok=True)
    folder.write_json(ledger, held + entries)
    lines = (run / folder.METRICS_FILE).read_text(encoding="utf-8").splitlines(keepends=True)
    evaluations = [line for line in lines if json.loads(line)["split"] != "train"]
    training = [line for line in lines if json.loads(line)["split"] == "train"]
    stride = -(-len(training) // max(1, MOST_METRICS_LINES - len(evaluations)))
    kept = sorted(evaluations + training[::stride], key=lambda line: json.loads(line)["step"])
    metrics = ledger.with_suffix(".metrics.jsonl")
    metrics.write_text("".join(kept), encoding="utf-8")
    return metrics


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a broken run, 2 a wrong command."""
    try:
        command = tyro.cli(Evaluate, args=arguments, prog="python -m train.evaluate")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    use_compilation_cache(None)
    try:
        entries = score(command)
    except DamagedCheckpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (RunError, DataError, folder.RunMismatchError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for entry in entries:
        print(f"{entry['split']} {entry['metric']} {entry['value']:.4f}  ({entry['examples']:,} tokens)")
    if command.record is not None:
        record(entries, command.record, command.run)
        print(f"recorded in {command.record}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
