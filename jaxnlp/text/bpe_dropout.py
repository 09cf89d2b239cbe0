"""BPE dropout of many texts at once."""

import array
import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxnlp.text.segmentation import merged, outcomes
from jaxnlp.text.subwords import Subwords

LEAST = 1 / 16
"""A word's table leaves out segmentations that are expected less often than this in a draw of all texts,"""
MOST_SHARE = 2**23
"""or, in very large texts, less than once in this number of words."""
LONGEST = 32
"""Words of more characters have no table."""
MOST_IDS = 64
"""Ids in all tables per word of the texts. The most frequent words have tables first."""


class BPEDropout:
    """Draws the ids of texts with BPE dropout, other ids in each draw; the end symbol is last.

    Each word has a table of the outcomes of its merges with their probabilities, so a draw is a look-up. An outcome is
    a final segmentation, or a rare one at which the table ends; from there `merged` goes on. It also makes the tokens
    of rare words without a table. So the probabilities are exactly those of `merged`.

    Args:
      subwords: of kind `bpe`.
      texts: the texts.
      rate: probability of leaving out each merge.

    Raises: ValueError for a rate that is not in [0, 1], and for subwords of another kind, which have no merges.
    """

    def __init__(self, subwords: Subwords, texts: Sequence[str], rate: float):
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"rate must be in [0, 1], got {rate}")
        if subwords.kind != "bpe":
            raise ValueError(f"BPE dropout needs subwords of kind bpe, got {subwords.kind}")
        self._subwords, self._rate = subwords, rate
        words = [(*subwords.words(text), "") for text in texts]  # "" is the end of a text
        counts = Counter(itertools.chain.from_iterable(words)).most_common()
        self._types = [word for word, _ in counts]
        index_of = {word: index for index, word in enumerate(self._types)}
        self._words = np.array([index_of[word] for text in words for word in text], np.int32)
        self._ends = np.cumsum([0, *map(len, words)])  # of the texts, in words
        least, most = max(LEAST, len(self._words) / MOST_SHARE), MOST_IDS * len(self._words)
        # Millions of outcomes, in arrays, which the garbage collector does not visit. `ids` of an outcome that is not
        # final are the lengths of its tokens.
        ids, lengths, final, upto = array.array("i"), array.array("i"), array.array("b"), array.array("d")
        edges = [0]
        for index, (word, count) in enumerate(counts):
            bound, has_table = float(index), len(word) <= LONGEST and len(ids) < most
            for tokens, probability, ends in outcomes(
                word, subwords.merges, dropout=rate, least=least / count if has_table else math.inf
            ):
                encoded = self._encoded(tokens) if ends else [*map(len, tokens)]
                bound += probability
                ids.extend(encoded)
                lengths.append(len(encoded))
                upto.append(bound)
                final.append(ends)
            edges.append(len(lengths))
        self._ids, self._lengths, self._upto = np.array(ids), np.array(lengths), np.array(upto)
        self._final = np.array(final, bool)
        self._starts, self._edges = np.cumsum(self._lengths) - self._lengths, np.array(edges)

    def __call__(self, generator: np.random.Generator) -> list[np.ndarray]:
        """The ids of each text [n] int32."""
        drawn = np.searchsorted(self._upto, self._words + generator.random(len(self._words)), side="right")
        # Sums of probabilities are rounded.
        drawn = np.clip(drawn, self._edges[self._words], self._edges[self._words + 1] - 1)
        starts, lengths = self._starts[drawn], self._lengths[drawn]
        further, chance = list[int](), random.Random(int(generator.integers(2**63)))
        for word in np.flatnonzero(~self._final[drawn]).tolist():
            begin, end = starts[word], starts[word] + lengths[word]
            cuts = itertools.accumulate(self._ids[begin:end].tolist(), initial=0)
            tokens = [self._types[self._words[word]][start:end] for start, end in itertools.pairwise(cuts)]
            tokens = merged(tokens, self._subwords.merges, dropout=self._rate, generator=chance)
            ids = self._encoded(tokens)
            starts[word], lengths[word] = len(self._ids) + len(further), len(ids)
            further += ids
        ends = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.repeat(starts - ends[:-1], lengths) + np.arange(ends[-1])
        whole = np.concatenate([self._ids, np.array(further, np.int32)])[positions]
        texts = [whole[start:end] for start, end in itertools.pairwise(ends[self._ends].tolist())]
        if self._subwords.byte_fallback:
            return texts
        return [np.array(self._subwords.joined(text.tolist()), np.int32) for text in texts]

    def _encoded(self, tokens: Sequence[str]) -> list[int]:
        """The ids of a word's tokens; [] for the end of a text."""
        return self._subwords.ids_of(tokens) or [self._subwords.end]
