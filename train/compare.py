"""`python -m train.compare RUN RUN ...`: runs side by side on one page: differing fields, results, curves."""

import sys
import time

from train.launcher import program_name, start

if __name__ == "__main__":
    start("train.compare", started=time.time(), huge_pages=False, results=True)

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Annotated, Any

import tyro

from jaxnlp.blocks import Line, Lines, Table
from jaxnlp.checkpoints import runs_inside
from jaxnlp.files import write_file
from jaxnlp.messages import reason, show_plain_warnings
from jaxnlp.options import read_options
from train.json_lines import read_lines
from train.report.blocks import Content, render_content
from train.report.formats import duration, is_finite, short, text
from train.report.metrics import Declared, best, declared_metrics, main_split, spaced
from train.report.page import STYLE
from train.run_folder import CONFIG_FILE, ENVIRONMENT_FILE, METRICS_FILE, read_json

PROGRAM = program_name("train.compare")
ABSENT = ""
"""The table's entry for a field that a run's config does not have."""

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
<header><h1>$title</h1><p>$note</p></header>
$sections
</main>
</body>
</html>
""")


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """What the page shows about a run.

    Attributes:
      name: a short name, different from those of the other runs.
      folder: the run's folder.
      fields: the config's fields by their full names; an object of the config has the name of its class.
      metrics: the metrics that the run declares.
      environment: the environment of its newest start.
      rows: the rows of metrics.jsonl.
    """

    name: str
    folder: Path
    fields: Mapping[str, Any]
    metrics: Mapping[str, Declared]
    environment: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    @property
    def step(self) -> int:
        """The last step with a row."""
        return max((row["step"] for row in self.rows), default=0)

    @property
    def finished(self) -> bool:
        """Whether the run has finished all its steps."""
        return self.step >= self.fields.get("total_steps", 0)

    def best(self, metric: str) -> float | None:
        """The best value of a metric, or None if it was not measured."""
        declared = self.metrics.get(metric)
        found = None if declared is None else best([*map(dict, self.rows)], metric, declared.better)
        return None if found is None else found[1]


def read_runs(folders: Sequence[Path]) -> list[ComparedRun]:
    """The runs in these folders.

    Raises:
      FileNotFoundError: for a folder that is not a training run, or a run that has not started.
      ValueError: for a damaged file; the message names it.
    """
    names = _short_names(folders)
    runs = []
    for name, folder in zip(names, folders, strict=True):
        for file in (CONFIG_FILE, ENVIRONMENT_FILE):
            if not (folder / file).is_file():
                inside = runs_inside(folder) or "; give the folder of a run that has started"
                raise FileNotFoundError(f"{folder / file} is missing{inside}")
        environment = read_json(folder / ENVIRONMENT_FILE)
        try:
            metrics = declared_metrics(environment)
        except ValueError as error:
            raise ValueError(f"{folder / ENVIRONMENT_FILE}: {error}") from error
        rows = [line.row for line in read_lines(folder / METRICS_FILE, step=int, split=str)]
        fields = flat_fields(read_json(folder / CONFIG_FILE))
        runs.append(ComparedRun(name, folder, fields, metrics, environment, rows))
    return runs


def flat_fields(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A config's fields by their full names, such as `model.width`; the name of an object has its class."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found[f"{prefix}{name}"] = str(value.get("type", "")).partition(":")[2]
            found |= flat_fields({key: field for key, field in value.items() if key != "type"}, f"{prefix}{name}.")
        elif name != "type":
            found[f"{prefix}{name}"] = value
    return found


def differing_fields(runs: Sequence[ComparedRun]) -> list[str]:
    """Full names of the fields that differ between runs."""
    names = dict.fromkeys(name for run in runs for name in run.fields)
    return [name for name in names if len({_cell(run.fields.get(name, ABSENT)) for run in runs}) > 1]


def table_of_results(runs: Sequence[ComparedRun]) -> Table:
    """One row for each run: the differing fields, the best value of each metric, the training time."""
    fields = differing_fields(runs)
    metrics = measured_metrics(runs)
    header = ("run", *fields, *(f"best {spaced(name)}" for name in metrics), "parameters", "time", "steps")
    rows = []
    for run in runs:
        seconds = [row["train_seconds"] for row in run.rows if is_finite(row.get("train_seconds"))]
        parameters = run.environment.get("parameters")
        rows.append(
            (
                run.name,
                *(_cell(run.fields.get(name, ABSENT)) for name in fields),
                *(run.best(name) for name in metrics),
                short(parameters) if is_finite(parameters) and parameters else ABSENT,
                duration(seconds[-1]) if seconds else ABSENT,
                f"{run.step:,}" if run.finished else f"{run.step:,} of {run.fields.get('total_steps', 0):,}",
            )
        )
    return Table(header, tuple(rows))


def measured_metrics(runs: Sequence[ComparedRun]) -> list[str]:
    """The declared metrics that at least one run has measured on a split other than training, as declared."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    return [name for name in names if any(main_split(run.rows, name) != "train" for run in runs)]  # type: ignore[arg-type]


