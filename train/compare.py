"""`jaxnlp compare RUN RUN ...`: runs side by side on one page: results, differing options, curves."""

import dataclasses
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Annotated, Any
from urllib.parse import quote

import tyro

from jaxnlp.cli.messages import program_name
from jaxnlp.cli.options import read_options
from jaxnlp.pages.blocks import Line, Lines, Table
from jaxnlp.runs import runs_inside
from jaxnlp.saving.atomic_files import write_file
from train.logs.json_lines import read_lines
from train.report.blocks import render_content, render_table
from train.report.formats import duration, is_finite, short, text
from train.report.metrics import (
    Declared,
    best,
    capitalized,
    declared_metrics,
    early_stop,
    main_split,
    progress_of,
    title_of,
)
from train.report.page import STYLE
from train.run.folder import CONFIG_FILE, ENVIRONMENT_FILE, METRICS_FILE, REPORT_FILE, read_json

PROGRAM = f"{program_name()} compare"
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
<header><h1>$title</h1>$note</header>
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
        """Whether the run has finished all its steps, or has stopped early."""
        rows = [*map(dict, self.rows)]
        return self.step >= self.fields.get("total_steps", 0) or bool(early_stop(self.fields, self.environment, rows))

    def best(self, metric: str) -> float | None:
        """The best value of a metric, or None if it was not measured."""
        declared = self.metrics.get(metric)
        found = None if declared is None else best([*map(dict, self.rows)], metric, declared.better)
        return None if found is None else found[1]

    @property
    def speed(self) -> str:
        """The median throughput, such as `52 k tokens/s`; "" = none was logged."""
        of = progress_of(self.environment, self.metrics)
        speeds = [row[key] for row in self.rows if is_finite(row.get(key := f"{of}_per_second"))]
        return _unbroken(f"{short(statistics.median(speeds))} {of}/s") if speeds else ""

    def report(self, folder: Path) -> str | None:
        """The address of the run's report on a page in this folder; None = the run has no report yet."""
        path = self.folder.resolve() / REPORT_FILE
        return quote(Path(os.path.relpath(path, folder.resolve())).as_posix()) if path.is_file() else None


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
    """One row for each run: its best values, training time, speed and size.

    The metric that selects the best checkpoint comes first; the other metrics come last, because there may be many.
    """
    metrics = measured_metrics(runs)
    titles = [f"best {title_of(name, _declared(runs))}" for name in metrics]
    header = ("run", *titles[:1], "training time", "speed", "parameters", "steps", *titles[1:])
    rows = []
    for run in runs:
        seconds = [row["train_seconds"] for row in run.rows if is_finite(row.get("train_seconds"))]
        parameters = run.environment.get("parameters")
        rows.append(
            (
                run.name,
                *(run.best(name) for name in metrics[:1]),
                _unbroken(duration(seconds[-1])) if seconds else ABSENT,
                run.speed,
                short(parameters) if is_finite(parameters) and parameters else ABSENT,
                _steps(run.step, run.fields.get("total_steps", 0)),
                *(run.best(name) for name in metrics[1:]),
            )
        )
    return Table(header, tuple(rows))


def table_of_options(runs: Sequence[ComparedRun]) -> Table:
    """One row for each run: the options whose values differ."""
    fields = differing_fields(runs)
    rows = ((run.name, *(_cell(run.fields.get(name, ABSENT)) for name in fields)) for run in runs)
    return Table(("run", *fields), tuple(rows), note="Options that are equal in all runs are not shown.")


def _declared(runs: Sequence[ComparedRun]) -> dict[str, Declared]:
    """The metrics of all runs; of several declarations the first counts."""
    return {name: metric for run in reversed(runs) for name, metric in run.metrics.items()}


def measured_metrics(runs: Sequence[ComparedRun]) -> list[str]:
    """The declared metrics that at least one run has measured on a split other than training, as declared."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    return [name for name in names if any(main_split(run.rows, name) != "train" for run in runs)]  # type: ignore[arg-type]


def curves(runs: Sequence[ComparedRun]) -> dict[str, Lines]:
    """The validation curves of each metric by its title, one for each run."""
    found, declared = {}, _declared(runs)
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
        metric, title = declared[name], capitalized(title_of(name, declared))
        unit = f" ({metric.per})" if metric.per not in ("", title_of(name, declared)) else ""
        found[title] = Lines(tuple(lines), "step", f"{title}{unit}, {metric.better} is better")
    return found


def render_comparison(runs: Sequence[ComparedRun], folder: Path) -> str:
    """The page as one HTML document that requests no other file; its links lead from this folder to the reports."""
    links = [run.report(folder) for run in runs]
    sections = [("Results", render_table(table_of_results(runs), links))]
    if differing_fields(runs):
        sections.append(("Options that differ", render_table(table_of_options(runs), links)))
    drawn = [render_content(lines, f"compared-{n}", title) for n, (title, lines) in enumerate(curves(runs).items())]
    sections.append(("Validation curves", f'<div class="curves">{"".join(drawn)}</div>'))
    unfinished = [run.name for run in runs if not run.finished]
    note = f"Unfinished: {', '.join(unfinished)}." if unfinished else ""
    title = f"{len(runs)} runs of {', '.join(sorted({str(run.fields.get('recipe', '')) for run in runs}))}"
    return _PAGE.substitute(
        style=STYLE,
        title=text(title),
        note=f"<p>{text(note)}</p>" if note else "",
        sections="".join(
            f'<section class="block"><h2>{text(name)}</h2>{content}</section>' for name, content in sections
        ),
    )


def write_comparison(folders: Sequence[Path], out: Path) -> Path:
    """Writes the page of these runs. Returns: the page's path. Raises: as `read_runs`."""
    write_file(out, render_comparison(read_runs(folders), out.parent).encode("utf-8", "replace"))
    return out


def _short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest suffixes of the paths that are all different."""
    parts = [folder.resolve().parts for folder in folders]
    depth = 1
    while depth < max(map(len, parts), default=0) and len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return [os.path.join(*part[-depth:]) for part in parts]


def _steps(step: int, total: int) -> str:
    return f"{step:,}" if step >= total else f"{step:,} of {total:,}"


def _unbroken(words: str) -> str:
    """A text with blanks at which no line breaks."""
    return words.replace(" ", "\u00a0")


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclasses.dataclass(frozen=True)
class Options:
    """Compares runs on one page, finished or not, and prints the page's path."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN RUN ...")] = ()
    """Folders of at least two runs."""
    out: Path = Path("comparison.html")
    """The page's file."""


def main(arguments: list[str]) -> int:
    """Writes the page, and prints its path. Returns: the exit status. Raises: ValueError, OSError."""
    (options,) = read_options([Options], arguments, program=PROGRAM, description=Options.__doc__ or "")
    if len(options.runs) < 2:
        inside = "".join(runs_inside(run).replace("inside it", f"inside {run}") for run in options.runs)
        raise ValueError(f"give at least two runs, got {len(options.runs) or 'none'}{inside}")
    print(write_comparison(options.runs, options.out))
    return 0
