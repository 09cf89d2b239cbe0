"""A vocabulary of words that are separated by white space."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from jaxnlp.text import UnknownTokenError, list_of_strings
from jaxnlp.text.vocabulary import Vocabulary

EOL, UNK = "<eol>", "<unk>"
"""The words for a line feed and for unknown words, in vocabularies that have them."""


class UnknownWordError(UnknownTokenError):
    """A text contains words outside the vocabulary, which has no unknown word."""


class WordVocabulary(Vocabulary):
    """Words and their ids.

    Attributes:
      words: the word with id i at index i.
      unknown: the word that replaces all others; None = other words are an error.
    """

    unit = "words"

    def __init__(self, words: Iterable[str], *, unknown: str | None = None):
        """Raises: ValueError unless `words` are distinct, have no white space, and include `unknown`."""
        self.words = tuple(words)
        self.unknown = unknown
        if not self.words:
            raise ValueError("a vocabulary needs at least one word, got none")
        self._ids: dict[str, int] = {}
        for index, word in enumerate(self.words):
            if word.split() != [word]:
                raise ValueError(f"words[{index}] must not be empty or contain white space, got {word!r}")
            if self._ids.setdefault(word, index) != index:
                raise ValueError(f"words[{index}] and words[{self._ids[word]}] are both {word!r}")
        if unknown is not None and unknown not in self._ids:
            raise ValueError(f"unknown must be one of the words, got {unknown!r}")

    @property
    def size(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordVocabulary) and (self.words, self.unknown) == (other.words, other.unknown)

    def __hash__(self) -> int:
        return hash((self.words, self.unknown))

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text's words, [N] int32; a line feed is the word EOL if the vocabulary has it.

        Raises:
          UnknownWordError: if `unknown` is None; names the unknown words, and the position of the first.
        """
        return self.encode_words(whitespace_split(text) if EOL in self._ids else text.split())

    def count_unknown(self, text: str) -> int:
        """Number of a text's unknown words."""
        return sum(word not in self._ids for word in text.split()) if self.unknown else 0

    def encode_words(self, words: Sequence[str]) -> np.ndarray:
        """Ids of words, [len(words)] int32. Raises: UnknownWordError as `encode` does."""
        if self.unknown is None:
            self._refuse_unknown(words)
            return np.array([self._ids[word] for word in words], np.int32)
        unknown = self._ids[self.unknown]
        return np.array([self._ids.get(word, unknown) for word in words], np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids: each word after a blank, EOL as a line feed.

        So generated words can be printed one by one after the prompt.
        """
        words = (self.words[int(token_id)] for token_id in ids)
        return "".join("\n" if word == EOL else f" {word}" for word in words)

    def to_json(self) -> dict[str, Any]:
        return {"words": list(self.words), "unknown": self.unknown}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        words = list_of_strings(fields, "words")
        unknown = fields.get("unknown", 0)
        if unknown is not None and not isinstance(unknown, str):
            raise ValueError("unknown must be a word or null")
        return cls(words, unknown=unknown)

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        unknown = list(dict.fromkeys(word for word in words if word not in self._ids))
        if unknown:
            names = ", ".join(map(repr, unknown[:10])) + (f" and {len(unknown) - 10} more" if unknown[10:] else "")
            raise UnknownWordError(
                f"not in the vocabulary of {self.size} words: {names} (first at word {words.index(unknown[0]) + 1})"
            )


def whitespace_split(text: str) -> list[str]:
    """The words of a text, which white space separates, and EOL for each line feed."""
    return text.replace("\n", f" {EOL} ").split()
