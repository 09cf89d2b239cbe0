"""A run's folder as one page: `jaxnlp report RUN` rebuilds it at any time.

The page depends on kinds of sections and declared metrics, not on tasks.
"""

from pathlib import Path

from jaxnlp.corpus import errors_as
from jaxnlp.saving.atomic_files import write_file
from train.logs.json_lines import read_lines
from train.report import plots
from train.report.logged_run import LoggedRun, read_run
from train.report.metrics import charts
from train.report.page import Figure, render_page
from train.report.sections import LoggedSection, section_from_json

WRITTEN = frozenset(("checkpoints", "tensorboard", "plots", "config.json", "processor.json", "typed_model.json"))
WRITTEN |= {"environment.json", "metrics.jsonl", "sections.jsonl", "report.html"}
"""Files that training and the report write into a run's folder."""


def write_report(folder: Path) -> Path:
    """Writes a run's `report.html`, and its charts as SVG files in `plots/`. Returns: the path of the page.

    The page depends only on the folder's files and name: the same folder gives the same bytes.

    Raises: FileNotFoundError, ValueError, as `read_run` and `read_sections`.
    """
    run, sections = read_run(folder), read_sections(folder / "sections.jsonl")
    figures = draw_figures(run)
    page = render_page(run, sections, figures, further_files(folder))
    (folder / "plots").mkdir(exist_ok=True)
    for figure in figures:
        _replace(folder / "plots" / f"{figure.name}.svg", figure.wide)
    return _replace(folder / "report.html", page)


def draw_figures(run: LoggedRun) -> list[Figure]:
    """Charts of the declared metrics by unit and direction, and of learning rate, gradient norm and throughput."""
    rows, counted = run.rows, run.counted
    drawn = [
        Figure(
            chart.name,
            f"{plots.chart_title(chart, plots.series_of(chart, rows))} by step",
            plots.draw_chart(chart, rows),
            plots.draw_chart(chart, rows, narrow=True),
        )
        for chart in charts(run.metrics)
    ]
    return [
        *drawn,
        Figure("learning_rate", "Learning rate by step", plots.draw_learning_rate(rows)),
        Figure("gradient_norm", "Gradient norm by step", plots.draw_gradient_norm(rows)),
        Figure("throughput", f"{counted.capitalize()} per second by step", plots.draw_throughput(rows, counted)),
    ]


def further_files(run: Path) -> list[str]:
    """Sorted paths of other files in a run's folder and its subfolders, such as predictions and pages, without hidden
    files and deeper folders."""
    paths = [path.relative_to(run) for pattern in ("*", "*/*") for path in run.glob(pattern) if path.is_file()]
    hidden = [path for path in paths if any(part.startswith(".") for part in path.parts)]
    return sorted(path.as_posix() for path in paths if path.parts[0] not in WRITTEN and path not in hidden)


def read_sections(path: Path) -> list[LoggedSection]:
    """Sections of a sections.jsonl, in file order; [] without the file. A half-written last line is dropped.

    Raises: ValueError naming the file and a line that is broken or of an unknown kind.
    """
    sections = []
    for line in read_lines(path):
        with errors_as(ValueError, f"{path}, line {line.number}"):
            sections.append(section_from_json(line.row))
    return sections


def _replace(path: Path, text: str) -> Path:
    write_file(path, text.encode("utf-8", "replace"))  # a sampled byte sequence may contain lone surrogates
    return path
