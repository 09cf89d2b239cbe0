"""The interface of data sets: batches, examples, and the processor of raw inputs. Does not use jax."""

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from jaxnlp.config import BatchSize, Config, Workers, path_fields

Example = TypeVar("Example")

NumpyBatch = dict[str, np.ndarray]
"""Named arrays of static shape; the first axis is B. `loss_mask` is False for padded rows or positions."""


class LazyBatch(Mapping[str, np.ndarray]):
    """A batch whose rows are made when they are read: each process makes only those of its devices.

    Args:
      size: B.
      make: from row indices [N], ascending, to a batch of these N rows.
    """

    def __init__(self, size: int, make: Callable[[np.ndarray], NumpyBatch]):
        self.size = size
        self.rows = make

    @functools.cached_property
    def whole(self) -> NumpyBatch:
        """All rows."""
        return self.rows(np.arange(self.size))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)


class DataError(ValueError):
    """Unreadable or insufficient data; the message names the problem, its position and the remedy."""


@contextlib.contextmanager
def errors_as(kind: type[ValueError], where: object = "") -> Iterator[None]:
    """A context in which each ValueError is of this kind, and its message starts with a file, a line or an option."""
    try:
        yield
    except ValueError as error:
        raise kind(f"{where}: {error}" if where else str(error)) from error


