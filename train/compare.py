"""`jaxnlp compare RUN RUN ...`: runs on one page: results, differing options, curves."""

import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import tyro

from jaxnlp.cli.messages import program_name
from jaxnlp.cli.options import read_options
from jaxnlp.config import Config
from jaxnlp.metric_kind import MetricKind
from jaxnlp.pages.content import Line, Lines, Table
from jaxnlp.pages.page import document
from jaxnlp.runs import runs_inside
from jaxnlp.saving.atomic_files import PAGES, require_place, write_file
from train.report.formats import duration, is_finite, short, text
from train.report.logged_run import LoggedRun, read_run
from train.report.metrics import capitalized, main_split, title_of
from train.report.page import STYLE
from train.report.sections import render_content, render_table
from train.run.folder import REPORT_FILE

PROGRAM = f"{program_name()} compare"
ABSENT = ""
"""The table's entry for a field that a run's config lacks."""


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """A run of the page.

    Attributes:
      name: short and unique.
      folder: the run's folder.
      logged: its logs.
    """

    name: str
    folder: Path
    logged: LoggedRun

    @functools.cached_property
    def fields(self) -> dict[str, Any]:
        """The config's fields by their full names."""
        return flat_fields(self.logged.config)

    def value(self, metric: str) -> float | None:
        """A metric of the best checkpoint; None if it was measured only on training batches, or not at all."""
        best = self.logged.best(str(self.logged.environment.get("best_metric", "loss")))
        split = main_split(self.logged.rows, metric)
        if best is None or split == "train":
            return None
        _, _, step = best
        rows = [row for row in self.logged.rows if (row["split"], row["step"]) == (split, step)]
        return next((row[metric] for row in rows if is_finite(row.get(metric))), None)

    def report(self, folder: Path) -> str | None:
        """The address of the run's report on a page in this folder; None = no report yet."""
        path = self.folder.resolve() / REPORT_FILE
        return quote(Path(os.path.relpath(path, folder.resolve())).as_posix()) if path.is_file() else None


def read_runs(folders: Sequence[Path]) -> list[ComparedRun]:
    """The runs in these folders.

    Raises:
      FileNotFoundError: for a folder that is not a training run, or a run that has not started.
      ValueError: naming a file instead of a folder, or a damaged file.
    """
    runs = []
    for name, folder in zip(_short_names(folders), folders, strict=True):
        if folder.is_file():  # as of a pattern of the shell, in the folder of a sweep
            raise ValueError(f"{folder} is a file; give the folders of runs, such as {folder.parent}/*/")
        try:
            runs.append(ComparedRun(name, folder, read_run(folder)))
        except FileNotFoundError as error:
            inside = runs_inside(folder) or "; give the folder of a run that has started"
            raise FileNotFoundError(f"{error.filename} is missing{inside}") from error
    return runs


