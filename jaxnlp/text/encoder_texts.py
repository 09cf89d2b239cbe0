"""The vocabulary of a language model that reads texts as a classifier does: [CLS] text [SEP]."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from jaxnlp.text import require_fields
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.vocabulary import Vocabulary

_LONG = 2**31
"""More tokens than any text has."""


class EncoderTexts(Vocabulary):
    """The tokens of an encoder, for a language model: [CLS] starts each text, and [SEP] is predicted at its end.

    Attributes:
      vocabulary: the tokens.
    """

    def __init__(self, vocabulary: EncoderVocabulary):
        self.vocabulary = vocabulary

    @property
    def size(self) -> int:
        return self.vocabulary.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncoderTexts) and self.vocabulary == other.vocabulary

    def __hash__(self) -> int:
        return hash(self.vocabulary)

    def encode(self, text: str, *, starts: bool = True) -> np.ndarray:
        """Ids of a text's tokens, [N] int32, after [CLS] and without [SEP], so that a model continues the text.

        Args: starts: False = the text continues another one, and has no [CLS].
        """
        start = [self.vocabulary.id_of(self.vocabulary.special.cls)] if starts else []
        return np.concatenate([np.array(start, np.int32), self.vocabulary.encode(text)])

    def encode_all(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of whole texts, [N] int32 each: [CLS] text [SEP]."""
        return self.vocabulary.tokenize(texts, max_length=_LONG).tokens

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids that continue another text: each word after a blank, without special tokens."""
        word, before = self._first_word
        return self.vocabulary.decode([word, *ids])[len(before) :]

    @functools.cached_property
    def _first_word(self) -> tuple[int, str]:
        """The first token with letters or digits that is not special, and its text. It goes before the tokens to
        decode, since tokenizers put no blank before the first one."""
        for index, token in enumerate(self.vocabulary.tokens(range(self.size))):
            if token not in self.vocabulary.special and any(map(str.isalnum, token)):
                return index, self.vocabulary.decode([index])
        raise ValueError("the vocabulary has only special tokens and signs")

    def to_json(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        require_fields(fields, "texts of an encoder", vocabulary=dict)
        return cls(EncoderVocabulary.from_json(fields["vocabulary"]))
