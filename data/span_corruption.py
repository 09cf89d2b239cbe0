"""Span corruption, the pretraining of text-to-text models: spans of a text are removed and have to be predicted.

Source: Raffel et al. 2020 (T5), sections 3.1.4 and 3.3. Differs from its code, where every text ends with a span: here
text may follow the last span, as in the paper's example. A sentence with one span would always lose its end.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from data import Corpus, DataError, Split, require_processor
from data.download import locate_folder
from data.pipelines.fingerprints import fingerprint
from data.pipelines.pair_batches import Ids, endless_batches, longer_side, padding_share, pair_batch, vocabulary_note
from data.pipelines.shapes import Shapes
from data.readers.file_options import TextFiles
from jaxnlp.config import BatchSize, BatchTokens, Count, ProperFraction, TokenCount, UserPath, Within
from jaxnlp.input_files.tables import warn_of_tables
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import END, SubwordKind, Subwords
from jaxnlp.text.translation import TranslationProcessor

ADDED = 2
"""Source and target have at most as many tokens more than their text, for sentinels and end symbols."""


def span_counts(length: int, *, rate: float, mean_span: float) -> tuple[int, int]:
    """The number of tokens to remove from a text, and the number of spans; both increase with the length.

    round(rate * length) tokens, at least one and never all, in round(removed / mean_span) spans, at least one and at
    most the number of kept tokens.
    """
    removed = min(max(round(rate * length), 1), length - 1)
    return removed, min(max(round(removed / mean_span), 1), length - removed)


def corrupted_places(
    length: int, generator: np.random.Generator, *, rate: float, mean_span: float
) -> list[tuple[int, int]]:
    """The start and the end of each span to remove from a text of `length` tokens.

    `span_counts` has the numbers of tokens and spans. All divisions of the removed tokens into spans have the same
    probability, and so have all divisions of the other tokens into the parts between spans. Spans do not touch, and the
    first token is kept.

    Args:
      length: at least 2.
      generator: draws the divisions.
      rate: the share of the tokens that is removed.
      mean_span: the mean length of a span.
    """
    removed, spans = span_counts(length, rate=rate, mean_span=mean_span)
    before = _division(length - removed + 1, spans + 1, generator)[:-1]  # the part after the last span may be empty
    inside = _division(removed, spans, generator)
    bounds, position = [], 0
    for kept, gone in zip(before, inside, strict=True):
        bounds.append((position + kept, position + kept + gone))
        position += kept + gone
    return bounds


def _division(total: int, parts: int, generator: np.random.Generator) -> list[int]:
    """Lengths of at least 1 with this sum; all such lists have the same probability."""
    # Lists of so few numbers take less time than arrays.
    before = sorted(generator.choice(total - 1, size=parts - 1, replace=False).tolist())
    return [end - start for start, end in itertools.pairwise([-1, *before, total - 1])]


def corrupt_spans(
    ids: Sequence[int], spans: Sequence[tuple[int, int]], sentinel: Callable[[int], int], *, end: int = END
) -> Ids:
    """A text without its spans as the source, and the spans as the target.

    In the source, a sentinel replaces each span. In the target, each span follows its sentinel, and one more sentinel
    comes last:

        source   Thank you <0> me to your party <1> week
        target   <0> for inviting <1> last <2>

    Args:
      ids: the text's ids.
      spans: the start and the end of each span, in order.
      sentinel: a function from a span's index to the id of its sentinel.
      end: id of the end symbol.

    Returns:
      Source and target, each with the end symbol last.
    """
    source: list[int] = []
    target: list[int] = []
    position = 0
    for index, (first, after) in enumerate(spans):
        source += [*ids[position:first], sentinel(index)]
        target += [sentinel(index), *ids[first:after]]
        position = after
    return [*source, *ids[position:], end], [*target, sentinel(len(spans)), end]


@dataclasses.dataclass(frozen=True)
class CorruptedText(TextFiles):
    """Lines of text files with spans removed, other spans in each epoch. Source and target share one vocabulary.

    Lines that are too long are split. Texts of a single token are removed; the description counts them.
    """

    length_field: ClassVar[str] = "lengths"

    usual = ("files", "data_set", "batch_size")
    processor_fields = ("subwords", "vocabulary_size", "minimum_count")

    files: tuple[UserPath, ...] = ()
    """Text files; required. Files that end in .gz are decompressed."""
    data_set: str | None = None
    """Folder in $JAXNLP_DATA of the public data set with the files; None = the files are your own."""
    batch_size: BatchSize = 512
    """Maximum number of texts in a training step, over all devices."""
    batch_tokens: BatchTokens = 4_096
    """Maximum number of tokens on each side of a batch, padding included."""
    lengths: tuple[int, ...] = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128)
    """Lengths of batches in tokens, end symbol included; JAX compiles a program for each length."""
    subwords: SubwordKind = "bpe"
    """How texts are tokenized."""
    vocabulary_size: TokenCount = 6_000
    """Maximum number of tokens in the vocabulary, the sentinels included."""
    minimum_count: Count = 2
    """Minimum number of occurrences in training of a character, of a word, and of a merged pair."""
    sentinels: Annotated[int, Within("[2, 2147483648)")] = 100
    """Number of symbols that replace removed spans; a text needs one more than its number of spans."""
    corruption_rate: ProperFraction = 0.15
    """Share of a text's tokens that is removed."""
    mean_span: Annotated[float, Within("[1, inf)")] = 3.0
    """Mean length of a removed span, in tokens."""
    validation_fraction: ProperFraction = 0.02
    """Share of the distinct lines that is held out; it does not depend on the seed."""

    def __post_init__(self):
        super().__post_init__()
        if not self.lengths or self.lengths[0] < 4 or any(a >= b for a, b in itertools.pairwise(self.lengths)):
            raise ValueError(f"data.lengths must increase and be at least 4, got {self.lengths}")
        self.format_only_if(self.data_set is None, "your own files, without data.data_set")
        _, spans = span_counts(self._longest_text, rate=self.corruption_rate, mean_span=self.mean_span)
        if self.sentinels < spans + 1:
            raise ValueError(
                f"data.sentinels must be at least {spans + 1} for texts of data.lengths up to {self.max_length}, got "
                f"{self.sentinels}"
            )

    @property
    def max_length(self) -> int:
        """The maximum length of a batch."""
        return self.lengths[-1]

    @property
    def _longest_text(self) -> int:
        """Maximum length of a text whose source and target fit, with their sentinels and end symbols."""
        return self.max_length - ADDED

    @property
    def needs(self) -> str:
        """The data set's folder."""
        return self.data_set or "your text"

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the files; the removed spans of the split `validation` do not depend on the seed.

        Args:
          seed: decides the order of training and the removed spans.
          processor: the processor of an earlier run; None = the vocabulary is trained.

        Raises:
          FileNotFoundError: when a file does not exist.
          DataError: when a file cannot be read, when no text is left, or when the processor does not fit.
        """
        if not self.files:
            raise DataError("data.files is required: give text files with --data.files FILE ...")
        paths = self._paths()
        warn_of_tables(paths)
        lines = [
            line.strip() for path in paths for line in read_text_file(path, self.encoding).split("\n") if line.strip()
        ]
        train, held = self._divided(lines)
        saved = processor is not None
        if not saved:
            both = self._trained(train)
            processor = TranslationProcessor(both, both)
        subwords: Subwords | PretrainedSubwords = require_processor(processor, TranslationProcessor).source
        if not processor.shared or subwords.extra < self.sentinels:
            raise DataError(
                f"data.sentinels {self.sentinels} needs as many extra symbols, and source and target need one "
                f"vocabulary, but the vocabulary has {subwords.extra}; use a run that was trained by span corruption"
            )
        parts, held_parts = self._encoded(train, subwords), self._encoded(held, subwords)
        texts, validation = ([part for part in sequences if len(part) > 1] for sequences in (parts, held_parts))
        for name, sequences in (("training", texts), ("validation", validation)):
            if not sequences:
                raise DataError(f"the {name} lines of {', '.join(self.files)} have no text of two tokens or more")
        single = len(parts) - len(texts) + len(held_parts) - len(validation)
        left_out = f" ({single:,} of a single token removed)" if single else ""

        def corrupted(ids: Sequence[int], *draw: int) -> Ids:
            generator = np.random.default_rng(draw)
            spans = corrupted_places(len(ids), generator, rate=self.corruption_rate, mean_span=self.mean_span)
            return corrupt_spans(ids, spans, subwords.extra_id, end=subwords.end)

        def epoch(index: int) -> Sequence[Ids]:
            return [corrupted(ids, seed, index, row) for row, ids in enumerate(texts)]

        first = epoch(0)
        longest = max(map(len, (*texts, *validation))) + ADDED
        shapes = Shapes(self.lengths, self.batch_tokens, self.batch_size).up_to(longest)
        if self.few_lengths:
            shapes = shapes.fitted(list(map(longer_side, first)))
        batch = functools.partial(pair_batch, start=subwords.start)
        fixed = [corrupted(ids, row) for row, ids in enumerate(validation)]
        batches, _ = shapes.one_pass(fixed, longer_side, batch)
        return Corpus(
            train=endless_batches(epoch, shapes, seed=seed, start=subwords.start),
            splits={"validation": Split(batches)},
            processor=processor,
            description=(
                f"{len(texts):,} texts of {sum(map(len, texts)):,} tokens for training, {len(validation):,} for "
                f"validation{left_out}; {vocabulary_note(processor, first, saved=saved)}; "
                f"{self.corruption_rate:.0%} of the tokens are removed; {padding_share(first, shapes):.0%} of the "
                "positions in training batches are padding"
            ),
            fingerprint=fingerprint(json.dumps([processor.to_json(), train, held])),
            of_each_shape=shapes.of_each_shape(batch),
        )

    def _paths(self) -> list[Path]:
        if self.data_set is None:
            return [Path(name) for name in self.files]
        holds, otherwise = ", ".join(self.files), "give your own files with --data.files"
        folder = locate_folder(self.data_set, None, holds=holds, otherwise=otherwise, takes_path=False)
        for name in self.files:
            if not (folder / name).is_file():
                raise DataError(
                    f"{folder}, the folder of the data set {self.data_set}, has no {name}; for your own files, set "
                    "--data.data-set None"
                )
        return [folder / name for name in self.files]

    def _divided(self, lines: Sequence[str]) -> tuple[list[str], list[str]]:
        """The training lines and the validation lines; equal lines stay together."""
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

    def _encoded(self, lines: Sequence[str], subwords: Subwords | PretrainedSubwords) -> list[list[int]]:
        """The ids of lines; lines that are too long are split."""
        longest = self._longest_text
        encoded = (subwords.encode(line) for line in lines)
        return [ids[start : start + longest] for ids in encoded for start in range(0, len(ids), longest)]
