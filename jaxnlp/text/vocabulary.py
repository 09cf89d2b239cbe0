"""The methods of every vocabulary."""

from collections.abc import Iterable
from typing import Any, Protocol, Self

import numpy as np


class Vocabulary(Protocol):
    """Tokens and their ids, 0 to size - 1. Equal by value."""

    @property
    def size(self) -> int:
        """V."""

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text's tokens, [N] int32. Raises: UnknownTokenError for tokens that are not in it."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids; the texts of two sequences, concatenated, are the text of both."""

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The vocabulary whose `to_json` this is. Raises: ValueError naming the wrong field."""
