"""Sentences and their translations: what all such data sets share, and pairs from files."""

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data import Corpus, DataConfig, DataError, Split, require_processor
from data.download import locate_folder
from data.pair_batches import Ids, Shapes, encoded, endless_batches, longer_side, pairs_split
from data.sentence_pairs import held_out, read_pairs, read_pairs_or_sources
from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.text.sentencepiece import read_sentencepiece
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import SubwordKind, Subwords
from jaxnlp.text.translation import SentencePair, TranslationProcessor


@dataclasses.dataclass(frozen=True)
class SentencePairs(DataConfig):
    """The base of data sets of sentences and their translations: batches by number of tokens, and subwords.

    The subwords are those of a given processor, or are trained on the training sentences.
    """

    batch_size: int = 256
    """Maximum number of pairs in a training step, over all devices."""
    batch_tokens: int = 2_048
    """Maximum number of tokens in each side of a training step, padding included."""
    evaluation_batch_tokens: int = 4_096
    """The same in an evaluation step."""
    lengths: tuple[int, ...] = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128)
    """Lengths of batches in tokens, the end symbol included; each is a program to compile. Pairs longer than the last
    are left out of training, and truncated elsewhere."""
    subwords: SubwordKind = "bpe"
    """How texts are cut into tokens."""
    vocabulary_size: int = 8_000
    """Maximum number of tokens in a vocabulary; BPE and unigram have 260 symbols and bytes among them."""
    shared_vocabulary: bool = True
    """Whether source and target have one vocabulary."""
    minimum_count: int = 2
    """Minimum number of occurrences in training: of a character, of a word, and of neighbours to be merged."""
    extra_symbols: int = 0
    """Extra symbols at the end of the vocabulary, such as the sentinels of span corruption."""
    bpe_dropout: float = 0.0
    """Probability with which each merge of BPE is left out in training, drawn again in each epoch."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "batch_tokens", "evaluation_batch_tokens", "vocabulary_size", "minimum_count")
        self.require_at_least(0, "extra_symbols")
        if not self.lengths or self.lengths[0] < 2 or any(a >= b for a, b in itertools.pairwise(self.lengths)):
            raise ValueError(f"data.lengths must increase and be at least 2, got {self.lengths}")
        if not 0.0 <= self.bpe_dropout < 1.0:
            raise ValueError(f"data.bpe_dropout must lie in [0, 1), got {self.bpe_dropout}")
        refuse_unread(self, [ReadWhen("bpe_dropout", 0.0, self.subwords == "bpe", "subwords bpe")])

    @property
    def max_length(self) -> int:
        """The last of the lengths."""
        return self.lengths[-1]

    @property
    def shapes(self) -> Shapes:
        """Of training batches."""
        return Shapes(self.lengths, self.batch_tokens, self.batch_size)

    def trained_processor(self, pairs: Sequence[SentencePair]) -> TranslationProcessor:
        """Subwords of training sentences. Raises: DataError when the vocabulary size is too small."""
        sources, targets = [pair.source for pair in pairs], [str(pair.reference) for pair in pairs]
        if self.shared_vocabulary:
            both = self._trained([*sources, *targets])
            return TranslationProcessor(both, both)
        return TranslationProcessor(self._trained(sources), self._trained(targets))

    def split(self, pairs: Sequence[SentencePair], processor: TranslationProcessor) -> Split[SentencePair]:
        """One pass over pairs, in evaluation batches."""
        return pairs_split(pairs, processor, Shapes(self.lengths, self.evaluation_batch_tokens))

    def training_ids(
        self, pairs: Sequence[SentencePair], processor: TranslationProcessor, *, seed: int, epoch: int
    ) -> list[Ids]:
        """Pairs as ids, with the BPE dropout of an epoch; one that dropout makes too long is encoded without it."""
        if not self.bpe_dropout:
            return [encoded(pair, processor) for pair in pairs]
        seeds = np.random.default_rng((seed, epoch, 1)).integers(2**62, size=len(pairs)).tolist()
        found = [
            encoded(pair, processor, dropout=self.bpe_dropout, seed=own) for pair, own in zip(pairs, seeds, strict=True)
        ]
        return [
            ids if longer_side(ids) <= self.max_length else encoded(pair, processor)
            for ids, pair in zip(found, pairs, strict=True)
        ]

    def corpus(
        self,
        seed: int,
        processor: TranslationProcessor,
        epoch: Callable[[int], Sequence[Ids]],
        splits: Mapping[str, Sequence[SentencePair]],
        *,
        description: str,
        content: str,
    ) -> Corpus:
        """A data set.

        Args:
          seed: decides the order of training.
          processor: the tokenizers.
          epoch: the training pairs of an epoch, by its number from 0: a pure function.
          splits: what can be scored, by name.
          description: of the pairs; what the batches and the vocabulary are like is added.
          content: of the training pairs, for the fingerprint.

        Raises:
          DataError: for BPE dropout with subwords of another kind.
        """
        for subwords in (processor.source, processor.target):
            if self.bpe_dropout and subwords.kind != "bpe":
                raise DataError(f"data.bpe_dropout needs subwords of kind bpe; set it to 0 for {subwords.kind}")
        epoch = functools.lru_cache(maxsize=1)(epoch)  # the first one is read here and in training
        padding = self.shapes.padding(epoch(0))
        sizes = f"{processor.source.size:,}"
        if not processor.shared:
            sizes += f" and {processor.target.size:,}"
        held = [[(pair.source, pair.reference) for pair in pairs] for pairs in splits.values()]
        digest = hashlib.sha256(json.dumps([processor.to_json(), held, content]).encode())
        return Corpus(
            train=endless_batches(epoch, self.shapes, seed=seed),
            splits={name: self.split(pairs, processor) for name, pairs in splits.items()},
            processor=processor,
            description=(
                f"{description}; {sizes} tokens in the vocabular{'y' if processor.shared else 'ies'}; "
                f"{padding:.0%} of the training batches is padding"
            ),
            fingerprint=digest.hexdigest(),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """A file of sources, a tab and references, or of sources alone, a pair a line.

        Raises: FileNotFoundError, DataError: naming the file and the line.
        """
        return self.split(read_pairs_or_sources(path), require_processor(processor, TranslationProcessor))

    def _trained(self, texts: Sequence[str]) -> Subwords:
        try:
            return train_subwords(
                texts,
                self.subwords,
                self.vocabulary_size,
                minimum_count=self.minimum_count,
                extra=self.extra_symbols,
            )
        except ValueError as error:
            raise DataError(f"data.vocabulary_size {self.vocabulary_size}: {error}") from error


@dataclasses.dataclass(frozen=True)
class ParallelText(SentencePairs):
    """Sentences and their translations in files: two files whose lines belong together, or one with tabs.

    A split has two files, of sources and of targets, or one whose lines have a source, a tab and a target; names that
    end in .gz are compressed.
    """

    data_set: str | None = None
    """Folder of a public data set in JAXNLP_DATA, which has the files; None = the files are your own."""
    path: str | None = None
    """Your copy of that folder; None = the one in JAXNLP_DATA."""
    train: tuple[str, ...] = ()
    """Training file, or files; required."""
    validation: tuple[str, ...] = ()
    """Validation file, or files; () = a share of the training pairs is held out."""
    test: tuple[str, ...] = ()
    """Test file, or files; () = no test split."""
    validation_fraction: float = 0.05
    """Share of the distinct training sources that is held out where there is no validation file; it does not depend on
    the seed."""
    reverse: bool = False
    """Whether the files of targets, or their column, come first."""
    sentencepiece: tuple[str, ...] = ()
    """SentencePiece model of both languages, or those of source and target; () = the vocabulary is trained."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("train", "validation", "test", "sentencepiece"):
            if len(getattr(self, name)) > 2:
                raise ValueError(f"data.{name} must be one file or two, got {', '.join(getattr(self, name))}")
        if not 0.0 < self.validation_fraction < 1.0:
            raise ValueError(f"data.validation_fraction must lie in (0, 1), got {self.validation_fraction}")
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        trained = ("vocabulary_size", "shared_vocabulary", "minimum_count")
        refuse_unread(
            self,
            [
                ReadWhen("validation_fraction", 0.05, not self.validation, "data without a validation file"),
                ReadWhen("path", None, self.data_set is not None, "a public data set; set data_set"),
                *(
                    ReadWhen(name, defaults[name], not self.sentencepiece, "vocabularies that are trained")
                    for name in trained
                ),
            ],
        )

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the files; the splits are `validation` and, where there is a file, `test`.

        Training pairs that are longer than the batches are left out; the description says how many.

        Args:
          seed: decides the order of training, and BPE dropout.
          processor: that of an earlier run; None = the vocabulary is read or trained.

        Raises:
          FileNotFoundError, DataError: when a file is not found or is something else; says which line.
        """
        if not self.train:
            raise DataError("data.train is required: give one file or two with --data.train SOURCES TARGETS")
        files = self._files(self.train)
        pairs = read_pairs(files, reverse=self.reverse)
        train, others = list(range(len(pairs))), list[int]()
        if self.validation:
            validation = read_pairs(self._files(self.validation), reverse=self.reverse)
        else:
            train, others = held_out(pairs, self.validation_fraction)
            validation = tuple(pairs[number] for number in others)
        splits = {"validation": validation}
        if self.test:
            splits["test"] = read_pairs(self._files(self.test), reverse=self.reverse)
        if processor is None:
            processor = self._own_processor([pairs[number] for number in train])
        processor = require_processor(processor, TranslationProcessor)
        plain = [encoded(pairs[number], processor) for number in train]
        fits = [longer_side(ids) <= self.max_length for ids in plain]
        kept = [pairs[number] for number, fit in zip(train, fits, strict=True) if fit]
        if not kept:
            raise DataError(f"all pairs of {files[0]} have more than {self.max_length} tokens; raise data.lengths")
        description = f"{len(kept):,} pairs for training"
        if len(kept) < len(train):
            first = train[fits.index(False)] + 1
            description += (
                f" ({len(train) - len(kept):,} of more than {self.max_length} tokens left out, the first in line "
                f"{first:,} of {files[0].name})"
            )
        description += "".join(f", {len(split):,} for {name}" for name, split in splits.items())
        ids = [one for one, fit in zip(plain, fits, strict=True) if fit]

        def epoch(number: int) -> Sequence[Ids]:
            return self.training_ids(kept, processor, seed=seed, epoch=number) if self.bpe_dropout else ids

        content = json.dumps([(pairs[number].source, pairs[number].reference) for number in train])
        return self.corpus(seed, processor, epoch, splits, description=description, content=content)

    def _own_processor(self, train: Sequence[SentencePair]) -> TranslationProcessor:
        if not self.sentencepiece:
            return self.trained_processor(train)
        try:
            found = [read_sentencepiece(path, extra=self.extra_symbols) for path in self._files(self.sentencepiece)]
        except ValueError as error:
            raise DataError(str(error)) from error
        return TranslationProcessor(found[0], found[-1])

    def _files(self, names: Sequence[str]) -> list[Path]:
        if self.data_set is None:
            return [Path(name).expanduser() for name in names]
        holds = ", ".join((*self.train, *self.validation, *self.test, *self.sentencepiece))
        folder = locate_folder(
            self.data_set, self.path, holds=holds, otherwise="give files of your own with --data.train"
        )
        return [folder / name for name in names]
