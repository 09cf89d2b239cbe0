"""CS224N's default project: one or several of sentiment, paraphrase and semantic textual similarity.

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

from data import Corpus, DataError, NumpyBatch, Split, require_processor
from data.download import locate_folder
from data.pipelines.fingerprints import vocabulary_text
from data.pipelines.schedules import Schedule, ScheduleName
from data.pipelines.text_batches import ENDLESS, labelled_split, split_of_parts, tokenized, training_batches
from data.readers.file_options import TableFiles
from data.readers.part_tables import columns_for, part_files, read_part
from data.readers.sentence_classes import FILES, read_data_set
from data.readers.text_tables import read_table, text_examples
from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.input_files.tables import Columns, Writing, read_header
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
"""Labels of each part: sentiment in five and in two classes, duplicate questions, and similarity from 0 to 5."""
SOURCES = {name: f"cs224n_{name}" for name in LABELS}
"""Names of the parts in the table of known data sets. Tabs separate the fields of their files."""

Tables = tuple[tuple[TextExample, ...], tuple[TextExample, ...], tuple[TextExample, ...]]
"""Examples for training, dev and test. Those for test may be empty."""


@dataclasses.dataclass(frozen=True)
class MinBertData(TableFiles):
    """Examples of one or several parts. A batch has texts of one part, of similar length.

    A part is one of the project's, or your own table with any labels. With the schedule `together` a step takes a batch
    of each part.
    """

    usual = ("parts", "tables", "path", "batch_size")

    parts: tuple[str, ...] = ("sst",)
    """Parts to train on: sst, cfimdb, quora, sts, and the names of your own tables."""
    tables: tuple[str, ...] = ()
    """Your own tables: NAME=FILE,VALIDATION_FILE, or NAME=FILE, of which a tenth of the rows is held out. A table has
    the columns text, pair (for pairs), and label (a class) or score (the similarity of a pair)."""
    path: str | None = None
    """Folder of the project's files; None = $JAXNLP_DATA/cs224n_minbert."""
    max_length: int = 128
    """Maximum length in tokens; longer texts are truncated."""
    schedule: Literal[ScheduleName, "together"] = "round_robin"
    """Order of the parts' batches: round_robin, proportional, annealed, sequential or together."""
    schedule_steps: int = 1_000
    """For annealed: number of steps until size has little influence. For sequential: consecutive steps of each part."""
    length_multiple: int = 16
    """Batches have the length of their longest text, rounded up to a multiple of this. JAX compiles a program for each
    length; with the schedule together, for each combination of the parts' lengths."""
    evaluation_batch_size: int = 64
    """Number of rows in an evaluation step."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "schedule_steps", "length_multiple", "evaluation_batch_size")
        self.require_at_least(3, "max_length")
        own = [part_files(given).name for given in self.tables]
        known = [*get_args(PartName), *own]
        if len(set(known)) != len(known):
            raise ValueError(f"data.tables must have new, distinct names, got {', '.join(own)}")
        if not self.parts or len(set(self.parts)) != len(self.parts) or not set(self.parts) <= set(known):
            raise ValueError(
                f"data.parts must be some of {', '.join(known)}, each once, got {', '.join(self.parts) or 'none'}"
            )
        unread = [name for name in own if name not in self.parts]
        if unread:
            raise ValueError(f"data.parts does not include {unread[0]} of data.tables; add it, or remove the table")
        if self.path is not None and set(self.parts) <= set(own):
            raise ValueError("data.path applies only to parts of CS224N's project; remove it")
        stretched = len(self.parts) > 1 and self.schedule in ("annealed", "sequential")
        refuse_unread(
            self,
            [
                *self.read_if_own(bool(own), "data.tables"),
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
    def needs(self) -> str:
        """The project's folder, if a part is one of the project's."""
        return "cs224n_minbert" if set(self.parts) & SOURCES.keys() else "your tables"

    @property
    def together(self) -> bool:
        """Whether the schedule is together."""
        return self.schedule == "together"

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the tables of all parts.

        The split `validation`, also `dev`, has labels; `test` has only the labels that the project publishes.

        Args:
          seed: decides the order of training.
          processor: the vocabulary of a pretrained model, or the processor of an earlier run with its vocabulary.

        Raises:
          FileNotFoundError, DataError: when a file is not found or malformed, when there are too few examples, or
            without a vocabulary.
        """
        vocabulary = vocabulary_of(processor)
        read = self._read()
        tables = {name: found for name, (_, found) in read.items()}
        parts = tuple((name, labels) for name, (labels, _) in read.items())
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
                    # The same for all parts: a step then has batches of similar lengths, and few combinations are
                    # compiled.
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
            processor=TextProcessor(vocabulary, self.max_length, parts),
            description=f"texts for training / dev: {', '.join(notes)}; {vocabulary.size:,} tokens in the vocabulary",
            fingerprint=digest.hexdigest(),
        )

    def _read(self) -> dict[str, tuple[Labels, Tables]]:
        """Labels and tables of each part."""
        own = {files.name: files for files in map(part_files, self.tables)}
        found: dict[str, tuple[Labels, Tables]] = {}
        for name in self.parts:
            if name in own:
                part = read_part(own[name], self.writing)
                found[name] = part.labels, (part.train, part.validation, ())
            else:
                found[name] = LABELS[name], _read(self._folder(name), name)
        return found

    def _folder(self, part: str) -> Path:
        holds = "the project's files, such as ids-sst-train.csv"
        otherwise = "choose another recipe, or your own tables with --data.tables"
        return locate_folder(FILES[SOURCES[part]].folder, self.path, holds=holds, otherwise=otherwise)

    def _written(self, part: str) -> Writing:
        """How the files of a part are written: the project's have tabs, although they end in .csv."""
        return Writing("tsv") if part in SOURCES else self.writing

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
        """Reads a file with the labels of one part; or a file without labels, for all parts with such texts.

        Raises: DataError when its labels fit several parts, or it is not such a file.
        """
        processor = require_processor(processor, TextProcessor)
        labels = dict(processor.parts)
        columns = {name: columns_of(name, kind) for name, kind in labels.items()}
        written = {name: self._written(name) for name in labels}
        headers = {name: read_header(path, writing) for name, writing in written.items()}
        fitting = _with_most_texts(
            {name: columns[name] for name in labels if columns[name].label in headers[name]}, headers
        )
        if len(fitting) > 1:
            raise DataError(
                f"{path} has the column {columns[fitting[0]].label}, which {' and '.join(fitting)} have; score it with "
                "a run of one of them"
            )
        if not fitting:
            fitting = [name for name in labels if set(columns[name].texts) <= set(headers[name])]
            _logger.warning(
                "%s has no labels: it does not have the column %s, only %s",
                path,
                " or ".join(sorted({found.label for found in columns.values()})),
                ", ".join(filter(None, headers[next(iter(labels))])),
            )
        # If nothing fits, the error of the first part has the missing columns.
        names = fitting or list(labels)[:1]
        found = {}
        for name in names:
            rows, source = read_table(path, columns[name], labels[name], writing=written[name])
            found[name] = dataclasses.replace(self._split(name, rows, processor.vocabulary), source=source)
        return split_of_parts(found)

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
    """The vocabulary of a pretrained model or of an earlier run. Raises: DataError without a vocabulary."""
    if processor is None:
        raise DataError("text tasks need a pretrained tokenizer; give a pretrained model or a run with --init-from")
    if isinstance(processor, TextProcessor):
        return processor.vocabulary
    return require_processor(processor, WordPieceVocabulary)


