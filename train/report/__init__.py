"""A run's folder as one page: `jaxnlp report RUN` rebuilds it at any time.

The page depends on kinds of blocks and declared metrics, not on tasks.
"""

import errno
import json
import os
from pathlib import Path
from typing import Any

from jaxnlp.saving.atomic_files import write_file
from train.logs.json_lines import read_lines
from train.report import plots
from train.report.blocks import LoggedBlock, block_from_json
from train.report.metrics import charts, declared_metrics, progress_of
from train.report.page import Figure, render_page

Rows = list[dict[str, Any]]
WRITTEN = frozenset(("checkpoints", "tensorboard", "plots", "config.json", "processor.json", "typed_model.json"))
WRITTEN |= {"environment.json", "metrics.jsonl", "blocks.jsonl", "report.html"}
"""Files that training and the report write into a run's folder."""


def write_report(run: Path) -> Path:
    """Writes the run's `report.html` and its charts as SVG files in `plots/`. Returns: the path of the page.

    The page depends only on the files of the folder and its name: the same folder gives the same bytes.

    Args:
      run: folder with config.json, environment.json and metrics.jsonl; blocks.jsonl if the task reports blocks.

    Raises:
      FileNotFoundError: when one of the first three is missing.
      ValueError: when one of them is broken; the message names the file and the line.
    """
    config, environment = _read_json(run / "config.json"), _read_json(run / "environment.json")
    try:
        metrics = declared_metrics(environment)
    except ValueError as error:
        raise ValueError(f"{run / 'environment.json'}: {error}") from error
    rows = read_metrics(run / "metrics.jsonl")
    blocks = read_blocks(run / "blocks.jsonl")
    figures = draw_figures(rows, environment)
    page = render_page(run.resolve().name, config, environment, metrics, rows, blocks, figures, further_files(run))
    for figure in figures:
        _replace(run / "plots" / f"{figure.name}.svg", figure.wide)
    return _replace(run / "report.html", page)


def draw_figures(rows: Rows, environment: dict[str, Any]) -> list[Figure]:
    """Charts of the declared metrics by unit and direction, and of learning rate, gradient norm and throughput."""
    metrics = declared_metrics(environment)
    of = progress_of(environment, metrics)
    drawn = [
        Figure(
            chart.name,
            f"{plots.chart_title(chart, plots.series_of(chart, rows))} by step",
            plots.draw_chart(chart, rows),
            plots.draw_chart(chart, rows, narrow=True),
        )
        for chart in charts(metrics)
    ]
    return [
        *drawn,
        Figure("learning_rate", "Learning rate by step", plots.draw_learning_rate(rows)),
        Figure("gradient_norm", "Gradient norm by step", plots.draw_gradient_norm(rows)),
        Figure("throughput", f"{of.capitalize()} per second by step", plots.draw_throughput(rows, of)),
    ]


def further_files(run: Path) -> list[str]:
    """Sorted paths of other files in a run's folder and its subfolders, such as predictions and pages.

    Hidden files and deeper folders are left out.
    """
    paths = [path.relative_to(run) for pattern in ("*", "*/*") for path in run.glob(pattern) if path.is_file()]
    hidden = [path for path in paths if any(part.startswith(".") for part in path.parts)]
    return sorted(path.as_posix() for path in paths if path.parts[0] not in WRITTEN and path not in hidden)


def read_metrics(path: Path) -> Rows:
    """Rows of a metrics.jsonl, in file order. It drops a last line that a killed process left half-written.

    Raises:
      FileNotFoundError: when there is no such file.
      ValueError: when another line is broken, or a row has no step or split; the message names file and line.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return [line.row for line in read_lines(path, step=int, split=str)]


def read_blocks(path: Path) -> list[LoggedBlock]:
    """Blocks of a blocks.jsonl, in file order; [] without the file. A half-written last line is dropped.

    Raises:
      ValueError: when another line is broken or of an unknown kind; the message names file and line.
    """
    blocks = []
    for line in read_lines(path):
        try:
            blocks.append(block_from_json(line.row))
        except ValueError as error:
            raise ValueError(f"{path}, line {line.number}: {error}") from error
    return blocks


def _read_json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(tree, dict):
        raise ValueError(f"{path}: expected an object, got {type(tree).__name__}")
    return tree


def _replace(path: Path, text: str) -> Path:
    write_file(path, text.encode("utf-8", "replace"))  # a sampled byte sequence may contain lone surrogates
    return path
