"""Numbers in words in two languages: endless pairs, each with one right answer."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from num2words import num2words

from data import Corpus, DataError, require_processor
from data.pipelines.pair_batches import Ids, encoded, longer_side
from data.translation import SentencePairs
from jaxnlp.config import Count, TokenCount, Within
from jaxnlp.text.translation import SentencePair, TranslationProcessor

Language = Literal["de", "es", "fr"]
_NAMES = {"de": "German", "es": "Spanish", "fr": "French"}
LEAST_HELD_OUT = 100
"""Smaller numbers are always for training: larger numbers consist of their words."""
_VOCABULARY_PAIRS = 5_000
_MOST_TOKENS = 3
"""Number of candidates with the most tokens that are combined with other thousands, to find the maximum length."""


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
    """Upper bound of the numbers, not included."""
    epoch_pairs: Count = 10_000
    """Number of training numbers in an epoch."""
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
          seed: decides which numbers are drawn for training.
          processor: the processor of an earlier run; None = the vocabulary is trained on numbers that are not held out.

        Raises:
          DataError: when the vocabulary is too small, or a number has more tokens than the last length.
        """
        held = self._held_out()
        excluded = frozenset(held)
        saved = processor is not None
        if not saved:
            drawn = self._drawn(np.random.default_rng(0), _VOCABULARY_PAIRS, excluded)
            processor = self.trained_processor(self._pairs([*range(LEAST_HELD_OUT), *drawn]))
        processor = require_processor(processor, TranslationProcessor)
        longest, number = self._longest(processor)
        if longest > self.max_length:
            raise DataError(
                f"the number {number:,} has {longest} tokens; raise the last of data.lengths, {self.max_length}"
            )
        held_pairs = self._pairs(held)
        splits = {"validation": held_pairs[: self.held_out_pairs], "test": held_pairs[self.held_out_pairs :]}

        def training(index: int, longest: int) -> Sequence[Ids]:
            drawn = self._drawn(np.random.default_rng((seed, index, 0)), self.epoch_pairs, excluded)
            ids = self._training_ids(self._pairs(drawn), processor, longest, seed=seed, epoch=index)
            # Numbers that are longer than the tried ones must not stop a run.
            return [pair for pair in ids if longer_side(pair) <= longest]

        description = (
            f"numbers below {self.highest:,} in words, English to {_NAMES[self.language]}; {self.held_out_pairs:,} for "
            f"validation and {self.held_out_pairs:,} for test"
        )
        return self.corpus(
            seed,
            processor,
            training,
            {name: (pairs, "") for name, pairs in splits.items()},
            longest=longest,
            random=True,
            saved=saved,
            description=description,
            content=f"{self.language} {self.highest} {self.epoch_pairs}",
        )

    def _training_ids(
        self, pairs: Sequence[SentencePair], processor: TranslationProcessor, longest: int, *, seed: int, epoch: int
    ) -> list[Ids]:
        """The ids of pairs, with the BPE dropout of an epoch, but without dropout if it makes a pair longer than the
        longest."""
        if not self.bpe_dropout:
            return [encoded(pair, processor) for pair in pairs]
        seeds = np.random.default_rng((seed, epoch, 1)).integers(2**62, size=len(pairs)).tolist()
        encodings = [
            encoded(pair, processor, dropout=self.bpe_dropout, seed=own) for pair, own in zip(pairs, seeds, strict=True)
        ]
        return [
            ids if longer_side(ids) <= longest else encoded(pair, processor)
            for ids, pair in zip(encodings, pairs, strict=True)
        ]

    def _longest(self, processor: TranslationProcessor) -> tuple[int, int]:
        """The maximum number of tokens of a number in either language, and this number.

        It tries all numbers below 1,000, then all thousands with the longest of these, and so on.
        """
        longest = []
        for encode, language in ((processor.encode_source, "en"), (processor.encode_target, self.language)):
            numbers, unit = [0], 1
            while unit < self.highest:
                tried = [unit * group + number for group in range(1_000) for number in numbers]
                sizes = sorted(
                    (len(encode(_words(number, language))), number) for number in tried if number < self.highest
                )
                longest.append(sizes[-1])
                numbers, unit = [number for _, number in sizes[-_MOST_TOKENS:]], 1_000 * unit
        return max(longest)

    def _held_out(self) -> list[int]:
        """The numbers of validation, followed by those of test."""
        drawn = np.random.default_rng(self.highest).choice(
            self.highest - LEAST_HELD_OUT, size=2 * self.held_out_pairs, replace=False
        )
        return (drawn + LEAST_HELD_OUT).tolist()

    def _drawn(self, generator: np.random.Generator, count: int, excluded: frozenset[int]) -> list[int]:
        """Numbers below random powers of ten, without those that are excluded."""
        drawn: list[int] = []
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
