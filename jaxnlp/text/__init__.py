"""Texts as sequences of token ids."""

from collections.abc import Mapping
from typing import Any


class UnknownTokenError(ValueError):
    """A text contains tokens that are not in the vocabulary. The message names them, and the position of the first."""


def list_of_strings(fields: dict[str, Any], name: str) -> list[str]:
    """A field that must be a list of strings. Raises: ValueError naming the field, or the wrong entry."""
    value = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, list):
        raise ValueError(f"{name}: expected a list of strings, got {type(value).__name__}")
    for index, entry in enumerate(value):
        if not isinstance(entry, str):
            raise ValueError(f"{name}[{index}]: expected a string, got {entry!r}")
    return value


def require_fields(fields: Any, owner: str, **kinds: type) -> None:
    """Raises ValueError naming the first field that is missing or not of its type. Args: owner: what has the fields."""
    for name, kind in kinds.items():
        if not isinstance(fields, dict) or type(fields.get(name)) is not kind:
            raise ValueError(f"{owner}: {name} is missing or not of type {kind.__name__}")


def most_frequent(counts: Mapping[str, int], least: int = 1) -> tuple[str, ...]:
    """The keys with at least this count, the most frequent first, then in alphabetical order."""
    return tuple(sorted((key for key, count in counts.items() if count >= least), key=lambda key: (-counts[key], key)))
