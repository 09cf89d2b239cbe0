"""Word language modelling: each word of a text is predicted from the previous ones."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from data import Corpus, DataError, NumpyBatch, Split, require_processor
from data.next_word import fixture_splits, read_fixture
from data.pipelines.epochs import Epochs
from data.pipelines.word_batches import (
    concatenated,
    evaluation_streams,
    longest_stream_batch,
    random_lengths,
    stream_batches,
    window_batches,
)
from data.readers.articles import FOLDERS, WordSource, read_articles
from data.readers.file_options import TextFiles
from data.readers.text_sources import tokens_to_score
from jaxnlp.config import BatchSize, Count, Fraction, NonNegative, ProperFraction, UserPath
from jaxnlp.input_files.tables import warn_of_tables
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.text.words import WordVocabulary

_logger = logging.getLogger(__name__)

SHORTEST_STREAM = 1_000
"""Minimum words of a stream in evaluation, if the text has as many."""


@dataclasses.dataclass(frozen=True)
class WordText(TextFiles):
    """Articles of words, shuffled and concatenated in each epoch, in windows or in streams."""

    length_field: ClassVar[str] = "sequence_length"
    processor_fields = ("minimum_count",)

    source: WordSource = "wikitext2"
    """WikiText-2 as text, or as arrays of CMU 11-785 homework 4; Python's language reference; or your file."""
    path: UserPath | None = None
    """Folder of WikiText-2 or the homework (None = in $JAXNLP_DATA), or your file."""
    mode: Literal["windows", "streams"] = "streams"
    """Independent windows in random order, or contiguous streams, one a row, with carried state."""
    sequence_length: Count = 70
    """Number of words in a row, T; in training on streams, in most rows."""
    shuffle_articles: bool = True
    """Shuffle the articles in each epoch."""
    bptt_short_probability: Fraction = 0.05
    """For streams: probability of a batch of length about T / 2."""
    bptt_length_std: NonNegative = 5.0
    """For streams: standard deviation of a batch's length, in words."""
    length_multiple: int = 10
    """For streams: lengths are multiples of this, at most 1.25 T or the first multiple that is at least T; JAX compiles
    a program for each length. With few lengths they are multiples of T / 2."""
    minimum_count: Count = 2
    """For texts without a vocabulary (python_docs, text_file): rarer words in training are unknown."""
    validation_fraction: ProperFraction = 0.1
    """For texts without a validation part (python_docs, text_file): share at the end that is held out."""
    evaluation_batch_size: BatchSize = 10
    """Maximum number of streams in an evaluation step. Short texts have fewer, since the first words of a stream have
    little context: each has at least 1,000 words, and a text of fewer than 2,000 words is one stream."""

    def __post_init__(self):
        super().__post_init__()
        plain_text = self.source in ("python_docs", "text_file")
        streams = ("bptt_short_probability", "bptt_length_std", "length_multiple")
        self.only_if(self.stateful, "data.mode streams", *streams)
        self.format_only_if(self.source == "text_file", "data.source text_file")
        self.only_if(plain_text, "data.source python_docs and text_file", "minimum_count", "validation_fraction")
        if self.stateful and not 1 <= self.length_multiple <= self.sequence_length:
            raise ValueError(
                f"data.length_multiple must be in [1, {self.sequence_length}] (sequence_length), "
                f"got {self.length_multiple}"
            )

    @property
    def stateful(self) -> bool:
        return self.mode == "streams"

    @property
    def _multiple(self) -> int:
        """Lengths of batches are multiples of this: T / 2 and T if they are few."""
        return -(-self.sequence_length // 2) if self.few_lengths else self.length_multiple

    @property
    def max_length(self) -> int:
        if not self.stateful:
            return self.sequence_length
        longest = longest_stream_batch(self.sequence_length, length_std=self.bptt_length_std, multiple=self._multiple)
        return max(self.sequence_length, longest)

    @property
    def needs(self) -> str:
        return FOLDERS.get(self.source, "" if self.source == "python_docs" else "your text")

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the articles and makes their batches.

        The splits train and validation have the articles in order, with states carried throughout. The source cmu_hw4p1
        also has the splits prediction and generation of `data.next_word`, if its folder has the homework's fixtures.

        Raises: FileNotFoundError, DataError when the data is not found, is malformed, is too short for a batch, or does
          not fit the processor's vocabulary.
        """
        articles = read_articles(
            self.source,
            self.path,
            minimum_count=self.minimum_count,
            validation_fraction=self.validation_fraction,
            vocabulary=None if processor is None else require_processor(processor, WordVocabulary),
            encoding=self.encoding,
        )
        texts = {"train": np.concatenate(articles.train), "validation": np.concatenate(articles.validation)}
        shortest = self._multiple if self.stateful else self.sequence_length
        if len(texts["train"]) <= self.batch_size * shortest:
            raise DataError(
                f"the training text has {len(texts['train'])} words, but {self.batch_size} rows of {shortest} need "
                f"{self.batch_size * shortest + 1}; use a longer text or a smaller --data.batch-size"
            )
        if len(texts["validation"]) < 2:
            raise DataError("the validation text has one word, but needs at least two: the first is not scored")
        train, validation = map(len, texts.values())
        splits = {name: self._split(text) for name, text in texts.items()}
        if self.source == "cmu_hw4p1":
            splits |= fixture_splits(self.path, articles.vocabulary)
        return Corpus(
            train=Epochs(lambda epoch: self._training_batches(articles.train, np.random.default_rng((seed, epoch)))),
            splits=splits,
            processor=articles.vocabulary,
            description=(
                f"{self.source}: {train:,} words in {len(articles.train)} articles for training, {validation:,} in "
                f"{len(articles.validation)} for validation; {articles.vocabulary.size:,} distinct"
            ),
            fingerprint=articles.fingerprint,
            token_counts=np.bincount(texts["train"], minlength=articles.vocabulary.size),
            of_each_shape=self._of_each_shape(texts["train"]),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a file for scoring; its suffix decides its format.

        - `.npz`: windows and the next word of each, see `data.next_word`.
        - `.npy`: prompts to continue.
        - others: a text, each word except the first scored once; a warning counts unknown words.

        Raises: FileNotFoundError, DataError when it cannot be read, or each line has words outside a vocabulary without
          an unknown word; a warning counts other such lines, which are skipped.
        """
        vocabulary = require_processor(processor, WordVocabulary)
        if (fixture := read_fixture(path, vocabulary.size)) is not None:
            return fixture
        warn_of_tables([path])
        text = read_text_file(path, self.encoding)
        ids = tokens_to_score(path, text, vocabulary)
        if len(ids) < 2:
            raise DataError(f"{path} has {len(ids)} words, but needs at least two: the first is not scored")
        if unknown := vocabulary.count_unknown(text):
            _logger.warning(
                "%s: %s of %s words are not in the vocabulary and are scored as %s",
                *(path, f"{unknown:,}", f"{len(ids):,}", vocabulary.unknown),
            )
        return self._split(ids)

    def _split(self, text: np.ndarray) -> Split:
        streams = max(1, min(self.evaluation_batch_size, len(text) // SHORTEST_STREAM))
        batches = evaluation_streams(text, self.sequence_length, streams)
        return Split(batches, of_each_shape=[batches[0]])

    def _of_each_shape(self, text: np.ndarray) -> list[NumpyBatch] | None:
        """For streams, a batch of each length that `random_lengths` may draw."""
        if not self.stateful:
            return None
        longest = min(self.max_length, (len(text) - 1) // self.batch_size)
        lengths = range(self._multiple, longest + 1, self._multiple)
        return [stream_batches(text, np.array([length]), self.batch_size)[0] for length in lengths]

    def _training_batches(self, articles: Sequence[np.ndarray], rng: np.random.Generator) -> Sequence[NumpyBatch]:
        text = concatenated(articles, rng, shuffle=self.shuffle_articles)
        if not self.stateful:
            return window_batches(text, self.sequence_length, self.batch_size, rng)
        lengths = random_lengths(
            (len(text) - 1) // self.batch_size,
            self.sequence_length,
            rng,
            short_probability=self.bptt_short_probability,
            length_std=self.bptt_length_std,
            multiple=self._multiple,
        )
        return stream_batches(text, lengths, self.batch_size)
