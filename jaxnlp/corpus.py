"""What a data set gives to a run: batches, examples, and the processor between raw inputs and arrays. No jax."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

Example = TypeVar("Example")

NumpyBatch = dict[str, np.ndarray]
"""Named arrays of static shape; the first axis is B. `loss_mask` is False where a row, or a position, is padding."""


class DataError(ValueError):
    """Data that cannot be read or does not suffice; the message says what, where and what to do."""


class Processor(Protocol):
    """Between raw inputs and arrays: a vocabulary; a tokenizer and labels; two vocabularies; an image size and labels.

    Equal by value. A run saves it as `processor.json`, with its class as "module:Class", which is found again where its
    package is trusted (`jaxnlp.serialization`).
    """

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """What `to_json` wrote. Raises: ValueError, KeyError or TypeError when it is something else."""


@dataclasses.dataclass(frozen=True, eq=False)
class Split(Generic[Example]):
    """What can be scored.

    Attributes:
      batches: one pass, for the objective; a last batch that is not full is padded, and its `loss_mask` is False there.
        Empty where there is nothing that the objective can score.
      examples: the raw examples in their own order, for metrics that are not sums over batches.
      rows: [N] int, the example at each unmasked row of the batches; None = in order.
      scored: whether the examples have targets; without, there are only predictions.
      parts: the same for each part, where a corpus has several (three text tasks of one encoder); `batches` then holds
        those of all scored parts.
      notes: remarks for the person who scores it, such as how many texts were truncated.
    """

    batches: Sequence[NumpyBatch] = ()
    examples: Sequence[Example] = ()
    rows: np.ndarray | None = None
    scored: bool = True
    parts: Mapping[str, "Split"] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """A loaded data set.

    Attributes:
      train: batches without end, of static shapes, in an order that only the seed decides; or, where a step takes a
        batch of each part, dicts of them by the parts' names. Its iterator has `get_state` and `set_state`.
      splits: what can be scored, by name; one is called `validation`.
      processor: between raw inputs and arrays.
      description: one line for the person who starts the run.
      fingerprint: changes when the data changes; a run continues only on the same data.
      token_counts: how often each token, or each class, occurs in training [V] or [C] int; None = not counted.
    """

    train: Iterable[Any]
    splits: Mapping[str, Split]
    processor: Any
    description: str
    fingerprint: str
    token_counts: np.ndarray | None = None

    def split(self, name: str) -> Split:
        """What can be scored under this name. Raises: DataError naming the splits there are."""
        if name not in self.splits:
            raise DataError(f"there is no split {name!r}; this data set has: {', '.join(self.splits)}")
        return self.splits[name]


class DataFacts(Protocol):
    """What a task may ask of a data set's config before anything is loaded; `data.DataConfig` has defaults for all."""

    @property
    def max_length(self) -> int | None:
        """The longest input that a batch can hold, length jitter included; None = inputs have no length."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of its parts; () = one part without a name."""

    @property
    def together(self) -> bool:
        """Whether a training step takes a batch of each part."""

    @property
    def carries(self) -> bool:
        """Whether a row of a training batch continues where that of the previous batch ended."""