def flat_fields(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A config's fields by full name, such as `model.width`; a nested config's name has its class."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            fields[f"{prefix}{name}"] = str(value.get("type", "")).partition(":")[2]
            fields |= flat_fields({key: field for key, field in value.items() if key != "type"}, f"{prefix}{name}.")
        elif name != "type":
            fields[f"{prefix}{name}"] = value
    return fields


def differing_fields(runs: Sequence[ComparedRun]) -> list[str]:
    """Full names of the fields that differ between runs."""
    names = dict.fromkeys(name for run in runs for name in run.fields)
    return [name for name in names if len({_cell(run.fields.get(name, ABSENT)) for run in runs}) > 1]


def table_of_results(runs: Sequence[ComparedRun]) -> Table:
    """One row for each run: the values of its best checkpoint, training time, speed and size.

    The metric that selects the best checkpoint comes first, other metrics last, because there may be many.
    """
    metrics = _compared_metrics(runs)
    titles = [one.title for one in metrics]
    header = ("run", *titles[:1], "training time", "speed", "parameters", "steps", *titles[1:])
    rows = []
    for run in runs:
        logged = run.logged
        parameters = logged.environment.get("parameters")
        rows.append(
            (
                run.name,
                *(one.value(run) for one in metrics[:1]),
                ABSENT if logged.train_seconds is None else _unbroken(duration(logged.train_seconds)),
                ABSENT if logged.speed is None else _unbroken(f"{short(logged.speed)} {logged.counted}/s"),
                short(parameters) if is_finite(parameters) and parameters else ABSENT,
                _steps(logged.step, logged.total_steps or 0),
                *(one.value(run) for one in metrics[1:]),
            )
        )
    return Table(header, tuple(rows), note="All values of a run are those of its best checkpoint.")


def table_of_options(runs: Sequence[ComparedRun]) -> Table:
    """One row for each run: the options with different values."""
    fields = differing_fields(runs)
    rows = ((run.name, *(_cell(run.fields.get(name, ABSENT)) for name in fields)) for run in runs)
    return Table(("run", *fields), tuple(rows), note="Options that are equal in all runs are not shown.")


class _ComparedMetric(NamedTuple):
    """A metric in one unit: its name, title and unit; the unit is None if all runs have the same."""

    name: str
    title: str
    unit: str | None

    def is_of(self, run: ComparedRun) -> bool:
        """Whether the run measures it in this unit."""
        declared = run.logged.metrics.get(self.name)
        return self.unit is None or (declared is not None and _unit(declared) == self.unit)

    def value(self, run: ComparedRun) -> float | None:
        """The value of a run's best checkpoint, or None if it was not measured."""
        return run.value(self.name) if self.is_of(run) else None


def _compared_metrics(runs: Sequence[ComparedRun]) -> list[_ComparedMetric]:
    """The measured metrics. Losses per token and per character, for example, are two metrics of one name."""
    found = []
    for name in measured_metrics(runs):
        declared = {name: metric for run in reversed(runs) for name, metric in run.logged.metrics.items()}
        units = dict.fromkeys(_unit(run.logged.metrics[name]) for run in runs if name in run.logged.metrics)
        title = title_of(name, declared)
        several = [_ComparedMetric(name, f"{title} ({unit})" if unit else title, unit) for unit in units]
        found += several if len(units) > 1 else [_ComparedMetric(name, title, None)]
    return found


def _unit(metric: MetricKind) -> str:
    """The unit of comparable values; "" = shares and points."""
    return "" if metric.unit in ("", "points") else metric.per or f"over {metric.of}"


def measured_metrics(runs: Sequence[ComparedRun]) -> list[str]:
    """The declared metrics that a run has measured on another split than train."""
    names = dict.fromkeys(name for run in runs for name in run.logged.metrics)
    return [name for name in names if any(main_split(run.logged.rows, name) != "train" for run in runs)]


def curves(runs: Sequence[ComparedRun]) -> dict[str, Lines]:
    """The validation curves of each metric by title, one for each run."""
    lines_of = {}
    for one in _compared_metrics(runs):
        lines, of_unit = [], [run for run in runs if one.is_of(run)]
        for run in of_unit:
            rows = run.logged.rows
            split = main_split(rows, one.name)
            points = [
                (row["step"], row[one.name]) for row in rows if row["split"] == split and is_finite(row.get(one.name))
            ]
            if points and split != "train":
                x, y = zip(*points, strict=True)
                lines.append(Line(run.name, x, y))
        metric = next(run.logged.metrics[one.name] for run in of_unit if one.name in run.logged.metrics)
        title = capitalized(one.title)
        unit = f" ({metric.per})" if one.unit is None and metric.per not in ("", one.title) else ""
        lines_of[title] = Lines(tuple(lines), "step", f"{title}{unit}, {metric.better} is better")
    return lines_of


def render_comparison(runs: Sequence[ComparedRun], folder: Path, notes: Sequence[str] = ()) -> str:
    """The page as one HTML document, which loads no other file.

    Args:
      runs: at least one.
      folder: of the page, for relative links to reports.
      notes: about other runs, such as failed ones.
    """
    links = [run.report(folder) for run in runs]
    sections = [("Results", render_table(table_of_results(runs), links))]
    if differing_fields(runs):
        sections.append(("Options that differ", render_table(table_of_options(runs), links)))
    charts = [
        render_content(lines, f"compared-{index}", title) for index, (title, lines) in enumerate(curves(runs).items())
    ]
    sections.append(("Validation curves", f'<div class="curves">{"".join(charts)}</div>'))
    unfinished = [run.name for run in runs if not (run.logged.finished or run.logged.early_stop)]
    notes = [*([f"Unfinished: {', '.join(unfinished)}."] if unfinished else []), *notes]
    title = f"{len(runs)} runs of {', '.join(sorted({str(run.fields.get('recipe', '')) for run in runs}))}"
    head = f"<header><h1>{text(title)}</h1>{''.join(f'<p>{text(note)}</p>' for note in notes)}</header>"
    drawn = (f'<section class="section"><h2>{text(name)}</h2>{content}</section>' for name, content in sections)
    return document(title, f"<main>\n{head}\n{''.join(drawn)}\n</main>", STYLE)


def write_comparison(folders: Sequence[Path], out: Path, notes: Sequence[str] = ()) -> Path:
    """Writes the page of these runs, with notes. Returns: the page's path. Raises: as `read_runs`."""
    write_file(out, render_comparison(read_runs(folders), out.parent, notes).encode("utf-8", "replace"))
    return out


def _short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest distinct suffixes of the paths."""
    parts = [folder.resolve().parts for folder in folders]
    depth = 1
    while depth < max(map(len, parts), default=0) and len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return [os.path.join(*part[-depth:]) for part in parts]


def _steps(step: int, total: int) -> str:
    return f"{step:,}" if step >= total else f"{step:,} of {total:,}"


def _unbroken(words: str) -> str:
    """A text with non-breaking spaces."""
    return words.replace(" ", "\u00a0")


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclasses.dataclass(frozen=True)
class Options(Config):
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
    require_place(options.out, *PAGES)
    print(write_comparison(options.runs, options.out))
    return 0
