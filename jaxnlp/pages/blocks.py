"""Blocks of a report page: plain data that `train.report` draws. It escapes every text."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under a header.

    Attributes:
      header: names of the columns.
      rows: cells, texts or numbers; one for each column.
      marks: for each row "good", "bad" or ""; () = none.
      bars: indices of the columns that are fractions of 1 and drawn as bars.
      note: a sentence above it.
      folded: whether the table is hidden until it is opened.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    marks: tuple[Literal["good", "bad", ""], ...] = ()
    bars: tuple[int, ...] = ()
    note: str = ""
    folded: bool = False


@dataclasses.dataclass(frozen=True)
class Line:
    """A curve: its name, and the coordinates of its points."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Lines:
    """Curves on common axes."""

    lines: tuple[Line, ...]
    x_label: str
    y_label: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """Weights [rows, columns] as shades, each row scaled to its largest weight."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    title: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class MarkedText:
    """Texts with highlighted parts: pairs (text, whether it is highlighted), one tuple a paragraph."""

    paragraphs: tuple[tuple[tuple[str, bool], ...], ...]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture: a PNG file's bytes in base64, and a description."""

    png: str
    alt: str
    note: str = ""
