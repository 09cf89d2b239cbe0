"""CS224N's default project: sentiment, paraphrase and semantic textual similarity, one of them or several.

Source: CS224N, default final project (minBERT): the Stanford Sentiment Treebank, counterfactual IMDb reviews, Quora's
question pairs, and SemEval's semantic textual similarity.
"""

import collections
import dataclasses
import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import grain

from data import Corpus, DataConfig, DataError, NumpyBatch, Split, require_processor
from data.download import locate_folder
from data.fingerprints import vocabulary_text
from data.schedules import Schedule, ScheduleName
from data.sentence_classes import FILES, read_data_set
from data.table_rows import Columns
from data.text_batches import ENDLESS, labelled_split, split_of_parts, tokenized, training_batches
from data.text_tables import read_header, read_table, text_examples
from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.text.labels import Labels, TextExample
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.text.wordpiece import WordPieceVocabulary

_logger = logging.getLogger(__name__)

PartName = Literal["sst", "cfimdb", "quora", "sts"]
LABELS: dict[str, Labels] = {
    "sst": Labels("classification", 1, ("0", "1", "2", "3", "4")),
    "cfimdb": Labels("classification", 1, ("0", "1")),
    "quora": Labels("paraphrase", 2, ("0", "1")),
    "sts": Labels("similarity", 2, highest=5.0),
}
"""Sentiment in five classes and in two, duplicate questions, and similarity from 0 to 5."""
SOURCES = {name: f"cs224n_{name}" for name in LABELS}
"""The parts' names in the table of known data sets. Fields of their files are separated by tabs."""

Tables = tuple[tuple[TextExample, ...], tuple[TextExample, ...], tuple[TextExample, ...]]
"""For training, for dev, and for test, which may be empty."""


