"""Texts and pairs of texts with labels, of one task or of several: CS224N's default project.

Source: CS224N, default final project (minBERT): the Stanford Sentiment Treebank, counterfactual IMDb reviews, Quora's
question pairs, and SemEval's pairs of like sentences.
"""

import dataclasses
import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import grain
import numpy as np

from data import Corpus, DataConfig, DataError, LabelledRows, NumpyBatch, Split
from data.buckets import bucketed, rounded_up
from data.download import locate_folder
from data.labelled_texts import LABELS, LabelledText, read_header, read_table, text_columns
from data.schedules import Schedule, ScheduleName
from jaxnlp.text.tasks import TASKS, TaskName, TextTask
from jaxnlp.text.vocabulary import Vocabulary
from jaxnlp.text.wordpiece import WordPieceVocabulary, padded_texts

_logger = logging.getLogger(__name__)

FOLDER = "cs224n_minbert"
FILES: dict[str, tuple[str, str, str]] = {
    "sst": ("ids-sst-train.csv", "ids-sst-dev.csv", "ids-sst-test-student.csv"),
    "cfimdb": ("ids-cfimdb-train.csv", "ids-cfimdb-dev.csv", "ids-cfimdb-test-student.csv"),
    "quora": ("quora-train.csv", "quora-dev.csv", "quora-test-student.csv"),
    "sts": ("sts-train.csv", "sts-dev.csv", "sts-test-student.csv"),
}
"""Training, dev and test file of each task, also compressed by gzip. Those for tests need not be there."""
QUORA_TRAINING_ROWS = 16_000
"""Where Quora's large training file is not there, so many rows of the dev file are for training, the others for dev."""
_ENDLESS = 2**40


