"""Sentences and their translations: the base class, and pairs from files."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from data import Corpus, DataConfig, DataError, Split, require_processor
from data.download import locate_folder
from data.pipelines.buckets import Buckets, rows_of
from data.pipelines.epochs import keeps_last
from data.pipelines.fingerprints import fingerprint
from data.pipelines.lengths import fitting, up_to
from data.pipelines.pair_batches import (
    Ids,
    dropped_out,
    encoded,
    longer_side,
    padding_share,
    pair_buckets,
    pairs_split,
    trained_subwords,
    vocabulary_note,
)
from data.readers.file_options import TextFiles
from data.readers.repeated import repeated_notes
from data.readers.sentence_pairs import ReadPairs, held_out, lines_of, read_pairs, read_pairs_or_sources
from data.span_corruption import CorruptedText
from jaxnlp.config import BatchSize, BatchTokens, Count, Natural, ProperFraction, Rate, TokenCount, UserPath
from jaxnlp.corpus import SourceRows
from jaxnlp.text.sentencepiece import read_sentencepiece
from jaxnlp.text.subwords import SubwordKind
from jaxnlp.text.translation import SentencePair, TranslationProcessor

OWN_FILES = "for your own sentences, use the recipe translation_text_files"
"""The alternative to the files of a public data set."""


@dataclasses.dataclass(frozen=True)
class SentencePairs(DataConfig):
    """The base of data sets of sentences and their translations; batches have about the same number of tokens.

    The subwords are those of a given processor, or are trained on the training sentences.
    """

    length_field: ClassVar[str] = "lengths"
    processor_fields = ("subwords", "vocabulary_size", "shared_vocabulary", "minimum_count", "extra_symbols")

    batch_size: BatchSize = 256
    """Maximum number of pairs in a training step, over all devices."""
    batch_tokens: BatchTokens = 2_048
    """Maximum number of tokens on each side of a training batch, padding included."""
    evaluation_batch_tokens: BatchTokens = 4_096
    """Maximum number of tokens on each side of an evaluation batch, padding included."""
    lengths: tuple[int, ...] = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128)
    """Lengths of batches in tokens, end symbol included; JAX compiles a program for each length. Longer pairs are
    removed from training, and truncated in validation and test."""
    subwords: SubwordKind = "bpe"
    """Kind of tokens."""
    vocabulary_size: TokenCount = 8_000
    """Maximum number of tokens in a vocabulary; with BPE and unigram, 260 of them are symbols and bytes."""
    shared_vocabulary: bool = True
    """Whether source and target share one vocabulary."""
    minimum_count: Count = 2
    """Minimum number of occurrences in training of a character, of a word, and of a merged pair."""
    extra_symbols: Natural = 0
    """Number of extra symbols at the end of the vocabulary, such as the sentinels of span corruption."""
    bpe_dropout: Rate = 0.0
    """Probability of dropping each BPE merge in training, drawn in each epoch."""

    def __post_init__(self):
        super().__post_init__()
        if not self.lengths or self.lengths[0] < 2 or any(a >= b for a, b in itertools.pairwise(self.lengths)):
            raise ValueError(f"data.lengths must increase and be at least 2, got {self.lengths}")
        self.only_if(self.subwords == "bpe", "data.subwords bpe", "bpe_dropout")

    @property
    def max_length(self) -> int:
        return self.lengths[-1]

    def trained_processor(self, pairs: Sequence[SentencePair]) -> TranslationProcessor:
        """Subwords trained on sentences. Raises: DataError when the vocabulary size is too small."""
        sources, targets = [pair.source for pair in pairs], [str(pair.reference) for pair in pairs]
        texts = [[*sources, *targets]] if self.shared_vocabulary else [sources, targets]
        subwords = [trained_subwords(self, one, self.extra_symbols) for one in texts]
        return TranslationProcessor(subwords[0], subwords[-1])

    def buckets(self, lengths: Sequence[int], longest: int, processor: TranslationProcessor) -> Buckets[Ids]:
        """The batches of pairs.

        Args:
          lengths: of training pairs, for which few lengths are chosen.
          longest: maximum length of a pair of any epoch and split.
          processor: the tokenizers.
        """
        lengths = up_to(longest, self.lengths, lengths, few=self.few_lengths)
        return pair_buckets(lengths, start=processor.target.start)

    def file_split(
        self, pairs: Sequence[SentencePair], source: SourceRows, processor: TranslationProcessor, file: str
    ) -> Split[SentencePair]:
        """One pass over the pairs of a file; see `pairs_split`."""
        ids = [encoded(pair, processor) for pair in pairs]
        lengths = [min(longer_side(pair), self.max_length) for pair in ids]
        buckets, size = self.buckets(lengths, max(lengths), processor), rows_of(self.evaluation_batch_tokens)
        return pairs_split(pairs, ids, buckets, size, file=file, source=source)

    def check_dropout(self, processor: TranslationProcessor) -> None:
        """Raises DataError for BPE dropout with subwords of another kind."""
        for subwords in (processor.source, processor.target):
            if self.bpe_dropout and subwords.kind != "bpe":
                raise DataError(f"data.bpe_dropout needs subwords of kind bpe; set it to 0 for {subwords.kind}")

    def corpus(
        self,
        seed: int,
        processor: TranslationProcessor,
        train: Sequence[SentencePair],
        held: Mapping[str, tuple[Sequence[SentencePair], str]],
        *,
        saved: bool,
        file: str,
        about: str = "",
    ) -> Corpus:
        """The corpus of a run. Training pairs that are longer than the batches are removed, and counted.

        Args:
          seed: decides the order of training, and BPE dropout.
          processor: the tokenizers.
          train: the training pairs.
          held: the pairs of each split that can be scored, and the name of their file; "" = no file.
          saved: whether the processor was made earlier, not for these pairs.
          file: of the training pairs, for messages; "" = no file.
          about: the start of the description.

        Raises: DataError for BPE dropout with subwords of another kind; or when all training pairs are too long.
        """
        self.check_dropout(processor)
        plain = [encoded(pair, processor) for pair in train]
        fits = [longer_side(pair) <= self.max_length for pair in plain]
        kept, ids = [*itertools.compress(train, fits)], [*itertools.compress(plain, fits)]
        if not ids:
            which = f"all pairs of {file}" if file else "all pairs"
            raise DataError(f"{which} have more than {self.max_length} tokens; raise data.lengths")
        description = f"{about}{len(ids):,} pairs for training"
        if len(ids) < len(train):
            long = train[fits.index(False)]
            where = f"in line {long.line:,} of {file}" if file else f"is {long.source!r}"
            removed = f"{len(train) - len(ids):,} of more than {self.max_length} tokens removed"
            description += f" ({removed}, the first {where})"
        description += "".join(f", {len(pairs):,} for {name}" for name, (pairs, _) in held.items())

        held_ids = {name: [encoded(pair, processor) for pair in pairs] for name, (pairs, _) in held.items()}
        longest = max(longer_side(pair) for of in (ids, *held_ids.values()) for pair in of)
        epoch = None
        if self.bpe_dropout:
            epoch = keeps_last(self._dropped_out(kept, ids, processor, seed, longest))  # the first is read here, too
        first = ids if epoch is None else epoch(0)
        buckets = self.buckets(list(map(longer_side, first)), longest, processor)
        size, evaluation_size = rows_of(self.batch_tokens, self.batch_size), rows_of(self.evaluation_batch_tokens)
        if epoch is None:
            batches = buckets.epochs_of_same(ids, size, seed=seed)
        else:
            batches = buckets.epochs(epoch, size, seed=seed)
        sources = {name: [(pair.source,) for pair in pairs] for name, (pairs, _) in held.items()}
        repeated = repeated_notes("sources", [(pair.source,) for pair in kept], sources)
        texts = [[(pair.source, pair.reference) for pair in of] for of in (train, *(of for of, _ in held.values()))]
        return Corpus(
            train=batches,
            splits={
                name: pairs_split(pairs, held_ids[name], buckets, evaluation_size, file=of)
                for name, (pairs, of) in held.items()
            },
            processor=processor,
            description=(
                f"{description}; {vocabulary_note(processor, first, saved=saved)}; "
                f"{padding_share(first, buckets, size):.0%} of the positions in training batches are padding"
                + "".join(f"\n{note}" for note in repeated)
            ),
            fingerprint=fingerprint(json.dumps([processor.to_json(), texts])),
            of_each_shape=buckets.of_each_length(size, ids if epoch is None else None),
        )

    def _dropped_out(
        self,
        pairs: Sequence[SentencePair],
        plain: Sequence[Ids],
        processor: TranslationProcessor,
        seed: int,
        longest: int,
    ) -> Callable[[int], Sequence[Ids]]:
        """From the index of an epoch to the ids of pairs with BPE dropout, or without it if no batch fits them.

        Args:
          pairs: the pairs.
          plain: their ids without dropout.
          processor: the tokenizers.
          seed: of the dropout.
          longest: maximum length of a pair of any split without dropout.
        """
        dropped = dropped_out(pairs, processor, self.bpe_dropout)
        room = fitting(min(longest, self.max_length), self.lengths)

        def epoch(index: int) -> Sequence[Ids]:
            drawn = dropped(np.random.default_rng((seed, index, 1)))
            return [one if longer_side(one) <= room else ids for one, ids in zip(drawn, plain, strict=True)]

        return epoch

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a file with one pair per line, a tab between source and reference, or with one source per line.

        Raises: FileNotFoundError, DataError: naming the file and the line.
        """
        return self.read_files((path,), processor)

    def read_files(self, paths: Sequence[Path], processor: Any) -> Split:
        """Reads a file as `read_file` does; or a file of sources and a file of references. A source without a reference
        is translated, but not scored. Raises: as `read_file`."""
        read = self.pairs_to_score(paths)
        split = functools.partial(
            self.file_split, processor=require_processor(processor, TranslationProcessor), file=paths[0].name
        )
        alone = split(read.alone, lines_of(read.alone, len(read.source.names))) if read.alone else None
        return dataclasses.replace(split(read.pairs, read.source), unlabelled=alone)

    def pairs_to_score(self, paths: Sequence[Path]) -> ReadPairs:
        """The pairs of files, see `read_pairs_or_sources`."""
        return read_pairs_or_sources(paths)


