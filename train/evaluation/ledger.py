"""The ledger: every number of the README, in docs/results, written by `jaxnlp evaluate RUN --record`."""

import dataclasses
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxnlp.input_files.json_objects import parse_json
from jaxnlp.saving.serialization import to_json
from jaxnlp.tasks import Evaluation, Trained
from train.config import TrainConfig
from train.report.logged_run import read_metrics
from train.run import folder as run_folder

MAX_METRICS_LINES = 2000
"""Maximum number of lines of a run's metrics in the ledger."""


def entries(trained: Trained, config: TrainConfig, split: str, evaluation: Evaluation) -> list[dict[str, Any]]:
    """An entry for each metric. Raises: FileNotFoundError when the run's records are missing."""
    assert trained.folder is not None
    assert trained.step is not None
    environment = run_folder.read_environment(trained.folder)
    pretrained = environment.get("pretrained_sha256")
    rows = read_metrics(trained.folder / run_folder.METRICS_FILE)
    seconds = [row["train_seconds"] for row in rows if row["step"] <= trained.step]
    return [
        {
            "recipe": config.recipe,
            "metric": name.rpartition("/")[2],
            "split": "/".join([*name.split("/")[:-1], split]),  # sts/dev
            "value": metric.value,
            "examples": metric.count,
            "steps": trained.step,
            "train_seconds": max(seconds, default=None),
            "seconds_to_first_step": environment.get("seconds_to_first_step"),
            "device": f"{environment['devices']} x {environment['device']}, {environment['cpu_cores']} CPU cores",
            "types": environment.get("types"),
            "versions": environment["versions"],
            "commit": environment["commit"],
            "seed": config.seed,
            "config": to_json(_without_paths(config)),
            "command": _strip_paths(environment["command"]),
        }
        | ({} if pretrained is None else {"pretrained_sha256": pretrained})
        | {name: environment[name] for name in (run_folder.EXTENDED, run_folder.AT_ONCE) if name in environment}
        | ({} if config.init_from is None else {"begun_with": _origin(Path(config.init_from))})
        | dict(evaluation.remarks)
        for name, metric in evaluation.metrics.items()
    ]


def public_name(files: Sequence[Path]) -> str:
    """The name of files in the ledger, their paths in JAXNLP_DATA. Raises: ValueError for other files."""
    data = Path(os.environ.get("JAXNLP_DATA", os.devnull)).resolve()
    others = [str(file) for file in files if not file.resolve().is_relative_to(data)]
    if others:
        raise ValueError(
            f"--record needs a split, or files of a data set in JAXNLP_DATA, got --file {' '.join(others)}"
        )
    return " ".join(file.resolve().relative_to(data).as_posix() for file in files)


def read(path: Path) -> list[dict[str, Any]]:
    """Reads the entries of a ledger file. Raises: ValueError naming the file when it is not a ledger."""
    try:
        entries = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} is not a ledger: expected a list of objects")
    return entries


def append(new: list[dict[str, Any]], ledger: Path, run: Path) -> Path:
    """Adds entries to a ledger file and writes the run's metrics, downsampled, next to it. Returns: the metrics' path.

    Raises: ValueError when the file is not a ledger; nothing is written then.
    """
    before = read(ledger) if ledger.exists() else []
    run_folder.write_json(ledger, before + new)
    rows = read_metrics(run / run_folder.METRICS_FILE)
    training = [row for row in rows if row["split"] == "train"]
    stride = max(1, -(-len(training) // max(1, MAX_METRICS_LINES - (len(rows) - len(training)))))
    dropped = {id(row) for index, row in enumerate(training) if index % stride}
    metrics = ledger.with_suffix(".metrics.jsonl")
    run_folder.write_text(metrics, "".join(json.dumps(row) + "\n" for row in rows if id(row) not in dropped))
    return metrics


def _origin(folder: Path) -> dict[str, Any] | None:
    """The cost of the run in `init_from`; None if that is not a run or does not exist."""
    if not (folder / run_folder.METRICS_FILE).exists():
        return None
    rows = read_metrics(folder / run_folder.METRICS_FILE)
    environment = run_folder.read_environment(folder)
    return {
        "steps": max(row["step"] for row in rows),
        "train_seconds": max(row["train_seconds"] for row in rows),
        "commit": environment["commit"],
        "command": _strip_paths(environment["command"]),
    }


def _without_paths(config: TrainConfig) -> TrainConfig:
    if config.init_from is None:
        return config
    return dataclasses.replace(config, init_from=_portable_name(config.init_from))


def _portable_name(name: str) -> str:
    """A run's folder as runs/NAME; another folder by its name; a name on the Hugging Face Hub unchanged."""
    path = Path(name)
    if (path / run_folder.METRICS_FILE).exists() or path.parent.name == "runs":
        return f"runs/{path.name}"
    return name if name.count("/") <= 1 and not path.is_dir() else path.name


def _strip_paths(command: str | None) -> str | None:
    """A command without paths, which do not affect the numbers; None without a command."""
    if command is None:
        return None
    words = shlex.split(command)
    options = {"--workdir": lambda path: f"runs/{Path(path).name}", "--init-from": _portable_name}
    for index, word in enumerate(words):
        for option, portable in options.items():
            if word == option:
                words[index + 1 : index + 2] = [portable(path) for path in words[index + 1 : index + 2]]
            elif word.startswith(f"{option}="):
                words[index] = f"{option}={portable(word.partition('=')[2])}"
    return shlex.join(words)
