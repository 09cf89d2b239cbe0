"""The processor of models with several parts: a tokenizer, the maximum length, and the labels of each part."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from jaxnlp.text.embedding_settings import PLAIN, EmbeddingSettings
from jaxnlp.text.labels import Labels
from jaxnlp.text.raw_texts import as_texts
from jaxnlp.text.wordpiece import WordPieceVocabulary, padded_texts


@dataclasses.dataclass(frozen=True)
class TextProcessor:
    """The processor of models that read texts and predict their labels. Equal by value.

    Attributes:
      vocabulary: the tokenizer.
      max_length: maximum length of a text in tokens, special tokens included; longer texts are truncated.
      parts: (name, labels) of each part.
      embeddings: prompts and truncation of a pretrained encoder's embeddings; trained models do not have any.
    """

    vocabulary: WordPieceVocabulary
    max_length: int
    parts: tuple[tuple[str, Labels], ...]
    embeddings: EmbeddingSettings = PLAIN

    def __post_init__(self):
        if self.max_length < 3:
            raise ValueError(f"max_length must be at least 3, got {self.max_length}")
        if not self.parts or len(set(self.names)) != len(self.parts):
            raise ValueError(f"parts must be at least one, with distinct names, got {', '.join(self.names) or 'none'}")

    def __call__(self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """`tokens` [B, S, T] int32 and `attention_mask` [B, S, T] bool, with S = 2 for pairs; one text is one row.

        Raises: ValueError for arguments that are not texts.
        """
        columns = [as_texts(texts)] if pairs is None else [as_texts(texts), as_texts(pairs)]
        columns = [[self.embeddings.prompt + text for text in column] for column in columns]
        tokens = [self.vocabulary.tokenize(column, max_length=self.max_length).tokens for column in columns]
        rows = list(zip(*tokens, strict=True))
        ids, mask = padded_texts(rows, len(rows), max(len(text) for row in rows for text in row))
        return {"tokens": ids, "attention_mask": mask}

    @property
    def names(self) -> tuple[str, ...]:
        """The parts' names."""
        return tuple(name for name, _ in self.parts)

    def labels(self, name: str) -> Labels:
        """The labels of a part. Raises: ValueError, with all names, for another name."""
        for part, labels in self.parts:
            if part == name:
                return labels
        raise ValueError(f"this model does not have the part {name!r}; it has: {', '.join(self.names)}")

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {
            "vocabulary": self.vocabulary.to_json(),
            "max_length": self.max_length,
            "parts": [[name, labels.to_json()] for name, labels in self.parts],
            **({} if self.embeddings == PLAIN else {"embeddings": self.embeddings.to_json()}),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError naming the wrong field."""
        for name, kind in (("vocabulary", dict), ("max_length", int), ("parts", list)):
            if not isinstance(fields, dict) or not isinstance(fields.get(name), kind):
                raise ValueError(f"text processor: {name} is missing or not of type {kind.__name__}")
        parts = []
        for part in fields["parts"]:
            if not isinstance(part, list) or len(part) != 2 or not isinstance(part[0], str):
                raise ValueError(f"text processor: a part must be a name and its labels, got {part!r}")
            parts.append((part[0], Labels.from_json(part[1])))
        vocabulary = WordPieceVocabulary.from_json(fields["vocabulary"])
        embeddings = EmbeddingSettings.from_json(fields["embeddings"]) if "embeddings" in fields else PLAIN
        return cls(vocabulary, fields["max_length"], tuple(parts), embeddings)
