"""A run's files with a JSON object, such as config.json, or with one on each line, such as metrics.jsonl."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxnlp.input_files.json_objects import parse_json


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file. Raises: FileNotFoundError; ValueError naming the file, and the line that is not JSON."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON ({error.msg}); restore the file") from error
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); restore the file") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object, got {type(value).__name__}; restore the file")
    return value


class Line(NamedTuple):
    """A line: its number from 1, its bytes without the line feed, and the object."""

    number: int
    text: bytes
    row: dict[str, Any]


def read_lines(path: Path, **fields: type) -> list[Line]:
    """The lines of a file, in order; [] without the file.

    Empty lines are ignored, and so is a last line that is not JSON, which a killed process left.

    Args:
      path: of the file.
      fields: the types of the fields that each object must have.

    Raises: ValueError naming the file and the line that is not such an object.
    """
    # Split only at line feeds: a text may have other characters at which splitlines() splits.
    texts = path.read_bytes().split(b"\n") if path.exists() else []
    numbered = [(number, text) for number, text in enumerate(texts, 1) if text.strip()]
    lines = []
    for number, text in numbered:
        try:
            row = parse_json(text)
        except ValueError as error:
            if number == numbered[-1][0]:
                break
            raise ValueError(f"{path}, line {number}: not JSON ({error}); correct the line or remove it") from error
        _check(row, fields, f"{path}, line {number}")
        lines.append(Line(number, text, row))
    return lines


def _check(row: Any, fields: Mapping[str, type], where: str) -> None:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: expected an object, got {row!r}; correct the line or remove it")
    for name, kind in fields.items():
        if type(row.get(name)) is not kind:
            got = repr(row[name]) if name in row else "none"
            raise ValueError(
                f"{where}: expected a field {name} of type {kind.__name__}, got {got}; correct the line or remove it"
            )
