"""Tables of texts, or pairs of texts, with labels: tab-separated, with a header, quoted as CSV."""

import csv
import dataclasses
import io
import math
import sys
from pathlib import Path

from data import DataError
from data.texts import read_utf8
from jaxnlp.text.tasks import TextTask

LABELS = {"classification": "sentiment", "paraphrase": "is_duplicate", "similarity": "similarity"}
"""The column that holds the label, by the kind of task."""


@dataclasses.dataclass(frozen=True)
class LabelledText:
    """A row of a table.

    Attributes:
      id: its name.
      text: what is asked about.
      pair: the second text, where the task is about two.
      label: the answer; None where it is not known.
    """

    id: str
    text: str
    pair: str | None
    label: float | None


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a file, and how many had no label although the table has them: they are left out."""

    rows: tuple[LabelledText, ...]
    skipped: int


def read_header(path: Path) -> list[str]:
    """The columns of a table. Raises: FileNotFoundError, DataError: when it cannot be read."""
    header = read_utf8(path).partition("\n")[0].rstrip("\r")
    return [name.strip('"') for name in header.split("\t")]


def text_columns(task: TextTask) -> tuple[str, ...]:
    """The columns that hold a task's texts."""
    return ("sentence",) if task.texts == 1 else ("sentence1", "sentence2")


def read_table(path: Path, task: TextTask, *, labelled: bool | None = None) -> Table:
    """The rows of a file: columns `id`; `sentence`, or `sentence1` and `sentence2`; and that of the labels.

    Args:
      path: the file, also compressed by gzip.
      task: says which columns there are, and which labels.
      labelled: whether there must be labels; None = where there is a column of them.

    Raises:
      FileNotFoundError, DataError: when it cannot be read, a column is missing, or a row is none; the message says
        which line, what was found and what was expected.
    """
    # A process-wide setting of the module, 131,072 characters unless told; a text may be longer.
    csv.field_size_limit(sys.maxsize)
    # Strict: a quote that is never closed would otherwise swallow the rest of the file.
    reader = csv.reader(io.StringIO(read_utf8(path), newline=""), delimiter="\t", strict=True)
    texts = text_columns(task)
    columns: dict[str, int] = {}
    rows: list[LabelledText] = []
    skipped, begins = 0, 1
    try:
        for fields in reader:
            line, begins = begins, reader.line_num + 1
            if not columns:
                columns = _columns(fields, path, ("id", *texts), LABELS[task.kind], labelled)
                width = len(fields)
                continue
            if not fields:  # a blank line, which csv.DictReader passes over too
                continue
            if len(fields) != width:
                raise DataError(
                    f"{path}, line {line}: expected {width} fields between tabs, as the header has, got {len(fields)}; "
                    'a field with a tab or a quote is written in quotes, with "" for a quote'
                )
            row = _row(fields, columns, texts, task, f"{path}, line {line}")
            if row is None:
                skipped += 1
            else:
                rows.append(row)
    except csv.Error as error:
        raise DataError(f"{path}, line {begins}: {error}; is a quote not closed?") from error
    if not rows:
        raise DataError(f"{path} has no rows{' with labels' if skipped else ''} below its header")
    return Table(tuple(rows), skipped)


def _columns(
    header: list[str], path: Path, needed: tuple[str, ...], label: str, labelled: bool | None
) -> dict[str, int]:
    """Where each column stands."""
    found = {name: place for place, name in enumerate(header)}
    if labelled or (labelled is None and label in found):
        needed = (*needed, label)
    missing = [name for name in needed if name not in found]
    if missing:
        raise DataError(
            f"{path}, line 1: expected the columns {', '.join(needed)} between tabs, got {', '.join(header)}; "
            f"missing: {', '.join(missing)}"
        )
    twice = [name for name in needed if header.count(name) > 1]
    if twice:
        raise DataError(f"{path}, line 1: expected columns once, got {', '.join(header)}; twice: {', '.join(twice)}")
    return {name: found[name] for name in needed}


def _row(
    fields: list[str], columns: dict[str, int], texts: tuple[str, ...], task: TextTask, where: str
) -> LabelledText | None:
    """None for a row without the label that the table has."""
    label = None
    name = LABELS[task.kind]
    if name in columns:
        written = fields[columns[name]].strip()
        if not written:
            return None
        try:
            label = float(written)
        except ValueError:
            label = math.nan
        if not task.admits(label):
            raise DataError(f"{where}: {name} must be {task.expected()}, got {written!r}")
    for text in texts:
        if not fields[columns[text]].strip():
            raise DataError(f"{where}: {text} is empty; remove the row")
    first, *rest = (fields[columns[text]] for text in texts)
    return LabelledText(fields[columns["id"]], first, rest[0] if rest else None, label)
