"""Span corruption, the pretraining of text-to-text models: predict spans removed from a text.

Source: Raffel et al. 2020 (T5), sections 3.1.4 and 3.3. Differs from its code, where every text ends with a span, so
that a sentence with one span loses its end: text may follow the last span, as in the paper's example.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from data import Corpus, DataError, Split, require_processor
from data.download import locate_folder
from data.pipelines.buckets import rows_of
from data.pipelines.fingerprints import fingerprint
from data.pipelines.lengths import up_to
from data.pipelines.pair_batches import Ids, longer_side, padding_share, pair_buckets, trained_subwords, vocabulary_note
from data.readers.file_options import TextFiles
from jaxnlp.config import BatchSize, BatchTokens, Count, ProperFraction, TokenCount, UserPath, Within
from jaxnlp.input_files.tables import warn_of_tables
from jaxnlp.input_files.text_files import is_blank, read_text_file
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from jaxnlp.text.subwords import END, SubwordKind, Subwords
from jaxnlp.text.translation import TranslationProcessor

ADDED = 2
"""Maximum number of tokens, for sentinels and end symbols, that a source or target has more than its text."""


def span_counts(lengths: np.ndarray, *, rate: float, mean_span: float) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of tokens to remove from each text [R] int, and of spans [R] int; both increase with the length.

    round(rate * length) tokens, at least one and never all, in round(removed / mean_span) spans, at least one and at
    most the number of kept tokens.
    """
    removed = np.clip(np.rint(rate * lengths).astype(int), 1, lengths - 1)
    return removed, np.clip(np.rint(removed / mean_span).astype(int), 1, lengths - removed)


def random_spans(lengths: np.ndarray, generator: np.random.Generator, *, rate: float, mean_span: float) -> np.ndarray:
    """Whether to remove each token of concatenated texts [N] bool.

    `span_counts` has the numbers of tokens and spans. Divisions of the removed tokens into spans, and of the kept ones
    into parts between them, are uniform. Spans do not touch, and the first token of a text is kept.

    Args:
      lengths: of the R texts [R] int, each at least 2; their sum is N.
      generator: draws the divisions.
      rate: the share of the tokens that is removed.
      mean_span: the mean length of a span.
    """
    removed, spans = span_counts(lengths, rate=rate, mean_span=mean_span)
    kept = lengths - removed
    begins = _drawn(removed - 1, spans - 1, generator)  # whether a removed token, after the text's first, begins a span
    begins = np.insert(begins, np.cumsum(removed - 1) - (removed - 1), True)
    after = np.zeros(kept.sum(), int)  # number of removed tokens after each kept one
    after[_drawn(kept, spans, generator)] = np.diff(np.flatnonzero(begins), append=len(begins))
    return np.repeat(np.tile([False, True], len(after)), np.stack([np.ones_like(after), after], axis=1).ravel())


