"""Labelled texts, or pairs of texts: the user's tables, or known data sets; one part, or several for one encoder."""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import grain
import numpy as np

from data import Corpus, DataConfig, DataError, NumpyBatch, Split, errors_as, require_batch, require_processor
from data.pipelines.buckets import Buckets
from data.pipelines.endless import iterable, shuffled
from data.pipelines.epochs import ENDLESS
from data.pipelines.fingerprints import fingerprint, vocabulary_text
from data.pipelines.lengths import multiples
from data.pipelines.part_schedules import PartSchedule, ScheduleName
from data.pipelines.table_batches import (
    Tokenized,
    oversampled,
    split_of_parts,
    table_buckets,
    table_split,
    tokenized,
    undersampled,
    unknown_shares,
)
from data.readers.file_options import TableFiles
from data.readers.held_out import folds_of, with_training_rows
from data.readers.labelled_data_sets import LabelledName
from data.readers.labelled_texts import (
    PARTS,
    Predicted,
    RowSource,
    parts_of_file,
    source_of_columns,
    table_files,
    table_source,
)
from data.readers.repeated import also_in
from data.readers.table_summary import summary
from jaxnlp.config import BatchSize, Count, Natural, UserPath, Within
from jaxnlp.input_files.tables import Columns, MissingColumnsError
from jaxnlp.targets import Number, OneClass, Targets
from jaxnlp.text.classifier_processor import LabelledText, PairReading, TextClassifierProcessor, TextPart
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary, encoder_vocabulary
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TextTable(TableFiles):
    """Texts, or pairs of texts, and their labels: a class, several classes, or a number.

    Files end in .csv (fields separated by commas), .tsv or .txt (by tabs) or .jsonl (a JSON object a line), and perhaps
    .gz. Rows with a blank text are skipped. Batches have `tokens`, `segments` [B, T] int32, `attention_mask` [B, T]
    bool, `loss_mask` [B] bool, and `labels`. With `pairs` apart, the first three are [B, 2, T]. With `parts`, a batch
    is of one part, such as sst, with `sst/labels`.
    """

    processor_fields = ("tokens", "vocabulary_size", "minimum_count")
    source: Literal["table", LabelledName] = "table"
    """Your own table; MR, SST with five classes or two, TREC's questions, AFQMC's pairs of questions; or data of
    CS224N's default project: SST, film reviews (cfimdb), Quora's pairs of questions, or pairs with similarities
    (sts)."""
    parts: tuple[str, ...] = ()
    """Several parts, each with its head on one encoder: sst, cfimdb, quora, sts, afqmc, and the names of your own
    tables. Empty = the data of data.source."""
    tables: tuple[str, ...] = ()
    """Your own tables of parts: NAME=FILE,VALIDATION_FILE, or NAME=FILE, of which a part of the rows is held out. A
    table has the columns text, pair (for pairs), and label (a class) or score (a number)."""
    path: UserPath | None = None
    """Your table, or the folder of a known data set; None = in $JAXNLP_DATA."""
    validation_path: UserPath | None = None
    """A second table for validation; None = a part of the rows is held out."""
    test_path: UserPath | None = None
    """A table for the test split, with or without labels; None = no test split."""
    text: str = "text"
    """Column of the text."""
    pair: str | None = None
    """Column of the second text of a pair; None = single texts."""
    label: str = "label"
    """Column of the label."""
    predict: Predicted = "class"
    """Kind of the labels: a class, any number of classes, or a number."""
    separator: str = ","
    """Separator of several classes in one field."""
    validation_fraction: Annotated[float, Within("(0, 0.5]")] = 0.1
    """Share of the rows that is held out, equal for all classes: 1 / N, for N folds."""
    fold: Natural = 0
    """Index of the held-out fold, from 0 to 1 / validation_fraction - 1, for cross-validation."""
    split_seed: Natural = 0
    """Seed of the choice of held-out rows."""
    tokens: Literal["pieces", "words"] = "pieces"
    """Tokens of a vocabulary trained on the training texts: WordPiece (pieces), or the most frequent words. A
    pretrained model has its own vocabulary."""
    vocabulary_size: Annotated[int, Within(f"[{len(SPECIAL) + 1}, 10000001)")] = 8_000
    """Maximum number of tokens in a vocabulary trained on the training texts."""
    minimum_count: Count = 2
    """Minimum number of occurrences of a token in the training texts."""
    max_length: int = 128
    """Maximum length in tokens, for both texts of a pair together if pairs are together; longer texts are truncated."""
    pairs: PairReading = "together"
    """Read both texts of a pair together, as [CLS] first [SEP] second [SEP], or apart, as two inputs."""
    schedule: Literal[ScheduleName, "together"] = "round_robin"
    """Order of the parts' batches: round_robin, proportional, annealed, sequential, or together: a step takes a batch
    of each part, and all batches of a part have one length."""
    schedule_steps: Count = 1_000
    """For annealed: number of steps until size has little influence. For sequential: consecutive steps of each part."""
    oversample: bool = False
    """Repeat the training rows of rarer classes until all classes are equally frequent."""
    undersample: bool = False
    """Train on as many rows of each class as the rarest class has; the training seed chooses them."""
    swap_pairs: bool = False
    """Train on each pair in both orders."""
    drop_duplicates: bool = False
    """Remove training rows whose texts are also in validation or test, as a reader sees them, in either order."""
    length_multiple: Count = 16
    """Batches have the length of their longest text, rounded up to a multiple of this; JAX compiles a program for each
    length."""
    evaluation_batch_size: BatchSize = 64
    """Number of rows in an evaluation step."""

    @classmethod
    def places(cls) -> tuple[str, ...]:
        return (*super().places(), "tables")

    def __post_init__(self):
        super().__post_init__()
        self._check_parts()
        own, paired = self.source == "table" and not self.parts, bool(self.parts) or len(self.columns.texts) == 2
        held_out = bool(self.parts) or self._source.holds_out
        if abs(self.validation_fraction * self._folds - 1.0) > 0.02:
            raise ValueError(
                f"data.validation_fraction must be 1 / N, for N folds, such as 0.1, 0.2, 0.25 or 0.5; got "
                f"{self.validation_fraction}"
            )
        if self.fold >= self._folds:
            raise ValueError(
                f"data.fold must be less than {self._folds}, which is 1 / data.validation_fraction, got {self.fold}"
            )
        if self.predict == "classes" and not self.separator:
            raise ValueError("data.separator must not be empty")
        only_own = "data.source table"
        own_fields = ("validation_path", "test_path", "text", "pair", "label", "predict")
        several, stretched = len(self.parts) > 1, self.schedule in ("annealed", "sequential")
        one_class = not self.parts and self._source.predict == "class"
        self.only_if(not self.parts, "data without data.parts", "source", "oversample", "undersample", *own_fields)
        self.only_if(several, "several data.parts", "schedule")
        self.only_if(stretched, "data.schedule annealed and sequential", "schedule_steps")
        self.only_if(own, only_own, *own_fields)
        self.format_only_if(own or bool(self.tables), only_own)
        self.only_if(self.predict == "classes", "data.predict classes", "separator")
        without = "data without separate validation rows"
        self.only_if(held_out, without, "validation_fraction", "fold", "split_seed")
        self.only_if(one_class, "data.predict class", "oversample", "undersample")
        self.only_if(not self.oversample, "data without data.oversample", "undersample")
        self.only_if(paired, "pairs of texts", "swap_pairs", "pairs")
        names = [*self.columns.texts, self.columns.label]
        if len(set(names)) != len(names):
            raise ValueError(f"data.text, data.pair and data.label must differ, got {', '.join(names)}")
        least = 5 if paired and self.pairs == "together" else 3
        if self.max_length < least:
            raise ValueError(f"data.max_length must be at least {least}, got {self.max_length}")

    def _check_parts(self) -> None:
        """Raises ValueError for parts and tables that do not fit together."""
        own = [table_files(given)[0] for given in self.tables]
        known = [*PARTS, *own]
        if len(set(known)) != len(known):
            raise ValueError(f"data.tables must have new, distinct names, got {', '.join(own)}")
        if len(set(self.parts)) != len(self.parts) or not set(self.parts) <= set(known):
            raise ValueError(f"data.parts must be some of {', '.join(known)}, each once, got {', '.join(self.parts)}")
        unread = [name for name in own if name not in self.parts]
        if unread:
            raise ValueError(f"data.parts does not include {unread[0]} of data.tables; add it, or remove the table")
        if self.parts and self.path is not None and set(self.parts) <= set(own):
            raise ValueError("data.path applies only to known data sets; remove it")

    @property
    def columns(self) -> Columns:
        """The columns of the table, or of the known data set."""
        return self._source.columns

    @property
    def _source(self) -> RowSource:
        """The source of data without parts."""
        if self.source != "table":
            return RowSource.of_known(self.source, self.path)
        texts = (self.text,) if self.pair is None else (self.text, self.pair)
        return RowSource(
            Columns(texts, self.label),
            self.path,
            validation=self.validation_path,
            test=self.test_path,
            predict=self.predict,
            separator=self.separator,
            dialect=self.dialect,
        )

    def _sources(self) -> dict[str, RowSource]:
        """The source of each part, by name."""
        own = {table_files(given)[0]: given for given in self.tables}
        return {
            name: table_source(own[name], self.dialect) if name in own else RowSource.of_known(PARTS[name], self.path)
            for name in self.parts
        } or {"": self._source}

    @property
    def usual(self) -> tuple[str, ...]:
        if self.parts:
            return ("parts", "tables", "path", "batch_size")
        known = ("source", "path", "batch_size")
        return known if self.source != "table" else ("path", "text", "label", "pair", "predict", "batch_size")

    @property
    def needs(self) -> str:
        known = [RowSource.of_known(PARTS[name], None).folder for name in self.parts if name in PARTS]
        if self.parts:
            return next(iter(known), "your tables")
        return self._source.folder or "your table"

    @property
    def joint(self) -> bool:
        return self.schedule == "together"

    @property
    def _folds(self) -> int:
        return round(1.0 / self.validation_fraction)

    def check_steps(self, total_steps: int) -> None:
        needed = self.schedule_steps * len(self.parts)
        if self.schedule == "sequential" and needed > total_steps:
            raise ValueError(
                f"data.schedule sequential with data.schedule_steps {self.schedule_steps} never reaches all of "
                f"{', '.join(self.parts)} within total_steps {total_steps}; lower data.schedule_steps"
            )

    def check_after(self, earlier: DataConfig) -> None:
        """Raises DataError when the earlier run held out other rows of the same table."""
        table, fields = ("source", "path", "parts", "tables"), ("validation_fraction", "fold", "split_seed")
        before, now = ({name: getattr(data, name, None) for name in (*table, *fields)} for data in (earlier, self))
        changed = [f"--data.{name.replace('_', '-')} {before[name]}" for name in fields if before[name] != now[name]]
        if isinstance(earlier, TextTable) and changed and all(before[name] == now[name] for name in table):
            raise DataError(f"the earlier run has read rows of this run's validation; set {', '.join(changed)}")

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the tables; the splits are `validation` and, if there is a file, `test`.

        Args:
          seed: decides the order of training.
          processor: the tokenizer of a pretrained model, or the processor of an earlier run; None = the vocabulary is
            trained on the training texts.

        Raises: FileNotFoundError, DataError when a file is not found or malformed, a label is not in training, or there
          are too few rows or classes.
        """
        read = {name: self._read(source) for name, source in self._sources().items()}
        if self.pairs == "apart" and all(len(part.source.columns.texts) == 1 for part in read.values()):
            raise DataError("data.pairs apart applies only to pairs of texts; set data.pairs to together")
        texts = [text for part in read.values() for row in part.train for text in row.texts]
        vocabulary = self._vocabulary(texts, processor)
        parts = tuple((name, TextPart(part.targets, len(part.source.columns.texts))) for name, part in read.items())
        whole = TextClassifierProcessor(vocabulary, self.max_length, parts, self.pairs)
        contents = [vocabulary_text(vocabulary)]
        batches, sizes, lines = list[Any](), list[int](), list[str]()
        shapes: list[list[NumpyBatch]] = []
        splits: dict[str, dict[str, Split[LabelledText]]] = {}
        for index, (name, part) in enumerate(read.items()):
            one = whole.by_part[name]
            examples, truncated = self._examples(one, part.train, seed)
            tables = [[(row.texts, row.label) for row in rows] for rows in (part.train, *part.splits.values())]
            contents.append(repr((name, part.targets, tables)))
            sizes.append(len(examples))
            held = {split: tokenized(one, rows) for split, rows in part.splits.items()}
            buckets = self._buckets(one, itertools.chain(examples, *(texts for texts, _ in held.values())))
            ordered = shuffled(examples, seed + index)
            batches.append(buckets.endless(ordered, self.batch_size, seed=seed))
            shapes.append(buckets.of_each_shape(examples, self.batch_size))
            encoded = {
                split: table_split(rows, held[split], one, buckets, self.evaluation_batch_size)
                for split, rows in part.splits.items()
            }
            for split, rows in encoded.items():
                splits.setdefault(split, {})[name] = rows
            lengths, unknown = [example.length for example in examples], unknown_shares(encoded, vocabulary)
            note = f"{part.note}\ntexts left by data.undersample: {len(examples):,}" if self.undersample else part.note
            text = summary(one, part.train, part.splits, lengths, truncated, unknown=unknown)
            lines.append((f"{name}: " if name else "") + text + note)
        every = [self._together(part[0] for part in shapes)] if self.joint else list(itertools.chain(*shapes))
        return Corpus(
            train=iterable(grain.MapDataset.range(ENDLESS).map(self._steps(batches, sizes, seed))),
            splits={name: split_of_parts(by_part) if self.parts else by_part[""] for name, by_part in splits.items()},
            processor=whole,
            description="\n".join(lines),
            fingerprint=fingerprint(*contents),
            token_counts=None if self.parts else read[""].targets.counts([example.label for example in examples]),
            of_each_shape=every,
        )

    def _together(self, batches: Iterable[NumpyBatch]) -> dict[str, NumpyBatch]:
        """A step's batch of each part."""
        return dict(zip(self.parts, batches, strict=True))

    def _steps(self, batches: Sequence[grain.MapDataset], sizes: Sequence[int], seed: int) -> Callable[[int], Any]:
        """The batch of a training step, by its index, from each part's batches and number of examples."""
        if self.schedule == "together":
            return lambda step: self._together(part[step] for part in batches)
        schedule = PartSchedule(self.schedule, sizes, length=self.schedule_steps, seed=seed)

        def batch_of(step: int) -> NumpyBatch:
            part, turn = schedule.turn(step)
            return batches[part][turn]

        return batch_of

    def _read(self, source: RowSource) -> "_Rows":
        """The rows of a part, with held-out ones and without duplicates if chosen."""
        tables = source.tables()
        targets = source.targets(tables["train"])
        splits = {name: source.labelled(rows, targets) for name, rows in tables.items()}
        train, note = splits.pop("train"), ""
        if "validation" not in splits:
            train, splits = self._held_out(train, targets, splits)
            if isinstance(targets, Number) and source.known is None:  # what is held out does not decide the scale
                targets = source.scale([row.label for row in train])
        if self.drop_duplicates:
            repeated = also_in([one.texts for one in train], (row.texts for rows in splits.values() for row in rows))
            kept = [row for row, again in zip(train, repeated, strict=True) if not again]
            if not kept:
                raise DataError(
                    "all training rows are also in validation or test; give others, or no --data.drop-duplicates"
                )
            note = f"\ntraining rows that are also in validation or test, removed: {len(train) - len(kept):,}"
            train = kept
        _refuse_classes_without_rows(train, targets)
        return _Rows(source, targets, train, splits, note)

    def _examples(
        self, one: TextClassifierProcessor, train: list[LabelledText], seed: int
    ) -> tuple[list[Tokenized], int]:
        """The training examples of a part, and the number of truncated ones."""
        kind = f"rows of {one.name}" if one.name else "rows"
        if self.undersample and isinstance(one.targets, OneClass):
            train, kind = undersampled(train, one.targets, seed), f"{kind} with data.undersample"
        examples, truncated = tokenized(one, train)
        if self.swap_pairs and one.texts == 2:
            swapped, _ = tokenized(one, [dataclasses.replace(row, texts=row.texts[::-1]) for row in train])
            examples += swapped
        require_batch(len(examples), self.batch_size, kind)
        if self.oversample and isinstance(one.targets, OneClass):
            examples = oversampled(examples, one.targets)
        return examples, truncated

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a file with the same columns; labels are optional, and rows without one are not scored.

        With parts, it has the labels of one part; or no labels, for all parts with such texts.

        Raises: FileNotFoundError, DataError.
        """
        processor = require_processor(processor, TextClassifierProcessor)
        sources = {
            name: (RowSource.of_known(PARTS[name], None) if name in PARTS else self._further(one))
            if self.parts
            else self._source
            for name, one in processor.by_part.items()
        }
        splits, unlabelled = dict[str, Split](), dict[str, Split]()
        for name in parts_of_file(path, sources):
            try:
                rows, every = sources[name].read(path)
            except MissingColumnsError as error:
                raise DataError(f"{error}; name the columns of the file as in the run's training table") from error
            others, of_others = sources[name].without_label(path, rows)
            for kind, of_kind, origin in ((splits, rows, every), (unlabelled, others, of_others)):
                if of_kind:
                    one = processor.by_part[name]
                    labelled = sources[name].labelled((path, of_kind), one.targets)
                    read = tokenized(one, labelled)
                    split = table_split(labelled, read, one, self._buckets(one, read[0]), self.evaluation_batch_size)
                    kind[name] = dataclasses.replace(split, source=origin)
        whole, *rest = (split_of_parts(kind) if self.parts else kind[""] for kind in (splits, unlabelled) if kind)
        return dataclasses.replace(whole, unlabelled=next(iter(rest), None))

    def _buckets(self, one: TextClassifierProcessor, examples: Iterable[Tokenized]) -> Buckets[Tokenized]:
        """Batches of examples of a part. Args: examples: of all splits.

        In joint training, a part's batches have one length: JAX would compile a program for each combination.
        """
        lengths, few = [example.length for example in examples], self.few_lengths or self.joint
        return table_buckets(multiples(lengths, one.max_length, self.length_multiple, few=few), one)

    def _further(self, one: TextClassifierProcessor) -> RowSource:
        """Further tables of a part with a user's training table."""
        return source_of_columns(one.texts, number=isinstance(one.targets, Number), dialect=self.dialect)

    def _held_out(
        self, rows: list[LabelledText], targets: Targets, splits: dict[str, list[LabelledText]]
    ) -> tuple[list[LabelledText], dict[str, list[LabelledText]]]:
        """Training rows, and the splits with held-out rows."""
        labels = [row.label for row in rows]
        folds = folds_of(targets.strata(labels), self._folds, self.split_seed)
        held_out = np.array(with_training_rows(folds, list(map(targets.classes, labels)))) == self.fold
        train = [row for row, out in zip(rows, held_out, strict=True) if not out]
        validation = [row for row, out in zip(rows, held_out, strict=True) if out]
        if not train or not validation:
            raise DataError(
                f"too few rows to hold out {self.validation_fraction:g} of them: {len(rows)}; give more rows, or a "
                "second table, with --data.validation-path or after a comma in --data.tables"
            )
        return train, {"validation": validation} | splits

    def _vocabulary(self, texts: Sequence[str], given: Any) -> EncoderVocabulary:
        """The vocabulary of the given processor, or one of these texts."""
        if given is not None:
            return require_processor(encoder_vocabulary(given), EncoderVocabulary)
        if self.tokens == "words":
            return WordPieceVocabulary.of_whole_words(texts, self.vocabulary_size, minimum_count=self.minimum_count)
        with errors_as(DataError, f"--data.vocabulary-size {self.vocabulary_size}"):
            return WordPieceVocabulary.of_texts(texts, self.vocabulary_size, minimum_count=self.minimum_count)


class _Rows(NamedTuple):
    """The rows of a part, its targets, and a note for the user."""

    source: RowSource
    targets: Targets
    train: list[LabelledText]
    splits: dict[str, list[LabelledText]]
    note: str


def _refuse_classes_without_rows(train: list[LabelledText], targets: Targets) -> None:
    counts = targets.counts([row.label for row in train])
    if counts is None:
        return
    missing = [name for name, count in zip(targets.names, counts, strict=True) if not count]
    if missing:
        raise DataError(f"no training row has the class {missing[0]!r}; add rows of it")
    once = [name for name, count in zip(targets.names, counts, strict=True) if count == 1]
    if once:
        _logger.warning(
            "classes with a single training row, such as %r: %d of %d; add rows of these classes, or remove them",
            *(once[0], len(once), len(targets.names)),
        )