def curves(runs: Sequence[ComparedRun]) -> dict[str, Lines]:
    """The validation curves of each metric, one for each run."""
    found = {}
    for name in measured_metrics(runs):
        lines = []
        for run in runs:
            split = main_split(run.rows, name)  # type: ignore[arg-type]
            points = [
                (row["step"], row[name]) for row in run.rows if row["split"] == split and is_finite(row.get(name))
            ]
            if points and split != "train":
                x, y = zip(*points, strict=True)
                lines.append(Line(run.name, x, y))
        unit = next((run.metrics[name].per for run in runs if name in run.metrics), "")
        found[name] = Lines(tuple(lines), "step", f"{spaced(name)} ({unit})" if unit else spaced(name))
    return found


def render_comparison(runs: Sequence[ComparedRun]) -> str:
    """The page as one HTML document that requests no other file."""
    sections: list[tuple[str, Content]] = [("Results", table_of_results(runs))]
    sections += [(spaced(name), lines) for name, lines in curves(runs).items()]
    unfinished = [run.name for run in runs if not run.finished]
    note = "Fields that are equal in all runs are not shown."
    if unfinished:
        note += f" Unfinished: {', '.join(unfinished)}."
    title = f"{len(runs)} runs of {', '.join(sorted({str(run.fields.get('recipe', '')) for run in runs}))}"
    return _PAGE.substitute(
        style=STYLE,
        title=text(title),
        note=text(note),
        sections="".join(
            f'<section class="block"><h2>{text(name[:1].upper() + name[1:])}</h2>'
            f"{render_content(content, f'compared-{number}', name)}</section>"
            for number, (name, content) in enumerate(sections)
        ),
    )


def write_comparison(folders: Sequence[Path], out: Path) -> Path:
    """Writes the page of these runs. Returns: the page's path. Raises: as `read_runs`."""
    write_file(out, render_comparison(read_runs(folders)).encode("utf-8", "replace"))
    return out


def _short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest suffixes of the paths that are all different."""
    parts = [folder.resolve().parts for folder in folders]
    depth = 1
    while depth < max(map(len, parts), default=0) and len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return [os.path.join(*part[-depth:]) for part in parts]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclasses.dataclass(frozen=True)
class Options:
    """Compares runs on one page, finished or not, and prints the page's path."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN RUN ...")] = ()
    """Folders of at least two runs."""
    out: Path = Path("comparison.html")
    """The page's file."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns: the exit status; 2 for a wrong command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    show_plain_warnings()
    try:
        (options,) = read_options([Options], arguments, program=PROGRAM, description=Options.__doc__ or "")
        if len(options.runs) < 2:
            inside = "".join(runs_inside(run).replace("inside it", f"inside {run}") for run in options.runs)
            raise ValueError(f"give at least two runs, got {len(options.runs) or 'none'}{inside}")
        print(write_comparison(options.runs, options.out))
    except (OSError, ValueError) as error:
        print(f"error: {reason(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
