"""Sections of a report page: plain data that `train.report` draws. It escapes every text."""

import base64
import binascii
import dataclasses
from collections.abc import Sized
from typing import Literal

_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


@dataclasses.dataclass(frozen=True)
class Content:
    """The base of all kinds of sections.

    Raises: ValueError, from each kind, when a field does not fit the others; the message names the field.
    """


@dataclasses.dataclass(frozen=True)
class Table(Content):
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
    rows: tuple[tuple[str | int | float | None, ...], ...]
    marks: tuple[Literal["good", "bad", ""], ...] = ()
    bars: tuple[int, ...] = ()
    note: str = ""
    folded: bool = False

    def __post_init__(self):
        for index, row in enumerate(self.rows):
            _check_length(f"Table.rows[{index}]", row, len(self.header), "cells")
        if self.marks:
            _check_length("Table.marks", self.marks, len(self.rows), "marks")
        for column in self.bars:
            if not 0 <= column < len(self.header):
                raise ValueError(f"Table.bars: there is no column {column} among {len(self.header)}")


@dataclasses.dataclass(frozen=True)
class Line:
    """A curve: its name, and the coordinates of its points."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self):
        _check_length("Line.y", self.y, len(self.x), "values")


@dataclasses.dataclass(frozen=True)
class Lines(Content):
    """Curves on common axes."""

    lines: tuple[Line, ...]
    x_label: str
    y_label: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class HeatMap(Content):
    """Weights [rows, columns] as shades, each row scaled to its largest weight."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    title: str = ""
    note: str = ""

    def __post_init__(self):
        _check_length("HeatMap.weights", self.weights, len(self.rows), "rows")
        for index, row in enumerate(self.weights):
            _check_length(f"HeatMap.weights[{index}]", row, len(self.columns), "weights")


@dataclasses.dataclass(frozen=True)
class MarkedText(Content):
    """Texts with highlighted parts: pairs (text, whether it is highlighted), one tuple a paragraph."""

    paragraphs: tuple[tuple[tuple[str, bool], ...], ...]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Picture(Content):
    """A picture: a PNG file's bytes in base64, and a description."""

    png: str
    alt: str
    note: str = ""

    def __post_init__(self):
        try:
            content = base64.b64decode(self.png, validate=True)
        except binascii.Error as error:
            raise ValueError(f"Picture.png: not base64 ({error})") from error
        if not content.startswith(_PNG):
            raise ValueError("Picture.png: the bytes are not a PNG file")


def _check_length(field: str, values: Sized, expected: int, what: str) -> None:
    if len(values) != expected:
        raise ValueError(f"{field}: expected {expected} {what}, got {len(values)}")