def _drawn(sizes: np.ndarray, counts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Whether each member of R groups is chosen [N] bool: a uniform choice of `counts` of the `sizes` members of each,
    [R] int both."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    order = np.argsort(group + generator.random(len(group)))
    chosen = np.zeros(len(group), bool)
    chosen[order] = _places(sizes) < np.repeat(counts, sizes)
    return chosen


def _places(sizes: np.ndarray) -> np.ndarray:
    """0, 1, ... in each group."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def corrupt_spans(
    tokens: np.ndarray, removed: np.ndarray, lengths: np.ndarray, sentinels: np.ndarray, *, end: int = END
) -> list[Ids]:
    """For each text, the text without its spans as the source, and the spans as the target.

    In the source, a sentinel replaces each span; in the target, each sequence of kept tokens:

        source   Thank you <0> me to your party <1> week
        target   <0> for inviting <1> last <2>

    Args:
      tokens: of R concatenated texts [N] int.
      removed: whether each token is removed [N] bool; no text's first one.
      lengths: of the texts [R] int.
      sentinels: their ids, in order [S] int.
      end: id of the end symbol.

    Returns:
      Source and target of each text, each with the end symbol last.
    """
    ends = np.cumsum(lengths)
    tokens, removed = np.insert(tokens, ends, end), np.insert(removed, ends, False)
    lengths = lengths + 1
    text, first = np.repeat(np.arange(len(lengths)), lengths), _places(lengths) == 0
    before = np.roll(removed, 1) & ~first  # whether the token before it is removed
    begins = removed & ~before
    spans = np.cumsum(begins) - begins  # number of spans before it, first in all texts
    spans -= spans[first][text]

    def replaced(gone: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens with a sentinel at the start of each removed sequence, and the length of each text."""
        stays = ~gone | starts
        return np.where(starts, sentinels[spans], tokens)[stays], np.bincount(text[stays])

    source, source_lengths = replaced(removed, begins)
    target, target_lengths = replaced(~removed, ~removed & (before | first))
    target = np.insert(target, np.cumsum(target_lengths), end)
    return [*zip(_parted(source, source_lengths), _parted(target, target_lengths + 1), strict=True)]


def _parted(tokens: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """The R texts of concatenated tokens. Args: lengths: [R] int."""
    bounds = np.cumsum([0, *lengths]).tolist()
    return [tokens[first:end] for first, end in itertools.pairwise(bounds)]


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
    """Kind of tokens."""
    vocabulary_size: TokenCount = 6_000
    """Maximum number of tokens in the vocabulary, the sentinels included."""
    minimum_count: Count = 2
    """Minimum number of occurrences in training of a character, of a word, and of a merged pair."""
    sentinels: Annotated[int, Within("[2, 2147483648)")] = 100
    """Number of symbols for removed spans; a text needs one more than its number of spans."""
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
        longest = np.array([self._longest_text])
        (spans,) = span_counts(longest, rate=self.corruption_rate, mean_span=self.mean_span)[1].tolist()
        if self.sentinels < spans + 1:
            raise ValueError(
                f"data.sentinels must be at least {spans + 1} for texts of data.lengths up to {self.max_length}, got "
                f"{self.sentinels}"
            )

    @property
    def max_length(self) -> int:
        return self.lengths[-1]

    @property
    def _longest_text(self) -> int:
        """Maximum length of a text whose source and target fit, with their sentinels and end symbols."""
        return self.max_length - ADDED

    @property
    def needs(self) -> str:
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
            line.strip()
            for path in paths
            for line in read_text_file(path, self.encoding).split("\n")
            if not is_blank(line)
        ]
        train, held = self._divided(lines)
        saved = processor is not None
        if not saved:
            both = trained_subwords(self, train, self.sentinels)
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

        sentinels = np.array([*map(subwords.extra_id, range(self.sentinels))])

        def corrupted(texts: Sequence[Sequence[int]], *draw: int) -> list[Ids]:
            lengths, generator = np.array([*map(len, texts)]), np.random.default_rng(draw)
            removed = random_spans(lengths, generator, rate=self.corruption_rate, mean_span=self.mean_span)
            return corrupt_spans(np.concatenate(texts), removed, lengths, sentinels, end=subwords.end)

        def epoch(index: int) -> Sequence[Ids]:
            return corrupted(texts, seed, index)

        first = epoch(0)
        longest = max(map(len, (*texts, *validation))) + ADDED
        lengths = up_to(longest, self.lengths, list(map(longer_side, first)), few=self.few_lengths)
        buckets, size = pair_buckets(lengths, start=subwords.start), rows_of(self.batch_tokens, self.batch_size)
        return Corpus(
            train=buckets.epochs(epoch, size, seed=seed),
            splits={"validation": Split(buckets.one_pass(corrupted(validation, 0), size)[0])},
            processor=processor,
            description=(
                f"{len(texts):,} texts of {sum(map(len, texts)):,} tokens for training, {len(validation):,} for "
                f"validation{left_out}; {vocabulary_note(processor, first, saved=saved)}; "
                f"{self.corruption_rate:.0%} of the tokens are removed; {padding_share(first, buckets, size):.0%} of "
                "the positions in training batches are padding"
            ),
            fingerprint=fingerprint(json.dumps([processor.to_json(), train, held])),
            of_each_shape=buckets.of_each_length(size),
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
            raise DataError(
                f"{', '.join(self.files)}: expected at least two distinct lines of text, one for training and one for "
                f"validation, got {len(distinct)}"
            )
        held = set(distinct[: max(1, round(self.validation_fraction * len(distinct)))])
        return [line for line in lines if line not in held], sorted(held)

    def _encoded(self, lines: Sequence[str], subwords: Subwords | PretrainedSubwords) -> list[list[int]]:
        """The ids of lines; lines that are too long are split."""
        longest = self._longest_text
        encoded = (subwords.encode(line) for line in lines)
        return [ids[start : start + longest] for ids in encoded for start in range(0, len(ids), longest)]
