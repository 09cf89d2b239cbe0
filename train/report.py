"""A run's folder as one page to read: `python -m train.report RUN` rebuilds it at any time."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import tyro

from jaxnlp.files import write_file
from train.page import render_page
from train.plots import draw_plots

Rows = list[dict[str, Any]]


def write_report(run: Path) -> Path:
    """Path of the run's new `report.html`; the curves also lie in its `plots/`, each as an SVG file.

    A pure function of what the run has written so far, finished or not: the same folder gives the same bytes.

    Args:
      run: folder with config.json, environment.json, metrics.jsonl; perhaps samples.jsonl, answers.json, words.json.

    Raises:
      FileNotFoundError: when one of the first three is missing.
      ValueError: when one of them is broken; the message names the file and the line.
    """
    config, environment = _read_json(run / "config.json"), _read_json(run / "environment.json")
    rows = read_metrics(run / "metrics.jsonl")
    samples = _read_lines(run / "samples.jsonl", ("step", "prompt", "text")) if (run / "samples.jsonl").exists() else []
    answers = _read_json(run / "answers.json") if (run / "answers.json").exists() else None
    words = _read_json(run / "words.json") if (run / "words.json").exists() else None
    drawings = draw_plots(rows, words)
    page = render_page(config, environment, rows, samples, answers, words, drawings)
    for name in drawings.keys() - {"loss_narrow"}:
        _replace(run / "plots" / f"{name}.svg", drawings[name])
    return _replace(run / "report.html", page)


def read_metrics(path: Path) -> Rows:
    """Rows of a metrics.jsonl, in file order. A last line that a killed process left half-written is dropped.

    Raises:
      ValueError: when another line is broken, or a row has no step or split; the message names file and line.
    """
    return _read_lines(path, ("step", "split"))


def _read_lines(path: Path, keys: Sequence[str]) -> Rows:
    lines = [(number, line) for number, line in enumerate(path.read_bytes().splitlines(), 1) if line.strip()]
    rows = []
    for number, line in lines:
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == lines[-1][0]:
                break
            raise ValueError(f"{path}, line {number}: {error}") from error
        missing = [key for key in keys if not isinstance(row, dict) or key not in row]
        if missing:
            raise ValueError(f"{path}, line {number}: expected an object with {', '.join(missing)}")
        rows.append(row)
    return rows


def _read_json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(tree, dict):
        raise ValueError(f"{path}: expected an object, got {type(tree).__name__}")
    return tree


def _replace(path: Path, text: str) -> Path:
    write_file(path, text.encode("utf-8", "replace"))  # a sampled byte sequence may hold lone surrogates
    return path


def main(run: Path, /) -> None:
    """Rebuild the report of a run and print its path.

    Args:
      run: The run's folder.
    """
    try:
        print(write_report(run))
    except FileNotFoundError as error:
        _fail(f"{error.filename} is missing; a run's folder holds config.json, environment.json and metrics.jsonl")
    except (OSError, ValueError) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    tyro.cli(main)
