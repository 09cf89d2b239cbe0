"""The logs of a run, for the pages that show runs."""

import dataclasses
import errno
import functools
import os
import statistics
from pathlib import Path
from typing import Any

from jaxnlp.corpus import errors_as
from jaxnlp.metric_kind import MetricKind
from train.logs.json_lines import read_lines, read_object
from train.report.formats import is_finite
from train.report.metrics import best, declared_metrics
from train.run.early_stopping import reason_to_stop, stops_early

Object = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class LoggedRun:
    """A run's files as JSON.

    Attributes:
      name: name of the run's folder.
      config: nested objects with a key `type`.
      environment: the machine, the software and the declared metrics.
      rows: the rows of metrics.jsonl, in step order.
    """

    name: str
    config: Object
    environment: Object
    rows: list[Object]

    @functools.cached_property
    def metrics(self) -> dict[str, MetricKind]:
        """The declared metrics; see `declared_metrics`."""
        return declared_metrics(self.environment)

    @property
    def counted(self) -> str:
        """The unit that throughput counts, such as tokens."""
        progress = self.metrics.get(str(self.environment.get("progress", "loss")))
        return "tokens" if progress is None else progress.of

    @property
    def step(self) -> int:
        """The last step with a row."""
        return max((row["step"] for row in self.rows), default=0)

    @property
    def total_steps(self) -> int | None:
        """The planned number of steps; None = not in the config."""
        return self.config.get("total_steps")

    @property
    def finished(self) -> bool:
        """Whether the run has done its last step, or is an average, which does none."""
        return bool(self.averaged) or (self.total_steps is not None and self.step >= self.total_steps)

    @property
    def averaged(self) -> list[str]:
        """The checkpoints of an average; [] = a trained run."""
        return self.environment.get("averaged") or []

    @property
    def early_stop(self) -> str:
        """Why the run stopped early; "" if it did not."""
        name, patience = str(self.environment.get("best_metric")), self.config.get("stop_after")
        declared = self.metrics.get(name)
        if declared is None or not is_finite(patience):
            return ""
        sign = 1.0 if declared.better == "higher" else -1.0
        measured = [row[name] for row in self.rows if row["split"] == "validation" and name in row]
        scores = [sign * value if is_finite(value) else float("nan") for value in measured]
        return reason_to_stop(name, scores) if stops_early(scores, patience) else ""

    @property
    def train_seconds(self) -> float | None:
        """Seconds of training so far; None = not in any row."""
        return next(reversed(self.values("train_seconds")), None)

    @property
    def speed(self) -> float | None:
        """The median throughput, in `counted` per second; None = not in any row."""
        speeds = self.values(f"{self.counted}_per_second")
        return statistics.median(speeds) if speeds else None

    @property
    def peak_share(self) -> float | None:
        """The share of the devices' peak FLOP/s at the median throughput; None = unknown."""
        flops, peak = (self.environment.get(name) for name in ("flops_per_unit", "peak_flops"))
        speed = self.speed
        if speed is None or flops is None or not is_finite(flops) or not is_finite(peak) or not peak:
            return None
        return speed * flops / peak

    def values(self, key: str) -> list[float]:
        """The finite values of a key, in step order."""
        return [row[key] for row in self.rows if is_finite(row.get(key))]

    def best(self, metric: str) -> tuple[str, float, int] | None:
        """Split, value and step of the best value of a metric; None = not declared, or not measured."""
        declared = self.metrics.get(metric)
        return None if declared is None else best(self.rows, metric, declared.better)


def read_run(folder: Path) -> LoggedRun:
    """Reads a run's config, environment and metrics.

    Raises:
      FileNotFoundError: naming the missing file, when the folder is not a run, or the run has not started.
      ValueError: naming a broken file, and the line of metrics.jsonl.
    """
    config, environment = read_object(folder / "config.json"), read_object(folder / "environment.json")
    with errors_as(ValueError, folder / "environment.json"):
        declared_metrics(environment)
    return LoggedRun(folder.resolve().name, config, environment, read_metrics(folder / "metrics.jsonl"))


def read_metrics(path: Path) -> list[Object]:
    """Rows of a metrics.jsonl, in file order, without a half-written last line of a killed process.

    Raises:
      FileNotFoundError: when there is no such file.
      ValueError: naming the file and a line that is broken, or has no step or split.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return [line.row for line in read_lines(path, step=int, split=str)]