@dataclasses.dataclass(frozen=True)
class ParallelText(SentencePairs, TextFiles):
    """Sentences and their translations in files.

    A split has two files, of sources and of targets, with one sentence per line; or one file whose lines have a source,
    a tab and a target. Files that end in .gz are decompressed. Pairs with a blank sentence are skipped.
    """

    data_set: str | None = None
    """Folder in $JAXNLP_DATA of the public data set with the files; None = your own files."""
    path: UserPath | None = None
    """Your copy of the public data set's folder; None = in $JAXNLP_DATA."""
    train: tuple[UserPath, ...] = ()
    """Training files, one or two; required."""
    validation: tuple[UserPath, ...] = ()
    """Validation files, one or two; empty = a share of the training pairs is held out."""
    test: tuple[UserPath, ...] = ()
    """Test files, one or two; empty = no test split."""
    validation_fraction: ProperFraction = 0.05
    """Share of the distinct training sources to hold out without a validation file; it does not depend on the seed."""
    separate_targets: bool = False
    """Whether held-out pairs share no target with training pairs; they never share a source."""
    reverse: bool = False
    """Whether the file, or the column, of targets comes first."""
    sentencepiece: tuple[UserPath, ...] = ()
    """One SentencePiece model for both languages, or one for the source and one for the target; empty = train a
    vocabulary."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("train", "validation", "test", "sentencepiece"):
            if len(getattr(self, name)) > 2:
                raise ValueError(f"data.{name} must be one or two files, got {', '.join(getattr(self, name))}")
        if self.data_set is None and self.path is not None:
            raise ValueError(
                f"data.path is the folder of a public data set, got {self.path}; give your own files with --data.train"
            )
        self.format_only_if(self.data_set is None, "your own files, without data.data_set")
        self.only_if(not self.validation, "data without a validation file", "validation_fraction", "separate_targets")
        trained = ("subwords", "vocabulary_size", "shared_vocabulary", "minimum_count")
        self.only_if(not self.sentencepiece, "trained vocabularies", *trained)

    @property
    def usual(self) -> tuple[str, ...]:
        return ("train", "validation", "batch_size") if self.data_set is None else ("path", "batch_size")

    @property
    def needs(self) -> str:
        return self.data_set or "your sentences"

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the files; the splits are `validation` and, if there is a test file, `test`.

        Args:
          seed: decides the order of training, and BPE dropout.
          processor: the processor of an earlier run; None = the vocabulary is read or trained.

        Raises:
          FileNotFoundError: when a file does not exist.
          DataError: naming an unreadable line; when all training pairs are too long; or when `sentencepiece` is not the
            processor's vocabulary.
        """
        if not self.train:
            raise DataError("data.train is required: give one or two files with --data.train SOURCES TARGETS")
        files = self._files(self.train)
        pairs = self._read(files)
        train = list(range(len(pairs)))
        held: dict[str, tuple[Sequence[SentencePair], str]] = {}
        if not self.validation:
            try:
                train, others = held_out(pairs, self.validation_fraction, separate_targets=self.separate_targets)
            except DataError as error:
                raise DataError(f"{', '.join(map(str, files))}: {error}; add pairs, or set data.validation") from error
            held["validation"] = [pairs[index] for index in others], files[0].name
        for name, names in (("validation", self.validation), ("test", self.test)):
            if names:
                paths = self._files(names)
                held[name] = self._read(paths), paths[0].name
        saved = processor is not None
        if not saved:
            processor = self._own_processor([pairs[index] for index in train])
        elif self.sentencepiece and self._own_processor([]) != processor:
            given = ", ".join(self.sentencepiece)
            raise DataError(f"the vocabulary in {given} differs from the model's; remove --data.sentencepiece")
        processor = require_processor(processor, TranslationProcessor)
        kept = [pairs[index] for index in train]
        return self.corpus(seed, processor, kept, held, saved=saved, file=files[0].name)

    def pairs_to_score(self, paths: Sequence[Path]) -> ReadPairs:
        """The pairs of files, see `read_pairs_or_sources`; with `reverse`, references come first."""
        return read_pairs_or_sources(paths, reverse=self.reverse, encoding=self.encoding)

    def _read(self, paths: Sequence[Path]) -> tuple[SentencePair, ...]:
        known = self.data_set is not None
        return read_pairs(paths, reverse=self.reverse, encoding=self.encoding, known=known)[0]

    def check_after(self, earlier: DataConfig) -> None:
        """Raises DataError when validation or test files were training files of an earlier run."""
        if isinstance(earlier, CorruptedText):
            learned = _identities(earlier.data_set, earlier.files)
        elif isinstance(earlier, ParallelText):
            learned = _identities(earlier.data_set, earlier.train)
        else:
            return
        scored = {"validation": self.validation, "test": self.test}
        if not self.validation and not self._were_held_out(earlier):
            scored["validation"] = self.train
        for name, files in scored.items():
            for file, identity in zip(files, _identities(self.data_set, files), strict=True):
                if identity in learned:
                    raise DataError(
                        f"the earlier run was trained on {file}, which has sentences of the {name} split; give other "
                        f"files with --data.{name}"
                    )

    def _were_held_out(self, earlier: DataConfig) -> bool:
        """Whether an earlier run held out all training sources that this data set holds out."""
        if not isinstance(earlier, ParallelText) or any(
            getattr(earlier, name) != getattr(self, name) for name in ("reverse", "separate_targets")
        ):
            return False
        for files in ("train", "validation"):
            first, second = (_identities(one.data_set, getattr(one, files)) for one in (earlier, self))
            if first != second:
                return False
        theirs, ours = earlier.validation_fraction, self.validation_fraction
        # Of groups of several sources, a larger share may leave out some that a smaller one has.
        return theirs == ours if self.separate_targets else theirs >= ours

    def _own_processor(self, train: Sequence[SentencePair]) -> TranslationProcessor:
        if not self.sentencepiece:
            return self.trained_processor(train)
        models = [read_sentencepiece(path, extra=self.extra_symbols) for path in self._files(self.sentencepiece)]
        return TranslationProcessor(models[0], models[-1])

    def _files(self, names: Sequence[str]) -> list[Path]:
        if self.data_set is None:
            return [Path(name) for name in names]
        holds = ", ".join((*self.train, *self.validation, *self.test, *self.sentencepiece))
        folder = locate_folder(self.data_set, self.path, holds=holds, otherwise=OWN_FILES)
        for name in names:
            if not (folder / name).is_file():
                raise DataError(f"{folder}, the folder of the data set {self.data_set}, has no {name}; {OWN_FILES}")
        return [folder / name for name in names]


def _identities(data_set: str | None, names: Sequence[str]) -> list[tuple[str, str]]:
    """Identities of files: data set and name, or the absolute path of a user's file."""
    if data_set is not None:
        return [(data_set, name) for name in names]
    return [("", str(Path(name).resolve())) for name in names]
