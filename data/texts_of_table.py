"""Language modelling on the texts of a labelled table, and on further texts without labels."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data import Corpus, DataError, NumpyBatch, Split, errors_as, require_processor
from data.pipelines.buckets import array_buckets
from data.pipelines.endless import iterable, shuffled
from data.pipelines.fingerprints import fingerprint, vocabulary_text
from data.pipelines.lengths import multiples
from data.text_table import TextTable
from jaxnlp.config import UserPath
from jaxnlp.input_files.rows import TextColumns, rows_of
from jaxnlp.input_files.text_files import is_blank, warn_of_skipped
from jaxnlp.text.encoder_texts import EncoderTexts


@dataclasses.dataclass(frozen=True)
class TextsOfTable(TextTable):
    """A classifier's training texts, without their labels: [CLS] text [SEP], a text a row.

    With the options of the classifier's `TextTable` the held-out rows are the same. The texts of a pair are separate
    rows. A text of more than `max_length` tokens is several rows. Batches have `tokens`, `targets` [B, T] int32 (the
    next tokens) and `loss_mask` [B, T] bool.
    """

    unlabelled: UserPath | None = None
    """Your texts without labels, to add to the training texts: a file with one text a line, or a table with the column
    of the texts."""

    def __post_init__(self):
        super().__post_init__()
        self.only_if(False, "classifiers", "parts", "oversample", "undersample", "swap_pairs", "pairs")

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the texts; the splits are those of `TextTable.load`.

        Args:
          seed: decides the order of training.
          processor: of an earlier run or a pretrained model; None = the vocabulary is trained on the training texts,
            `unlabelled` included.

        Raises: FileNotFoundError, DataError: when a file is not found or malformed.
        """
        read = self._read(self._source)
        texts = {name: [text for row in rows for text in row.texts] for name, rows in read.splits.items()}
        labelled = [text for row in read.train for text in row.texts]
        further = [] if self.unlabelled is None else self._texts_of(Path(self.unlabelled))
        vocabulary = EncoderTexts(self._vocabulary(labelled + further, processor))
        train = self._rows([*labelled, *further], vocabulary)
        held_out = {name: self._rows(split, vocabulary) for name, split in texts.items()}
        lengths = [len(row["tokens"]) for rows in (train, *held_out.values()) for row in rows]
        buckets = array_buckets(multiples(lengths, self.max_length, self.length_multiple, few=self.few_lengths))
        counts = np.bincount(np.concatenate([row["targets"] for row in train]), minlength=vocabulary.size)
        numbers = ", ".join(f"{len(split):,} for {name}" for name, split in texts.items())
        return Corpus(
            train=iterable(buckets.endless(shuffled(train, seed), self.batch_size, seed=seed)),
            splits={
                name: Split(buckets.one_pass(rows, self.evaluation_batch_size)[0]) for name, rows in held_out.items()
            },
            processor=vocabulary,
            description=(
                f"texts: {len(labelled):,} of the table and {len(further):,} others for training, {numbers}; "
                f"{counts.sum():,} tokens for training; {vocabulary.size:,} tokens in the vocabulary{read.note}"
            ),
            fingerprint=fingerprint(vocabulary_text(vocabulary), repr((labelled, further, texts))),
            token_counts=counts,
            of_each_shape=buckets.of_each_shape(train, self.batch_size),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads the texts of a file for scoring, see `unlabelled`. Raises: FileNotFoundError, DataError."""
        rows = self._rows(self._texts_of(path), require_processor(processor, EncoderTexts))
        lengths = [len(row["tokens"]) for row in rows]
        buckets = array_buckets(multiples(lengths, self.max_length, self.length_multiple, few=self.few_lengths))
        return Split(buckets.one_pass(rows, self.evaluation_batch_size)[0])

    def _texts_of(self, path: Path) -> list[str]:
        """The texts of a file; a warning counts blank ones."""
        with errors_as(DataError):
            texts = [
                text for (text,) in rows_of((), (), path, count=1, columns=TextColumns((self.text,), self.dialect))
            ]
        blank = [number for number, text in enumerate(texts, 1) if is_blank(text)]
        warn_of_skipped(path, blank, len(texts), "texts", "that are blank")
        return [text for text in texts if not is_blank(text)]

    def _rows(self, texts: Sequence[str], vocabulary: EncoderTexts) -> list[NumpyBatch]:
        """The rows of texts, as arrays [N]; N is at most `max_length`."""
        rows = []
        for ids in vocabulary.encode_all(texts):
            for start in range(0, len(ids) - 1, self.max_length):
                targets = ids[start + 1 : start + 1 + self.max_length]
                tokens = ids[start : start + len(targets)]
                rows.append({"tokens": tokens, "targets": targets, "loss_mask": np.ones(len(targets), bool)})
        return rows