@dataclasses.dataclass(frozen=True)
class MinBertData(DataConfig):
    """Examples of one part or several, each batch of one part, of texts of similar length.

    With the schedule `together` a step takes a batch of each part, by the part's name.
    """

    parts: tuple[PartName, ...] = ("sst",)
    """Parts to train on: sst, cfimdb, quora, sts."""
    path: str | None = None
    """Folder of the project's files; None = cs224n_minbert in the folder that JAXNLP_DATA names."""
    max_length: int = 128
    """Maximum length in tokens; longer texts are truncated."""
    schedule: Literal[ScheduleName, "together"] = "round_robin"
    """Order of the parts' batches: round_robin, proportional, annealed, sequential or together."""
    schedule_steps: int = 1_000
    """Annealed: steps until size has little influence. Sequential: consecutive steps of each part."""
    length_multiple: int = 16
    """Batches have the length of their longest text, rounded up to a multiple: each length is a program to compile, and
    with the schedule together each combination of the parts' lengths."""
    evaluation_batch_size: int = 64
    """Rows in an evaluation step."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "schedule_steps", "length_multiple", "evaluation_batch_size")
        self.require_at_least(3, "max_length")
        if not self.parts or len(set(self.parts)) != len(self.parts):
            names = ", ".join(get_args(PartName))
            raise ValueError(f"data.parts must be some of {names}, each once, got {', '.join(self.parts) or 'none'}")
        stretched = len(self.parts) > 1 and self.schedule in ("annealed", "sequential")
        refuse_unread(
            self,
            [
                ReadWhen("schedule", "round_robin", len(self.parts) > 1, "several data.parts"),
                ReadWhen("schedule_steps", 1_000, stretched, "data.schedule annealed and sequential of several parts"),
            ],
        )

    def check_steps(self, total_steps: int) -> None:
        needed = self.schedule_steps * len(self.parts)
        if self.schedule == "sequential" and len(self.parts) > 1 and needed > total_steps:
            raise ValueError(
                f"data.schedule sequential with data.schedule_steps {self.schedule_steps} never reaches all of "
                f"{', '.join(self.parts)} within total_steps {total_steps}; lower data.schedule_steps"
            )

    @property
    def together(self) -> bool:
        """With the schedule together."""
        return self.schedule == "together"

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the tables of all parts.

        The split `validation`, also called `dev`, has labels; `test` has none where the project does not publish them.

        Args:
          seed: decides the order of training.
          processor: the vocabulary of a pretrained model, or the processor of an earlier run, whose vocabulary is used.

        Raises:
          FileNotFoundError, DataError: when a file is not found or contains something else; when there are too few
            examples; when there is no vocabulary.
        """
        vocabulary = vocabulary_of(processor)
        holds = "the project's files, such as ids-sst-train.csv"
        place = FILES[SOURCES[self.parts[0]]].folder
        folder = locate_folder(place, self.path, holds=holds, otherwise="choose another recipe")
        tables = {name: _read(folder, name) for name in self.parts}
        dev, test = (
            split_of_parts(
                {name: self._split(name, table[place], vocabulary) for name, table in tables.items() if table[place]}
            )
            for place in (1, 2)
        )
        digest = hashlib.sha256(vocabulary_text(vocabulary).encode())
        sources, notes = [], []
        for number, (name, table) in enumerate(tables.items()):
            digest.update(table_text(table).encode("utf-8", errors="surrogatepass"))
            examples, truncated = tokenized(table[0], name, vocabulary, self.max_length)
            notes.append(
                f"{name} {len(table[0]):,} / {len(table[1]):,}"
                + (f" ({truncated:,} training texts truncated)" if truncated else "")
            )
            if len(examples) < self.batch_size:
                raise DataError(
                    f"{name} has {len(examples)} training examples, fewer than a batch; set --data.batch-size to "
                    f"{len(examples)} or less"
                )
            sources.append(
                training_batches(
                    examples,
                    self.batch_size,
                    order_seed=seed + number,
                    # The same for all parts: their short batches then meet in a step, and combinations are few.
                    pool_seed=seed,
                    multiple=self.length_multiple,
                    max_length=self.max_length,
                )
            )
        return Corpus(
            # No threads that read ahead: see data.character_text.
            train=grain.MapDataset.range(ENDLESS)
            .map(self._steps(sources, [len(table[0]) for table in tables.values()], seed))
            .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
            splits={"validation": dev, "dev": dev, "test": test},
            processor=TextProcessor(vocabulary, self.max_length, tuple((name, LABELS[name]) for name in self.parts)),
            description=f"texts for training / dev: {', '.join(notes)}; {vocabulary.size:,} tokens in the vocabulary",
            fingerprint=digest.hexdigest(),
        )

    def _steps(self, sources: Sequence[grain.MapDataset], sizes: Sequence[int], seed: int) -> Callable[[int], Any]:
        """The batch of a training step, by its number, from each part's batches and number of examples."""
        if self.schedule == "together":
            return lambda step: {name: batches[step] for name, batches in zip(self.parts, sources, strict=True)}
        schedule = Schedule(self.schedule, sizes, length=self.schedule_steps, seed=seed)

        def batch_of(step: int) -> NumpyBatch:
            part, turn = schedule.turn(step)
            return sources[part][turn]

        return batch_of

    def read_file(self, path: Path, processor: Any) -> Split:
        """A file with the labels of one part; or without labels, of all parts that have such texts.

        Raises: DataError when it has labels that several parts have, or is not such a file.
        """
        processor = require_processor(processor, TextProcessor)
        header, labels = read_header(path, format="tsv"), dict(processor.parts)
        columns = {name: columns_of(name) for name in labels}
        fitting = [name for name in labels if columns[name].label in header]
        if len(fitting) > 1:
            raise DataError(
                f"{path} has the column {columns[fitting[0]].label}, which {' and '.join(fitting)} have; score it with "
                "a run of one of them"
            )
        if not fitting:
            fitting = [name for name in labels if set(columns[name].texts) <= set(header)]
            _logger.warning(
                "%s has no labels: there is no column %s among %s",
                path,
                " or ".join(sorted({found.label for found in columns.values()})),
                ", ".join(filter(None, header)),
            )
        # Where nothing fits, the error of the first part says what is missing.
        names = fitting or list(labels)[:1]
        rows = {name: read_table(path, columns[name], labels[name], format="tsv") for name in names}
        return split_of_parts({name: self._split(name, rows[name], processor.vocabulary) for name in names})

    def _split(self, name: str, rows: Sequence[TextExample], vocabulary: WordPieceVocabulary) -> Split[TextExample]:
        return labelled_split(
            rows,
            name,
            vocabulary,
            batch_size=self.evaluation_batch_size,
            multiple=self.length_multiple,
            max_length=self.max_length,
        )


def vocabulary_of(processor: Any) -> WordPieceVocabulary:
    """The vocabulary of a pretrained model or of an earlier run. Raises: DataError when there is none."""
    if processor is None:
        raise DataError("text tasks need a pretrained tokenizer; give a pretrained model or a run with --init-from")
    if isinstance(processor, TextProcessor):
        return processor.vocabulary
    return require_processor(processor, WordPieceVocabulary)


LabelledText = collections.namedtuple("LabelledText", ["id", "text", "pair", "label"])


def table_text(table: Sequence[Sequence[TextExample]]) -> str:
    """Tables as text, for fingerprints: they must not change with the names of classes here."""
    return repr(tuple(tuple(LabelledText(row.id, row.text, row.pair, row.label) for row in rows) for rows in table))


def columns_of(part: str) -> Columns:
    """The columns of a part's files."""
    columns = FILES[SOURCES[part]].columns
    assert columns is not None
    return columns


def _read(folder: Path, part: str) -> Tables:
    found, column = read_data_set(SOURCES[part], folder), columns_of(part).label
    train, dev, test = (
        text_examples(*found[split], column, LABELS[part]) if split in found else ()
        for split in ("train", "validation", "test")
    )
    return train, dev, test