class Processor(Protocol):
    """Turns raw inputs into arrays: a vocabulary; a tokenizer and labels; two vocabularies; an image size and labels.

    Equal by value. A run saves it as `processor.json`, with its class as "module:Class"; only classes of trusted
    packages are loaded (`jaxnlp.saving.serialization`).
    """

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError, KeyError or TypeError for wrong fields."""


@dataclasses.dataclass(frozen=True, eq=False)
class SourceRows:
    """All rows of a file. The examples of a split are those that are not skipped, such as blank ones.

    Attributes:
      indices: each example's row [N].
      names: of all rows: numbers from 1, or ids.
      columns: names of a table's columns; () = the file is not a table.
      cells: the table's cells, by row.
    """

    indices: Sequence[int]
    names: Sequence[str]
    columns: tuple[str, ...] = ()
    cells: Sequence[tuple[str, ...]] = ()

    def with_gaps(self, texts: Mapping[str, str], end: str = "") -> list[str]:
        """The text of each row from texts by name, a line for each cell; other rows have as many empty lines.

        Args: end: after the lines of a row.
        """
        rows = zip(self.names, self.cells, strict=True)
        return [texts.get(name, "\n" * len(cells) + end) for name, cells in rows]


@dataclasses.dataclass(frozen=True, eq=False)
class Split(Generic[Example]):
    """Data that can be scored.

    Attributes:
      batches: one pass over the data, for the objective; the last one is padded, with `loss_mask` False. Empty if the
        objective cannot score the data.
      examples: the raw examples in their order, for metrics that are not sums over batches.
      rows: [N] int, the example at each unmasked row of the batches; None = in order.
      scored: whether the examples have targets; otherwise there are only predictions.
      parts: a split for each part of a corpus with several, such as three text tasks; `batches` has those of all scored
        parts.
      notes: messages for the user, such as the number of truncated texts.
      source: all rows of the file that the examples come from; None = each row is an example.
      of_each_shape: a batch of each shape in `batches`, with arbitrary values; None = found in `batches`. Needed for
        lazy batches.
      unlabelled: inputs of the same file without targets, predicted but not scored; None = none.
    """

    batches: Sequence[NumpyBatch] = ()
    examples: Sequence[Example] = ()
    rows: np.ndarray | None = None
    scored: bool = True
    parts: Mapping[str, "Split"] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: SourceRows | None = None
    of_each_shape: Sequence[NumpyBatch] | None = None
    unlabelled: "Split | None" = None

    @property
    def shapes(self) -> Sequence[NumpyBatch]:
        """A batch of each shape."""
        return one_of_each_shape(self.batches) if self.of_each_shape is None else self.of_each_shape

    def in_rows(self, answers: Sequence[Any], missing: Any) -> list[Any]:
        """Answers for all rows of the file, from those for the examples [N]; `missing` for skipped rows."""
        if self.source is None:
            return list(answers)
        rows = [missing] * len(self.source.names)
        for index, answer in zip(self.source.indices, answers, strict=True):
            rows[index] = answer
        return rows


def one_of_each_shape(batches: Iterable[Any]) -> list[Any]:
    """The first batch of each shape; a batch is a dict of arrays, or of a batch of each part."""
    found: dict[Any, Any] = {}
    for batch in batches:
        found.setdefault(_shape_of(batch), batch)
    return list(found.values())


def _shape_of(batch: Any) -> Any:
    return tuple(map(_shape_of, batch.values())) if isinstance(batch, Mapping) else batch.shape


class BatchShapes(NamedTuple):
    """A batch of each shape that a run has, with arbitrary values.

    Attributes:
      train: of the training batches.
      evaluation: of the split `validation`.
    """

    train: Sequence[Any]
    evaluation: Sequence[NumpyBatch]


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """A loaded data set.

    Attributes:
      train: endless batches of static shapes, perhaps lazy, in an order that only the seed decides; or dicts of batches
        by part, for joint training. Its iterator has `get_state` and `set_state`, as `data.pipelines.epochs.Epochs`.
      splits: the splits that can be scored, by name; one is `validation`.
      processor: turns raw inputs into arrays.
      description: one line for the user.
      fingerprint: changes when the data changes; a run continues only on the same data.
      token_counts: the count of each token, or of each class, in training [V] or [C] int; None = not counted.
      of_each_shape: a batch of each shape in `train`; None = all have the shape of the first one.
    """

    train: Iterable[Any]
    splits: Mapping[str, Split]
    processor: Any
    description: str
    fingerprint: str
    token_counts: np.ndarray | None = None
    of_each_shape: Sequence[Any] | None = None

    def with_workers(self, number: int) -> "Corpus":
        """The same data; this number of processes makes the training batches ahead.

        Raises: DataError when the training batches have no method `with_workers`.
        """
        if not number:
            return self
        if not hasattr(self.train, "with_workers"):
            raise DataError(
                f"--data.num-workers {number} does not apply: the training batches of this data set, "
                f"{type(self.train).__name__}, have no method with_workers; set it to 0"
            )
        return dataclasses.replace(self, train=self.train.with_workers(number))

    @property
    def shapes(self) -> BatchShapes:
        """The shapes of all batches of a run."""
        train = [next(iter(self.train))] if self.of_each_shape is None else self.of_each_shape
        return BatchShapes(train, self.split("validation").shapes)

    def split(self, name: str) -> Split:
        """The split of this name. Raises: DataError, with the names of all splits."""
        if name not in self.splits:
            raise DataError(f"this data set does not have the split {name!r}; it has: {', '.join(self.splits)}")
        return self.splits[name]


@dataclasses.dataclass(frozen=True)
class DataConfig(Config):
    """The base of every data set's config."""

    section: ClassVar[str] = "data"
    length_field: ClassVar[str] = "max_length"
    """The field that decides `max_length`."""
    processor_fields: ClassVar[tuple[str, ...]] = ()
    """Fields for the processor that the data set makes itself: unused if `load` gets a processor."""

    batch_size: BatchSize = 32
    """Number of examples in a training step, over all devices."""
    few_lengths: bool | None = None
    """Fewer lengths of batches, with more padding, to compile fewer programs: one, two for streams of text, three for
    data with a list of lengths. None = True on GPUs and TPUs, otherwise False."""

    num_workers: Workers = 0
    """Processes that make batches ahead; 0 = this one. The batches do not depend on it, and it may change on resume."""

    @property
    def usual(self) -> tuple[str, ...]:
        return ("source", "path", "batch_size")

    @property
    def max_length(self) -> int | None:
        """Maximum length of an input in a batch, length jitter included; None = inputs have no length."""
        return None

    @property
    def needs(self) -> str:
        """The data that `load` needs: a folder in JAXNLP_DATA, or "your ..."; "" = nothing."""
        return ""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the data's parts; () = one part without a name."""
        return ()

    @property
    def joint(self) -> bool:
        """Joint training: whether each step takes a batch of every part."""
        return False

    @classmethod
    def places(cls) -> tuple[str, ...]:
        """Fields with paths of the data: they may change on resume, since the fingerprint or the processor identifies
        the data."""
        return path_fields(cls)

    @property
    def stateful(self) -> bool:
        """Whether rows of a training batch continue those of the batch before; batches then have `reset`."""
        return False

    def check_steps(self, total_steps: int) -> None:
        """Raises ValueError when a run of this many steps would never reach some of the data."""

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Loads the data set.

        Args:
          seed: decides the order of training, at least 0.
          processor: of a pretrained model, or of the run in `init_from`; None = the data set makes its own.

        Raises:
          FileNotFoundError, DataError: when the data cannot be found or read, or does not fit the processor.
        """
        raise TypeError(f"{type(self).__name__} cannot be loaded: it does not define load()")

    def check_after(self, earlier: "DataConfig") -> None:
        """Raises DataError when the validation data of this run was training data of the run in `init_from`."""

    def in_format(self, given: Mapping[str, Any]) -> Self:
        """The data set with another format of its files, such as another encoding. Args: given: the changed fields.

        Raises: DataError for a field that it does not have; ValueError when the format is fixed.
        """
        lacking = given.keys() - {field.name for field in dataclasses.fields(self)}
        if lacking:
            raise DataError(
                f"--data.{min(lacking)} does not apply to this run's data, {type(self).__name__}; remove it"
            )
        other = copy.copy(self)
        vars(other).update(given)  # also if the training data are not files, for which these fields do not apply
        return other

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a file in the data set's format, for scoring. Raises: FileNotFoundError, DataError."""
        del processor
        raise DataError(f"{path}: this run's data, {type(self).__name__}, does not read files; score one of its splits")

    def read_files(self, paths: Sequence[Path], processor: Any) -> Split:
        """Reads the files of one split, for scoring; usually only one. Raises: as `read_file`."""
        if len(paths) != 1:
            shown = ", ".join(map(str, paths))
            raise DataError(f"--file {shown}: this run's data, {type(self).__name__}, are read from one file; give one")
        return self.read_file(paths[0], processor)
