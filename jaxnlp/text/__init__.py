"""Texts as sequences of token ids."""

from typing import Any


class UnknownTokenError(ValueError):
    """A text contains tokens that are not in the vocabulary. The message has these tokens and the position of the
    first."""


def list_of_strings(fields: dict[str, Any], name: str) -> list[str]:
    """A field that must be a list of strings. Raises: ValueError naming the field, or the wrong entry."""
    value = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, list):
        raise ValueError(f"{name}: expected a list of strings, got {type(value).__name__}")
    for index, entry in enumerate(value):
        if not isinstance(entry, str):
            raise ValueError(f"{name}[{index}]: expected a string, got {entry!r}")
    return value