LabelledText = collections.namedtuple("LabelledText", ["id", "text", "pair", "label"])


def table_text(table: Sequence[Sequence[TextExample]]) -> str:
    """Tables as text for fingerprints, which must not change with the names of classes in this file."""
    return repr(tuple(tuple(LabelledText(row.id, row.text, row.pair, row.label) for row in rows) for rows in table))


def columns_of(part: str, labels: Labels | None = None) -> Columns:
    """The columns of the files of a part; for your own parts the columns that its labels need."""
    if part not in SOURCES:
        assert labels is not None
        return columns_for(labels)
    columns = FILES[SOURCES[part]].columns
    assert columns is not None
    return columns


def _with_most_texts(columns: dict[str, Columns], headers: dict[str, list[str]]) -> list[str]:
    """The parts whose text columns all exist; parts with pairs come first, because a table of pairs has texts, too."""
    if len(columns) < 2:
        return list(columns)
    found = {name: len(those.texts) for name, those in columns.items() if set(those.texts) <= set(headers[name])}
    return [name for name, texts in found.items() if texts == max(found.values())]


def _read(folder: Path, part: str) -> Tables:
    found, column = read_data_set(SOURCES[part], folder), columns_of(part).label
    train, dev, test = (
        text_examples(*found[split], column, LABELS[part]) if split in found else ()
        for split in ("train", "validation", "test")
    )
    return train, dev, test
