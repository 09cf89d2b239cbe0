"""A vocabulary of words: what white space separates."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from jaxnlp.text import UnknownTokenError

EOL, UNK = "<eol>", "<unk>"
"""What stands for a line feed, and for words outside the vocabulary, in vocabularies that have them."""


class UnknownWordError(UnknownTokenError):
    """A text holds words that the vocabulary lacks, and nothing stands for such words."""


class WordVocabulary:
    """Words and their ids.

    Attributes:
      words: the word with id i at place i.
      unknown: the one that stands for all others; None = there is none.
    """

    def __init__(self, words: Iterable[str], *, unknown: str | None = None):
        """Raises: ValueError unless `words` are distinct and without white space, `unknown` among them."""
        self.words = tuple(words)
        self.unknown = unknown
        if not self.words:
            raise ValueError("a vocabulary needs at least one word, got none")
        for word in self.words:
            if word.split() != [word]:
                raise ValueError(f"a word has some characters and no white space, got {word!r}")
        self._ids = {word: i for i, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            twice = next(word for i, word in enumerate(self.words) if self._ids[word] != i)
            raise ValueError(f"the words of a vocabulary are distinct, but {twice!r} occurs twice")
        if unknown is not None and unknown not in self._ids:
            raise ValueError(f"{unknown!r}, which is to stand for unknown words, is not in the vocabulary")

    @property
    def size(self) -> int:
        """V."""
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordVocabulary) and (self.words, self.unknown) == (other.words, other.unknown)

    def __hash__(self) -> int:
        return hash((self.words, self.unknown))

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text's words, [N] int32; a line feed is the word EOL where the vocabulary has it.

        Raises:
          UnknownWordError: names unknown words where none stands for them, and the place of the first.
        """
        return self.encode_words(split_words(text) if EOL in self._ids else text.split())

    def count_unknown(self, text: str) -> int:
        """How many of a text's words are read as `unknown` without being it."""
        return sum(word not in self._ids for word in text.split()) if self.unknown else 0

    def encode_words(self, words: Sequence[str]) -> np.ndarray:
        """Ids of words, [len(words)] int32. Raises: UnknownWordError as `encode` does."""
        if self.unknown is None:
            self._refuse_unknown(words)
            return np.array([self._ids[word] for word in words], np.int32)
        unknown = self._ids[self.unknown]
        return np.array([self._ids.get(word, unknown) for word in words], np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids: each word behind a blank, EOL as a line feed.

        The texts of two sequences make up the text of both: what a model adds can be printed word by word, behind what
        it was given.
        """
        words = (self.words[int(i)] for i in ids)
        return "".join("\n" if word == EOL else f" {word}" for word in words)

    def to_json(self) -> str:
        """The vocabulary as a JSON document, which `load` reads."""
        return json.dumps({"words": list(self.words), "unknown": self.unknown}, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: Path) -> "WordVocabulary":
        """Reads what `to_json` gave. Raises: ValueError naming the file when it holds something else."""
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            return cls(held["words"], unknown=held["unknown"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} holds no word vocabulary: {error}") from error

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        unknown = list(dict.fromkeys(word for word in words if word not in self._ids))
        if unknown:
            names = ", ".join(map(repr, unknown[:10])) + (f" and {len(unknown) - 10} more" if unknown[10:] else "")
            raise UnknownWordError(
                f"not in the vocabulary of {self.size} words: {names} (first at word {words.index(unknown[0]) + 1})"
            )


def split_words(text: str) -> list[str]:
    """The words of a text: what white space separates, and EOL for each line feed."""
    return text.replace("\n", f" {EOL} ").split()
