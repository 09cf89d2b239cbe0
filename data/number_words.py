"""Numbers in words in two languages: pairs with one right answer each."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from num2words import num2words

from data import Corpus, require_processor
from data.translation import SentencePairs
from jaxnlp.config import Count, TokenCount, Within
from jaxnlp.text.translation import SentencePair, TranslationProcessor

Language = Literal["de", "es", "fr"]
_NAMES = {"de": "German", "es": "Spanish", "fr": "French"}
LEAST_HELD_OUT = 100
"""Smaller numbers are always for training: larger numbers consist of their words."""
_VOCABULARY_PAIRS = 5_000


@dataclasses.dataclass(frozen=True)
class NumberWords(SentencePairs):
    """Numbers below a bound, in words of English and of another language, by the num2words package.

    Each training number is drawn below 10, 100, 1,000 and so on up to the bound, with equal probabilities. Numbers of
    validation and test never occur in training.
    """

    vocabulary_size: TokenCount = 500
    """Maximum number of tokens in a vocabulary; with BPE and unigram, 260 of them are symbols and bytes."""
    lengths: tuple[int, ...] = (4, 8, 12, 16, 20, 24, 32, 48, 64, 96)
    """Lengths of batches in tokens, end symbol included; JAX compiles a program for each length."""
    language: Language = "de"
    """The target language: German, Spanish or French."""
    highest: Annotated[int, Within(f"[{2 * LEAST_HELD_OUT}, 2147483648)")] = 1_000_000
    """Upper bound of the numbers, exclusive."""
    training_pairs: Count = 20_000
    """Number of training numbers, small ones repeated; they do not depend on the seed."""
    held_out_pairs: Count = 500
    """Size of the validation split, and of the test split; they do not depend on the seed."""

    def __post_init__(self):
        super().__post_init__()
        # At least half of the numbers are for training.
        if 4 * self.held_out_pairs > self.highest - LEAST_HELD_OUT:
            raise ValueError(
                f"data.held_out_pairs {self.held_out_pairs} leaves too few of {self.highest} numbers for training; "
                "lower it, or raise data.highest"
            )

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """The numbers; the splits are `validation` and `test`.

        Args:
          seed: decides the order of training, and BPE dropout.
          processor: the processor of an earlier run; None = the vocabulary is trained on numbers that are not held out.

        Raises: DataError: when the vocabulary is too small, or all numbers have more tokens than the last length.
        """
        held = self._held_out()
        saved = processor is not None
        if not saved:
            drawn = self._drawn(0, _VOCABULARY_PAIRS, held)
            processor = self.trained_processor(self._pairs([*range(LEAST_HELD_OUT), *drawn]))
        pairs = self._pairs(held)
        return self.corpus(
            seed,
            require_processor(processor, TranslationProcessor),
            self._pairs(self._drawn(1, self.training_pairs, held)),
            {"validation": (pairs[: self.held_out_pairs], ""), "test": (pairs[self.held_out_pairs :], "")},
            saved=saved,
            file="",
            about=f"numbers below {self.highest:,} in words, English to {_NAMES[self.language]}: ",
        )

    def _held_out(self) -> list[int]:
        """The numbers of validation, followed by those of test."""
        drawn = np.random.default_rng(self.highest).choice(
            self.highest - LEAST_HELD_OUT, size=2 * self.held_out_pairs, replace=False
        )
        return (drawn + LEAST_HELD_OUT).tolist()

    def _drawn(self, seed: int, count: int, held: Sequence[int]) -> list[int]:
        """Numbers below random powers of ten that are not held out."""
        generator, excluded, drawn = np.random.default_rng(seed), frozenset(held), list[int]()
        digits = math.ceil(math.log10(self.highest))
        while len(drawn) < count:
            bounds = np.minimum(10 ** generator.integers(1, digits + 1, size=count), self.highest)
            drawn += [number for number in generator.integers(bounds).tolist() if number not in excluded]
        return drawn[:count]

    def _pairs(self, numbers: Sequence[int]) -> tuple[SentencePair, ...]:
        return tuple(SentencePair(_words(number, "en"), _words(number, self.language)) for number in numbers)


@functools.lru_cache(maxsize=2**16)
def _words(number: int, language: str) -> str:
    return str(num2words(number, lang=language))
