"""Numbers in words in two languages: pairs without end, each with one right answer."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from num2words import num2words

from data import Corpus, DataError, require_processor
from data.pair_batches import Ids, longer_side
from data.translation import SentencePairs
from jaxnlp.text.translation import SentencePair, TranslationProcessor

Language = Literal["de", "es", "fr"]
LEAST_HELD_OUT = 100
"""Smaller numbers are always for training: they have the words that larger ones are made of."""
_VOCABULARY_PAIRS = 5_000


@dataclasses.dataclass(frozen=True)
class NumberWords(SentencePairs):
    """Numbers below a bound, in English words and in those of another language, by the num2words package.

    Each training number is drawn below 10, 100, 1,000 and so on up to the bound, all with the same probability. The
    numbers for validation and test never occur in training.
    """

    vocabulary_size: int = 500
    """Maximum number of tokens in a vocabulary; BPE and unigram have 260 symbols and bytes among them."""
    lengths: tuple[int, ...] = (4, 8, 12, 16, 20, 24, 32, 48, 64, 96)
    """Lengths of batches in tokens, the end symbol included; each is a program to compile."""
    language: Language = "de"
    """The language to translate to: German, Spanish or French."""
    highest: int = 1_000_000
    """Numbers are smaller than this."""
    epoch_pairs: int = 10_000
    """Numbers that are drawn at once for training."""
    held_out_pairs: int = 500
    """Numbers for validation, and as many for test; they do not depend on the seed."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "epoch_pairs", "held_out_pairs")
        self.require_at_least(2 * LEAST_HELD_OUT, "highest")
        # Half of the numbers at least are for training.
        if 4 * self.held_out_pairs > self.highest - LEAST_HELD_OUT:
            raise ValueError(
                f"data.held_out_pairs {self.held_out_pairs} is too many of {self.highest} numbers; lower it, or raise "
                "data.highest"
            )

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """The numbers; the splits are `validation` and `test`.

        Args:
          seed: decides which numbers are drawn for training.
          processor: that of an earlier run; None = trained on numbers that are not held out.

        Raises:
          DataError: when the vocabulary is too small, or a number has more tokens than the last of the lengths.
        """
        held = self._held_out()
        splits = {
            "validation": self._pairs(held[: self.held_out_pairs]),
            "test": self._pairs(held[self.held_out_pairs :]),
        }
        excluded = frozenset(held)
        small = range(min(LEAST_HELD_OUT, self.highest))
        if processor is None:
            drawn = self._drawn(np.random.default_rng(0), _VOCABULARY_PAIRS, excluded)
            processor = self.trained_processor(self._pairs([*small, *drawn]))
        processor = require_processor(processor, TranslationProcessor)

        def epoch(number: int) -> Sequence[Ids]:
            drawn = self._drawn(np.random.default_rng((seed, number, 0)), self.epoch_pairs, excluded)
            ids = self.training_ids(self._pairs(drawn), processor, seed=seed, epoch=number)
            longest = max(map(longer_side, ids))
            if longest > self.max_length:
                raise DataError(f"a number has {longest} tokens; raise the last of data.lengths, {self.max_length}")
            return ids

        description = (
            f"numbers below {self.highest:,} in words, English to {self.language}; {len(splits['validation']):,} for "
            f"validation and {len(splits['test']):,} for test"
        )
        content = f"{self.language} {self.highest} {self.epoch_pairs}"
        return self.corpus(seed, processor, epoch, splits, description=description, content=content)

    def _held_out(self) -> list[int]:
        """Numbers for validation, and then those for test."""
        drawn = np.random.default_rng(self.highest).choice(
            self.highest - LEAST_HELD_OUT, size=2 * self.held_out_pairs, replace=False
        )
        return (drawn + LEAST_HELD_OUT).tolist()

    def _drawn(self, generator: np.random.Generator, count: int, excluded: frozenset[int]) -> list[int]:
        """Numbers that are not excluded, below a random power of ten."""
        found: list[int] = []
        digits = math.ceil(math.log10(self.highest))
        while len(found) < count:
            bounds = np.minimum(10 ** generator.integers(1, digits + 1, size=count), self.highest)
            found += [number for number in generator.integers(bounds).tolist() if number not in excluded]
        return found[:count]

    def _pairs(self, numbers: Sequence[int]) -> tuple[SentencePair, ...]:
        return tuple(SentencePair(_words(number, "en"), _words(number, self.language)) for number in numbers)


@functools.lru_cache(maxsize=2**16)
def _words(number: int, language: str) -> str:
    return str(num2words(number, lang=language))
