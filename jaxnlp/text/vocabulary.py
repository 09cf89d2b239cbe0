"""What every vocabulary does, whatever its tokens are."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import numpy as np

from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.wordpiece import WordPieceVocabulary
from jaxnlp.text.words import WordVocabulary


class Vocabulary(Protocol):
    """Tokens and their ids, 0 to size - 1."""

    @property
    def size(self) -> int:
        """V."""

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text's tokens, [N] int32. Raises: UnknownTokenError for what it lacks."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids; the texts of two sequences make up the text of both."""

    def to_json(self) -> str:
        """The vocabulary as a JSON document, which `load_vocabulary` reads."""


def load_vocabulary(path: Path) -> Vocabulary:
    """Reads what a vocabulary's `to_json` gave. Raises: ValueError naming the file when it holds something else."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} holds no vocabulary: {error}") from error
    if isinstance(held, dict) and "characters" in held:
        return CharacterVocabulary.load(path)
    if isinstance(held, dict) and "words" in held:
        return WordVocabulary.load(path)
    if isinstance(held, dict) and "wordpiece" in held:
        return WordPieceVocabulary.load(path)
    raise ValueError(f"{path} holds no vocabulary: neither characters nor words nor pieces of words are in it")
