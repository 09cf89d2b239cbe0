"""Additions of two numbers, in characters: the question is `12+34`, and the answer is `46`.

Source: karpathy/minGPT, projects/adder. Differs: numbers have no leading zeros, and the digits of a sum are in their
usual order, which is harder than the reverse.
"""

import dataclasses
from typing import Annotated, Any

import numpy as np

from data import Corpus, require_processor
from data.pipelines.endless import iterable, shuffled
from data.pipelines.fingerprints import fingerprint
from data.questions import Questions, ScoredText, question_split
from jaxnlp.config import Count, Within
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.questions import Question

CHARACTERS = PAD + MASK + "+0123456789"


@dataclasses.dataclass(frozen=True)
class Additions(Questions):
    """All pairs of numbers below a power of ten; some are held out for validation, and some for test."""

    digits: Annotated[int, Within("[1, 3]")] = 2
    """Maximum number of digits of the two numbers."""
    sequence_length: Annotated[int, Within("[16, 2147483648)")] = 16
    """Maximum length of an example in characters, T."""
    held_out: Count = 500
    """Number of pairs for validation, and for test; the choice does not depend on the seed."""

    def __post_init__(self):
        super().__post_init__()
        if 4 * self.held_out > self.pairs:
            raise ValueError(
                f"data.held_out {self.held_out} leaves too few of {self.pairs} additions for training; lower it to "
                f"{self.pairs // 4} or less, or raise data.digits"
            )

    @property
    def pairs(self) -> int:
        """Number of all pairs of numbers."""
        return 100**self.digits

    def question(self, index: int) -> Question:
        """The pair of this index, from 0, as a question."""
        first, second = divmod(index, 10**self.digits)
        return Question(f"{first}+{second}", str(first + second))

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """The additions; the splits are `validation` and `test`.

        Args:
          seed: decides the order of the training pairs.
          processor: the vocabulary of an earlier run; None = the digits and `+`.
        """
        vocabulary = CharacterVocabulary(CHARACTERS)
        if processor is not None:
            vocabulary = require_processor(processor, CharacterVocabulary)
        pairs = np.random.default_rng(0).permutation(self.pairs).tolist()
        train = pairs[2 * self.held_out :]
        starts = {"validation": 0, "test": self.held_out}
        held = {name: [*map(self.question, pairs[start : start + self.held_out])] for name, start in starts.items()}
        texts = {name: [self.readable_text(one, vocabulary) for one in of] for name, of in held.items()}
        longest = self.readable_text(self.question(self.pairs - 1), vocabulary)

        order = shuffled(train, seed)

        def drawn(indices: np.ndarray) -> list[ScoredText]:
            return [self.question_text(self.question(index)) for index in order(indices)]

        buckets = self.buckets([longest.positions], vocabulary)
        return Corpus(
            train=iterable(buckets.endless(drawn, self.batch_size, seed=seed)),
            splits={
                name: question_split(buckets, of, texts[name], self.evaluation_batch_size) for name, of in held.items()
            },
            processor=vocabulary,
            description=(
                f"additions of numbers of up to {self.digits} digits: {len(train):,} for training, {self.held_out:,} "
                f"for validation and {self.held_out:,} for test"
            ),
            fingerprint=fingerprint(f"additions {self.digits} {self.held_out}"),
            of_each_shape=buckets.of_each_shape([longest], self.batch_size),
        )
