"""A vocabulary of single characters."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from jaxnlp.text import UnknownTokenError, list_of_strings
from jaxnlp.text.vocabulary import Vocabulary

PAD, MASK = "\u25a1", "\u2047"
"""Padding, and the separator between question and answer: ids 0 and 1 of vocabularies that have them."""


class UnknownCharacterError(UnknownTokenError):
    """A text contains characters that are not in the vocabulary."""


class CharacterVocabulary(Vocabulary):
    """Characters and their ids.

    Attributes:
      characters: the character with id i at index i.
    """

    unit = "characters"

    def __init__(self, characters: Sequence[str]):
        """Raises: ValueError unless `characters` are single and distinct."""
        self.characters = tuple(characters)
        if not self.characters:
            raise ValueError("a vocabulary needs at least one character, got none")
        first = dict[str, int]()
        for index, character in enumerate(self.characters):
            if len(character) != 1:
                raise ValueError(f"characters[{index}] must be a single character, got {character!r}")
            if first.setdefault(character, index) != index:
                raise ValueError(f"characters[{index}] and characters[{first[character]}] are both {character!r}")
        self._ids = np.full(max(map(ord, self.characters)) + 2, -1, np.int32)  # by code point; the last one is unknown
        self._ids[[*map(ord, self.characters)]] = np.arange(self.size)

    @classmethod
    def of(cls, text: str, *, special: str = "") -> "CharacterVocabulary":
        """The characters that occur in a text, in code point order, after the `special` ones."""
        return cls([*special, *sorted(set(text) - set(special))])

    @property
    def size(self) -> int:
        return len(self.characters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharacterVocabulary) and self.characters == other.characters

    def __hash__(self) -> int:
        return hash(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text's characters, [len(text)] int32.

        Raises:
          UnknownCharacterError: names the unknown characters, the position of the first, and the known ones.
        """
        code_points = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
        ids = self._ids[np.minimum(code_points, len(self._ids) - 1)]
        unknown = ids < 0
        if unknown.any():
            found = sorted({text[i] for i in np.flatnonzero(unknown)})
            # A mark that is written onto the sign before it would stand on the quote.
            names = ", ".join(ascii(c) if unicodedata.category(c).startswith("M") else repr(c) for c in found)
            raise UnknownCharacterError(
                f"not in the vocabulary of {self.size} characters: {names} (first at character "
                f"{int(unknown.argmax()) + 1}); it has {''.join(self.characters)!r}"
            )
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.characters[int(token_id)] for token_id in ids)

    def to_json(self) -> dict[str, Any]:
        return {"characters": list(self.characters)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        return cls(list_of_strings(fields, "characters"))
