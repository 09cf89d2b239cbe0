"""The base class of vocabularies."""

import abc
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from jaxnlp.text.padding import padded
from jaxnlp.text.raw_texts import as_texts


class Vocabulary(abc.ABC):
    """Tokens and their ids, 0 to size - 1. Equal by value."""

    unit: ClassVar[str] = "tokens"
    """The plural noun for tokens in metrics."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """V."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size:,} {self.unit})"

    def __call__(self, texts: str | Sequence[str]) -> dict[str, np.ndarray]:
        """`tokens` [B, T] int32; one text is one row. Shorter texts are padded with id 0 at their end.

        A language model reads from left to right, so padding changes nothing before it.

        Raises: ValueError for arguments that are not texts, and for tokens outside the vocabulary.
        """
        return {"tokens": padded([self.encode(text) for text in as_texts(texts)])}

    @abc.abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """Ids of a text's tokens, [N] int32. Raises: UnknownTokenError for tokens outside the vocabulary."""

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids; two texts, concatenated, are the text of both sequences."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""

    @classmethod
    @abc.abstractmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The vocabulary whose `to_json` this is. Raises: ValueError naming the wrong field."""
