"""A vocabulary of single characters."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from jaxnlp.text import UnknownTokenError

PAD, MASK = "\u25a1", "\u2047"
"""What fills a sequence up, and what separates the given from the asked: ids 0 and 1 of vocabularies that have them."""


class UnknownCharacterError(UnknownTokenError):
    """A text holds characters that the vocabulary lacks."""


class CharacterVocabulary:
    """Characters and their ids.

    Attributes:
      characters: the character with id i at place i.
    """

    def __init__(self, characters: Sequence[str]):
        """Raises: ValueError unless `characters` are single and distinct."""
        self.characters = tuple(characters)
        if not self.characters:
            raise ValueError("a vocabulary needs at least one character, got none")
        if any(len(c) != 1 for c in self.characters) or len(set(self.characters)) != len(self.characters):
            raise ValueError("a character vocabulary holds distinct single characters")
        code_points = np.array([ord(c) for c in self.characters], dtype=np.uint32)
        self._ids = np.argsort(code_points).astype(np.int32)
        self._code_points = code_points[self._ids]

    @classmethod
    def of(cls, text: str, *, special: str = "") -> "CharacterVocabulary":
        """The characters that occur in a text, in code point order, behind the `special` ones."""
        return cls([*special, *sorted(set(text) - set(special))])

    @property
    def size(self) -> int:
        """V."""
        return len(self.characters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharacterVocabulary) and self.characters == other.characters

    def __hash__(self) -> int:
        return hash(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text's characters, [len(text)] int32.

        Raises:
          UnknownCharacterError: names the unknown characters, the place of the first, and what is known.
        """
        code_points = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
        places = np.searchsorted(self._code_points, code_points).clip(max=self.size - 1)
        unknown = self._code_points[places] != code_points
        if unknown.any():
            names = ", ".join(repr(c) for c in sorted({text[i] for i in np.flatnonzero(unknown)}))
            raise UnknownCharacterError(
                f"not in the vocabulary of {self.size} characters: {names} (first at character "
                f"{int(unknown.argmax()) + 1}); it knows {''.join(self.characters)!r}"
            )
        return self._ids[places]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids."""
        return "".join(self.characters[int(i)] for i in ids)

    def to_json(self) -> str:
        """The vocabulary as a JSON document, which `load` reads."""
        return json.dumps({"characters": list(self.characters)}, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: Path) -> "CharacterVocabulary":
        """Reads what `to_json` gave. Raises: ValueError naming the file when it holds something else."""
        try:
            return cls(json.loads(path.read_text(encoding="utf-8"))["characters"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no character vocabulary: {error}") from error
