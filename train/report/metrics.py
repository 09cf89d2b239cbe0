"""The metrics that a run declares in environment.json, and their units, charts and best values."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxnlp.metric_kind import DECLARED, MetricKind
from train.report.formats import is_finite

Rows = Sequence[dict[str, Any]]

OBJECTIVE = "objective"
"""The minimised function, if it differs from the loss; it has the loss's unit, and is not declared."""


MAX_CURVES = 8
"""Maximum number of metrics of a chart; beyond it, metrics of several parts, such as F1 of each class, get their
own."""


class Chart(NamedTuple):
    """Declared metrics of one unit and one direction.

    Attributes:
      name: name of the SVG file.
      unit: unit as declared.
      metrics: metrics by name, in the order of their declaration.
    """

    name: str
    unit: str
    metrics: Mapping[str, MetricKind]

    @property
    def better(self) -> str:
        """Whether lower or higher values are better."""
        return next(iter(self.metrics.values())).better


def declared_metrics(environment: Mapping[str, Any]) -> dict[str, MetricKind]:
    """The metrics that environment.json declares, the one that selects the best checkpoint first.

    Raises: ValueError when the declaration is malformed.
    """
    declared = environment.get("metrics", {})
    if not isinstance(declared, dict):
        raise ValueError(f"metrics: expected an object with one entry a metric, got {type(declared).__name__}")
    metrics = {}
    for name, fields in declared.items():
        if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
            raise ValueError(f"metrics.{name}: expected an object of texts: {', '.join(DECLARED)}; got {fields!r}")
        if unknown := sorted(fields.keys() - {*DECLARED}):
            raise ValueError(f"metrics.{name}: unknown field {unknown[0]!r}; expected {', '.join(DECLARED)}")
        metrics[name] = MetricKind(**fields)
        if metrics[name].better not in ("lower", "higher"):
            raise ValueError(f"metrics.{name}.better: expected lower or higher, got {metrics[name].better!r}")
    first = environment.get("best_metric")
    return {first: metrics[first]} | metrics if isinstance(first, str) and first in metrics else metrics


def charts(metrics: Mapping[str, MetricKind]) -> list[Chart]:
    """The declared metrics by unit and direction; many metrics of several parts get separate charts.

    The chart of the loss also has the objective, which is not declared.
    """
    groups: dict[tuple[str, str], dict[str, MetricKind]] = {}
    for name, metric in metrics.items():
        group = groups.setdefault((metric.unit, metric.better), {})
        group[name] = metric
        if name == "loss" and OBJECTIVE not in metrics:
            group[OBJECTIVE] = metric._replace(title="")
    drawn: list[Chart] = []
    for unit, members in [(unit, apart) for (unit, _), group in groups.items() for apart in _apart(group)]:
        bases = {base(name) for name in members} - {OBJECTIVE}
        name = _file_name(bases.pop() if len(bases) == 1 else unit or "scores")
        taken = {"learning_rate", "gradient_norm", "throughput", *(chart.name for chart in drawn)}
        drawn.append(Chart(f"{name}_{len(drawn) + 1}" if name in taken else name, unit, members))
    return drawn


def _apart(members: dict[str, MetricKind]) -> list[dict[str, MetricKind]]:
    """The metrics of a chart, in groups: first the single metrics, then one group for each metric of several parts."""
    if len(members) <= MAX_CURVES:
        return [members]
    parts = Counter(base(name) for name in members if "/" in name)
    groups: dict[str, dict[str, MetricKind]] = {}
    for name, metric in members.items():
        group = base(name) if "/" in name and parts[base(name)] > 1 else ""
        groups.setdefault(group, {})[name] = metric
    return [groups[group] for group in sorted(groups, key=bool)]


def base(name: str) -> str:
    """A metric's name without its part: `loss` for `sst/loss`."""
    return name.rpartition("/")[2]


def title_of(name: str, metrics: Mapping[str, MetricKind]) -> str:
    """A metric's name on pages and in charts: as declared, or as words."""
    return (metrics[name].title if name in metrics else "") or spaced(name)


def title_without_part(name: str, metrics: Mapping[str, MetricKind]) -> str:
    """The title of a metric without its part: `F1` for `PER/f1`."""
    title, part = title_of(name, metrics), spaced(name.rpartition("/")[0])
    return title[len(part) + 1 :] if part and spaced(title).lower().startswith(f"{part.lower()} ") else title


def spaced(name: str) -> str:
    """A name as words."""
    return name.replace("_", " ").replace("/", " ")


def capitalized(title: str) -> str:
    """A title as the start of a line. Names with other capital letters, such as chrF, stay."""
    return title[:1].upper() + title[1:] if title.partition(" ")[0].islower() else title


def splits_of(rows: Rows, metric: str) -> list[str]:
    """The splits that a metric was measured on, in the order of their first rows."""
    return list(dict.fromkeys(row["split"] for row in rows if metric in row))


def main_split(rows: Rows, metric: str) -> str:
    """The main split: validation or dev, otherwise another split that is not trained on, otherwise train."""
    splits = splits_of(rows, metric)
    preferred = (name for name in ("validation", "dev", *splits) if name in splits and name != "train")
    return next(preferred, "train")


def best(rows: Rows, metric: str, better: str) -> tuple[str, float, int] | None:
    """Split, value and step of the best finite value, or None; of equal values the one with the lowest loss, as for
    checkpoints, and then the earliest."""
    split, sign = main_split(rows, metric), 1.0 if better == "lower" else -1.0
    measured = [row for row in rows if row["split"] == split and is_finite(row.get(metric))]
    if not measured:
        return None

    def rank(row: Mapping[str, Any]) -> tuple[float, float]:
        return sign * row[metric], row["loss"] if is_finite(row.get("loss")) else math.inf

    found = min(measured, key=rank)
    return split, found[metric], found["step"]


def _file_name(words: str) -> str:
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in words.lower())
    return "_".join(part for part in kept.split("_") if part)[:40] or "metrics"