@dataclasses.dataclass(frozen=True)
class TextTasksData(DataConfig):
    """Examples of one task or several, each batch of one task, of texts of about the same length.

    With the schedule `together` a step takes a batch of each task, by the task's name.
    """

    tasks: tuple[TaskName, ...] = ("sst",)
    """Which; the model's must be the same."""
    path: str | None = None
    """Folder of the project's files; None = cs224n_minbert in the folder that JAXNLP_DATA names."""
    longest_tokens: int = 128
    """Longer texts are cut there, and counted."""
    schedule: Literal[ScheduleName, "together"] = "round_robin"
    """Of several tasks: one after the other; by chance, by their size; by chance, ever less by their size; a long
    stretch of each in turn; or a batch of each in every step."""
    schedule_steps: int = 1_000
    """Annealed: steps until size hardly counts. Sequential: steps of each task."""
    length_multiple: int = 16
    """Batches are as long as their longest text, rounded up to a multiple: each length is a program to compile, and
    with the schedule together each combination of the tasks' lengths."""
    evaluation_batch_size: int = 64
    """Rows in an evaluation step."""

    def __post_init__(self):
        for name in ("batch_size", "schedule_steps", "length_multiple", "evaluation_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be at least 1, got {getattr(self, name)}")
        unknown = [name for name in self.tasks if name not in TASKS]
        if unknown or not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"data.tasks are some of {', '.join(TASKS)}, each once, got {', '.join(self.tasks)}")
        if self.longest_tokens < 3:
            raise ValueError(f"data.longest_tokens must be at least 3, got {self.longest_tokens}")

    def load(self, seed: int) -> Corpus:
        """Raises: DataError, since texts are cut as the model's vocabulary has it."""
        raise DataError(
            "these texts are cut as a pretrained model cuts its own: give --model.pretrained FOLDER_OR_NAME"
        )

    def load_with(self, seed: int, vocabulary: Vocabulary) -> Corpus:
        """Reads the tables of all tasks.

        The split `validation`, also called `dev`, has labels; `test` has none where the project keeps them.

        Raises:
          FileNotFoundError, DataError: when a file is nowhere or holds something else; when there are too few examples.
        """
        if not isinstance(vocabulary, WordPieceVocabulary):
            raise DataError(f"text tasks are read in pieces of words, got a {type(vocabulary).__name__}")
        holds = "the project's files, such as ids-sst-train.csv"
        folder = locate_folder(FOLDER, self.path, holds=holds, otherwise="choose another recipe")
        parts = {name: _read(folder, TASKS[name]) for name in self.tasks}
        dev, test = (self._split({name: rows[place] for name, rows in parts.items()}, vocabulary) for place in (1, 2))
        digest = hashlib.sha256(vocabulary.to_json().encode())
        sources, notes = [], []
        for number, (name, (train, *_)) in enumerate(parts.items()):
            digest.update(repr(parts[name]).encode("utf-8", errors="surrogatepass"))
            examples, truncated = self._examples(train, TASKS[name], vocabulary)
            cut = (truncated, dev.labelled[number].truncated)
            counts = f"{name} {len(train):,} / {len(parts[name][1]):,}"
            notes.append(counts + (f" ({cut[0]:,} / {cut[1]:,} texts cut)" if any(cut) else ""))
            if len(examples) < self.batch_size:
                raise DataError(f"{name} has {len(examples)} examples for training, fewer than --data.batch-size")
            order = grain.MapDataset.source(examples).seed(seed + number).shuffle().repeat(_ENDLESS // len(examples))
            sources.append(
                bucketed(
                    order,
                    self.batch_size,
                    # The same for all: so the short batches of all tasks meet in a step, and combinations are few.
                    seed=seed,
                    multiple=self.length_multiple,
                    length=lambda example: example.length,
                    pad=functools.partial(_padded, longest=self.longest_tokens),
                )
            )
        return Corpus(
            # No threads that read ahead: see data.character_text.
            train=grain.MapDataset.range(_ENDLESS)
            .map(self._steps(sources, [len(train) for train, *_ in parts.values()], seed))
            .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
            splits={"validation": dev, "dev": dev, "test": test},
            vocabulary=vocabulary,
            description=f"texts for training / dev: {', '.join(notes)}; {vocabulary.size:,} pieces of words",
            fingerprint=digest.hexdigest(),
        )

    def _steps(self, sources: Sequence[grain.MapDataset], sizes: Sequence[int], seed: int) -> Callable[[int], Any]:
        """What a training step takes, as a function of its number, of each task's batches and number of examples."""
        if self.schedule == "together":
            return lambda step: {task: batches[step] for task, batches in zip(self.tasks, sources, strict=True)}
        schedule = Schedule(self.schedule, sizes, length=self.schedule_steps, seed=seed)

        def batch_of(step: int) -> NumpyBatch:
            task, turn = schedule.turn(step)
            return sources[task][turn]

        return batch_of

    def read_file(self, path: Path, vocabulary: Vocabulary) -> Split:
        """A file of the task whose labels it has; without labels, of all tasks that are about such texts.

        Raises: DataError when it has labels that several tasks could mean, or is no such file.
        """
        assert isinstance(vocabulary, WordPieceVocabulary)
        header, tasks = read_header(path), [TASKS[name] for name in self.tasks]
        fitting = [task for task in tasks if LABELS[task.kind] in header]
        if len(fitting) > 1:
            raise DataError(
                f"{path} has the column {LABELS[fitting[0].kind]}, which {' and '.join(t.name for t in fitting)} have; "
                "score it with a run of one of them"
            )
        if not fitting:
            fitting = [task for task in tasks if set(text_columns(task)) <= set(header)]
            _logger.warning(
                "%s has no labels: there is no column %s among %s",
                path,
                " or ".join(sorted({LABELS[task.kind] for task in tasks})),
                ", ".join(filter(None, header)),
            )
        # Where nothing fits, the first task's error says what is missing.
        return self._split({task.name: _rows_of(path, task) for task in fitting or tasks[:1]}, vocabulary)

    def _examples(
        self, rows: Sequence[LabelledText], task: TextTask, vocabulary: WordPieceVocabulary
    ) -> tuple[list["_Example"], int]:
        """Rows as tokens, and how many texts were cut."""
        found = vocabulary.tokenize([row.text for row in rows], longest=self.longest_tokens)
        texts: list[tuple[np.ndarray, ...]] = [(tokens,) for tokens in found.tokens]
        truncated = found.truncated
        if task.texts == 2:
            seconds = vocabulary.tokenize([str(row.pair) for row in rows], longest=self.longest_tokens)
            texts = [(*first, second) for first, second in zip(texts, seconds.tokens, strict=True)]
            truncated += seconds.truncated
        labels = [0.0 if row.label is None else row.label for row in rows]
        return [_Example(task.name, *pair) for pair in zip(texts, labels, strict=True)], truncated

    def _split(self, rows: dict[str, Sequence[LabelledText]], vocabulary: WordPieceVocabulary) -> Split:
        labelled, longest = [], self.longest_tokens
        for name, texts in rows.items():
            if not texts:
                continue
            examples, truncated = self._examples(texts, TASKS[name], vocabulary)
            # Texts of like length together: less padding.
            order, size = (
                np.argsort([example.length for example in examples], kind="stable"),
                self.evaluation_batch_size,
            )
            groups = [order[i : i + size] for i in range(0, len(order), size)]
            multiple = self.length_multiple
            batches = tuple(_padded([examples[i] for i in group], size, multiple, longest=longest) for group in groups)
            labels = None if texts[0].label is None else np.array([text.label for text in texts], np.float32)
            labelled.append(LabelledRows(name, tuple(text.id for text in texts), labels, order, batches, truncated))
        scored = tuple(batch for part in labelled if part.labels is not None for batch in part.batches)
        return Split(scored, labelled=tuple(labelled))


@dataclasses.dataclass(frozen=True, eq=False)
class _Example:
    task: str
    texts: tuple[np.ndarray, ...]
    label: float

    @property
    def length(self) -> int:
        return max(map(len, self.texts))


def _padded(examples: list[_Example], batch_size: int, multiple: int, *, longest: int) -> NumpyBatch:
    """`tokens` [B, S, T] int32, `attention_mask` [B, S, T] bool, `loss_mask` [B] bool, and the labels [B] float32 by
    the name of the task; T is a multiple, or the longest that the model reads."""
    length = min(rounded_up(max(example.length for example in examples), multiple), longest)
    tokens, mask = padded_texts([example.texts for example in examples], batch_size, length)
    labels = np.zeros(batch_size, np.float32)
    labels[: len(examples)] = [example.label for example in examples]
    loss_mask = np.arange(batch_size) < len(examples)
    return {"tokens": tokens, "attention_mask": mask, "loss_mask": loss_mask, examples[0].task: labels}


Parts = tuple[tuple[LabelledText, ...], tuple[LabelledText, ...], tuple[LabelledText, ...]]
"""For training, for dev, and for test, which may be empty."""


def _read(folder: Path, task: TextTask) -> Parts:
    train, dev, test = (_with_its_ending(folder / name) for name in FILES[task.name])
    missing = [file.name for file in (train, dev) if not file.is_file() and (task.name, file) != ("quora", train)]
    if missing:
        raise FileNotFoundError(
            f"{folder} has no {' and no '.join(missing)} for the task {task.name}, nor the same with .gz; give the "
            "folder of the project's files with --data.path"
        )
    asked = _rows_of(test, task, labelled=False) if test.is_file() else ()
    rows = _rows_of(dev, task, labelled=True)
    if task.name != "quora" or train.is_file():
        return _rows_of(train, task, labelled=True), rows, asked
    if len(rows) <= QUORA_TRAINING_ROWS:
        raise DataError(
            f"{dev} has {len(rows)} rows; without {train.name} beside it the first {QUORA_TRAINING_ROWS} are for "
            "training, and some more must be left to score"
        )
    return rows[:QUORA_TRAINING_ROWS], rows[QUORA_TRAINING_ROWS:], asked


def _with_its_ending(path: Path) -> Path:
    """The file, or that which is compressed, where it is there and the other is not."""
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.is_file() and not path.is_file() else path


def _rows_of(path: Path, task: TextTask, *, labelled: bool | None = None) -> tuple[LabelledText, ...]:
    table = read_table(path, task, labelled=labelled)
    if table.skipped:
        _logger.warning("%s: %s rows without a label are left out", path, table.skipped)
    return table.rows
