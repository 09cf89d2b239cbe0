"""Texts with spans removed, to be predicted: the pretraining of text-to-text models.

Source: Raffel et al. 2020 (T5), sections 3.1.4 and 3.3.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data import Corpus, DataConfig, DataError, Split, require_processor
from data.download import locate_folder
from data.pair_batches import Ids, Shapes, endless_batches
from data.text_sources import read_utf8
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import END, SubwordKind, Subwords
from jaxnlp.text.translation import TranslationProcessor


def corrupted_places(
    length: int, generator: np.random.Generator, *, rate: float, mean_span: float
) -> list[tuple[int, int]]:
    """Start and end of each span that is removed from a text of that many tokens.

    round(rate * length) tokens are removed, at least one and never all, in round(removed / mean_span) spans. All ways
    to divide the removed tokens into spans have the same probability, and so have all ways to divide the others into
    the texts before the spans. No two spans touch, and the text begins with a token that is kept.

    Args:
      length: at least 2.
      generator: draws the division.
      rate: share of the tokens that is removed.
      mean_span: mean length of a span.
    """
    removed = min(max(round(rate * length), 1), length - 1)
    spans = min(max(round(removed / mean_span), 1), length - removed)
    before, inside = (_division(total, spans, generator) for total in (length - removed, removed))
    found, place = [], 0
    for kept, cut in zip(before, inside, strict=True):
        found.append((place + kept, place + kept + cut))
        place += kept + cut
    return found


def _division(total: int, parts: int, generator: np.random.Generator) -> list[int]:
    """Lengths of at least 1 that add up to the total; each such list with the same probability."""
    cuts = np.sort(generator.choice(total - 1, size=parts - 1, replace=False)) + 1
    return np.diff([0, *cuts, total]).tolist()


def corrupt_spans(ids: Sequence[int], spans: Sequence[tuple[int, int]], sentinel: Callable[[int], int]) -> Ids:
    """A text without its spans, and the spans.

    Each span becomes a sentinel in the source. The target has each sentinel before its span, and one more at the end:

        source   Thank you <0> me to your party <1> week
        target   <0> for inviting <1> last <2>

    Args:
      ids: of the text.
      spans: start and end of each, in order.
      sentinel: from a span's number to the id of its sentinel.

    Returns:
      Source and target, each with the end symbol behind it.
    """
    source: list[int] = []
    target: list[int] = []
    place = 0
    for number, (start, end) in enumerate(spans):
        source += [*ids[place:start], sentinel(number)]
        target += [sentinel(number), *ids[start:end]]
        place = end
    return [*source, *ids[place:], END], [*target, sentinel(len(spans)), END]


@dataclasses.dataclass(frozen=True)
class CorruptedText(DataConfig):
    """Lines of text files with spans removed; other spans in each epoch. One vocabulary for source and target.

    A line with more tokens than fit is divided. Lines of a single token are left out.
    """

    files: tuple[str, ...] = ()
    """UTF-8 text files; required. Names that end in .gz are compressed."""
    data_set: str | None = None
    """Folder of a public data set in JAXNLP_DATA, which has the files; None = the files are your own."""
    batch_size: int = 512
    """Maximum number of texts in a training step, over all devices."""
    batch_tokens: int = 4_096
    """Maximum number of tokens in each side of a training step, padding included."""
    lengths: tuple[int, ...] = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128)
    """Lengths of batches in tokens, the end symbol included; each is a program to compile."""
    subwords: SubwordKind = "bpe"
    """How texts are cut into tokens."""
    vocabulary_size: int = 6_000
    """Maximum number of tokens in the vocabulary, the sentinels included."""
    minimum_count: int = 2
    """Minimum number of occurrences: of a character, of a word, and of neighbours to be merged."""
    sentinels: int = 100
    """Symbols that stand for removed spans; a text has at most one span less."""
    corruption_rate: float = 0.15
    """Share of a text's tokens that is removed."""
    mean_span: float = 3.0
    """Mean length of a removed span, in tokens."""
    validation_fraction: float = 0.02
    """Share of the distinct lines that is held out; it does not depend on the seed."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "batch_tokens", "vocabulary_size", "minimum_count")
        self.require_at_least(2, "sentinels")
        if not self.lengths or self.lengths[0] < 4 or any(a >= b for a, b in itertools.pairwise(self.lengths)):
            raise ValueError(f"data.lengths must increase and be at least 4, got {self.lengths}")
        for name in ("corruption_rate", "validation_fraction"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"data.{name} must lie in (0, 1), got {getattr(self, name)}")
        if not 1.0 <= self.mean_span < float("inf"):
            raise ValueError(f"data.mean_span must be at least 1 and finite, got {self.mean_span}")

    @property
    def max_length(self) -> int:
        """The last of the lengths."""
        return self.lengths[-1]

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the files; the split is `validation`, whose spans are the same in each run.

        Args:
          seed: decides the order of training, and which spans are removed.
          processor: that of an earlier run; None = the vocabulary is trained.

        Raises:
          FileNotFoundError, DataError: when a file is not found or is something else.
        """
        if not self.files:
            raise DataError("data.files is required: give text files with --data.files FILE ...")
        lines = [line.strip() for path in self._paths() for line in read_utf8(path).split("\n") if line.strip()]
        train, held = self._divided(lines)
        if processor is None:
            both = self._trained(train)
            processor = TranslationProcessor(both, both)
        subwords: Subwords = require_processor(processor, TranslationProcessor).source
        if not processor.shared or subwords.extra < self.sentinels:
            raise DataError(
                f"data.sentinels {self.sentinels}: the vocabulary has {subwords.extra} extra symbols, and source and "
                "target need one vocabulary; begin with one that was made for span corruption"
            )
        texts, validation = self._encoded(train, subwords), self._encoded(held, subwords)

        def corrupted(ids: Sequence[int], *draw: int) -> Ids:
            generator = np.random.default_rng(draw)
            spans = corrupted_places(len(ids), generator, rate=self.corruption_rate, mean_span=self.mean_span)
            return corrupt_spans(ids, spans[: self.sentinels - 1], subwords.extra_id)

        def epoch(number: int) -> Sequence[Ids]:
            return [corrupted(ids, seed, number, place) for place, ids in enumerate(texts)]

        shapes = Shapes(self.lengths, self.batch_tokens, self.batch_size)
        fixed = [corrupted(ids, place) for place, ids in enumerate(validation)]
        batches = [
            shapes.batch(bucket, [fixed[n] for n in members])
            for bucket, members in shapes.groups(fixed, range(len(fixed)))
        ]
        digest = hashlib.sha256(json.dumps([processor.to_json(), train, held]).encode())
        return Corpus(
            train=endless_batches(epoch, shapes, seed=seed),
            splits={"validation": Split(tuple(batches))},
            processor=processor,
            description=(
                f"{len(texts):,} texts of {sum(map(len, texts)):,} tokens for training, {len(validation):,} for "
                f"validation; {subwords.size:,} tokens in the vocabulary; {self.corruption_rate:.0%} of the tokens are "
                f"removed; {shapes.padding(epoch(0)):.0%} of the training batches is padding"
            ),
            fingerprint=digest.hexdigest(),
        )

    def _paths(self) -> list[Path]:
        if self.data_set is None:
            return [Path(name).expanduser() for name in self.files]
        folder = locate_folder(
            self.data_set, None, holds=", ".join(self.files), otherwise="give files of your own with --data.files"
        )
        return [folder / name for name in self.files]

    def _divided(self, lines: Sequence[str]) -> tuple[list[str], list[str]]:
        """Lines for training and for validation; equal lines are on the same side."""
        distinct = sorted(set(lines), key=lambda line: hashlib.sha256(line.encode()).digest())
        if len(distinct) < 2:
            raise DataError(f"{len(distinct)} distinct lines cannot be divided into training and validation")
        held = set(distinct[: max(1, round(self.validation_fraction * len(distinct)))])
        return [line for line in lines if line not in held], sorted(held)

    def _trained(self, lines: Sequence[str]) -> Subwords:
        try:
            return train_subwords(
                lines, self.subwords, self.vocabulary_size, minimum_count=self.minimum_count, extra=self.sentinels
            )
        except ValueError as error:
            raise DataError(f"data.vocabulary_size {self.vocabulary_size}: {error}") from error

    def _encoded(self, lines: Sequence[str], subwords: Subwords) -> list[list[int]]:
        """Ids of lines, divided where they are too long; source and target then fit, with one end symbol each."""
        longest = self.max_length - 2
        found = (subwords.encode(line) for line in lines)
        parts = (ids[start : start + longest] for ids in found for start in range(0, len(ids), longest))
        return [part for part in parts if len(part) > 1]
