"""Targets of classifiers: one class, any number of classes, or a number per example. Does not use jax.

Axes: N examples, C classes or outputs.
"""

import abc
import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

MOST_CLASSES = 10
"""Maximum number of class names in a message."""

Problem = Literal["single_label_classification", "multi_label_classification", "regression"]


class Prediction(NamedTuple):
    """The prediction of an input.

    Attributes:
      label: the class, the classes, or the number; None for a blank text.
      probability: of the class; of several classes the lowest; of no class 1 minus the highest; nan for a number, and
        for a blank text.
      probabilities: of each class, by name; {} for a number, and for a blank text.
    """

    label: Any
    probability: float
    probabilities: Mapping[str, float]


NO_PREDICTION = Prediction(None, math.nan, {})
"""The prediction of a blank text, and of an image that cannot be read."""


class Targets(abc.ABC):
    """The base of targets: converts between labels and a model's outputs."""

    problem: ClassVar[Problem]
    """The `problem_type` of Transformers."""
    names: tuple[str, ...] = ()
    """Names of the classes, in the order of their ids."""
    lowest: float = 0.0
    """The label for an output of 0."""
    width: float = 1.0
    """The difference that 1 makes in a model's output, in the unit of the labels."""
    sigmoid: bool = False
    """Whether a number is the sigmoid of the output."""
    limited: ClassVar[bool] = False
    """Whether numbers are limited to the scale of the labels."""

    @property
    def outputs(self) -> int:
        """Number of the model's outputs, C."""
        return len(self.names)

    @property
    def has_threshold(self) -> bool:
        """Whether a probability threshold applies: to each of several classes, or to the second of two."""
        return False

    @abc.abstractmethod
    def parse(self, text: str) -> Any:
        """The label in a field of a table. Raises: ValueError for a text that is not a label."""

    @abc.abstractmethod
    def show(self, label: Any) -> str:
        """A label as text, as `parse` reads it."""

    @abc.abstractmethod
    def array(self, labels: Sequence[Any]) -> np.ndarray:
        """Labels as the array of a batch [N, ...]."""

    def values(self, labels: Sequence[Any]) -> np.ndarray:
        """Labels [N, ...] on the scale of `predicted`, for scores."""
        return self.array(labels)

    @abc.abstractmethod
    def counts(self, labels: Sequence[Any]) -> np.ndarray | None:
        """Number of examples of each class [C] int; None for numbers."""

    def classes(self, label: Any) -> Sequence[int]:
        """The ids of a label's classes; () for a number."""
        del label
        return ()

    def strata(self, labels: Sequence[Any]) -> list[Any]:
        """The stratum of each example [N]; folds divide each stratum equally."""
        return [None] * len(labels)

    @abc.abstractmethod
    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        """From a model's outputs [N, C] to probabilities [N, C], or numbers [N]; float64."""

    @abc.abstractmethod
    def decide(self, predicted: np.ndarray, threshold: float | None = None) -> list[Any]:
        """The predicted labels.

        Args:
          predicted: probabilities [N, C], or numbers [N].
          threshold: lowest probability of a predicted class, or of the second of two; None = 0.5 for several classes,
            the most probable class for one.
        """

    @abc.abstractmethod
    def prediction(self, row: Any, label: Any) -> Prediction:
        """The prediction of an example, from its row of `predicted` [C] or [], and its label."""

    @abc.abstractmethod
    def fields(self, prediction: Prediction) -> list[str]:
        """The columns of a prediction in a line of text; empty ones for a blank text."""

    def caption(self, prediction: Prediction) -> str:
        """A prediction in a caption."""
        label, *probability = self.fields(prediction)
        return f"{label or 'no class'} ({probability[0]})" if probability else label

    @abc.abstractmethod
    def answer(self, prediction: Prediction) -> dict[str, Any]:
        """A prediction as JSON."""

    @abc.abstractmethod
    def describe(self, labels: Sequence[Any]) -> str:
        """A line about the labels of training."""

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        assert dataclasses.is_dataclass(self)
        return {"kind": type(self).__name__} | dataclasses.asdict(self)


class _Classes(Targets):
    """The base of one and of several classes."""

    least: ClassVar[int]
    key: ClassVar[str]
    separator: str = ","

    def __post_init__(self):
        if len(self.names) < self.least or len(set(self.names)) != len(self.names):
            raise ValueError(f"expected at least {self.least} classes with distinct names, got {', '.join(self.names)}")

    @functools.cached_property
    def _known(self) -> dict[str, int]:
        """The ids of the classes by name; whole numbers also without .0."""
        names = {whole_number(name): index for index, name in enumerate(self.names)}
        return names | {name: index for index, name in enumerate(self.names)}

    def _id(self, name: str) -> int:
        """The id of a class. A whole number may be written as 1 or 1.0."""
        for known in (name, whole_number(name)):
            if known in self._known:
                return self._known[known]
        more = f" and {len(self.names) - MOST_CLASSES} more" if len(self.names) > MOST_CLASSES else ""
        raise ValueError(f"must be one of {', '.join(self.names[:MOST_CLASSES])}{more}, got {name!r}")

    def _shares(self, row: Any) -> dict[str, float]:
        return {name: float(share) for name, share in zip(self.names, row, strict=True)}

    def fields(self, prediction: Prediction) -> list[str]:
        if prediction.label is None:
            return ["", ""]
        names = [prediction.label] if isinstance(prediction.label, str) else prediction.label
        return [self.separator.join(names), f"{prediction.probability:.2f}"]

    def answer(self, prediction: Prediction) -> dict[str, Any]:
        shares = {name: round(share, 6) for name, share in prediction.probabilities.items()}
        return {self.key: prediction.label, "probabilities": shares or None}

    def describe(self, labels: Sequence[Any]) -> str:
        counts = self.counts(labels)
        order = np.argsort(-counts, kind="stable")
        shown = ", ".join(f"{self.names[index]} {counts[index]:,}" for index in order[:MOST_CLASSES])
        more = f", and {len(order) - MOST_CLASSES} more" if len(order) > MOST_CLASSES else ""
        return f"{len(order)} classes in training: {shown}{more}"

    def counts(self, labels: Sequence[Any]) -> np.ndarray:
        ids = [index for label in labels for index in self.classes(label)]
        return np.bincount(np.array(ids, int), minlength=len(self.names))


@dataclasses.dataclass(frozen=True)
class OneClass(_Classes):
    """One of C classes. A label is the id of the class."""

    problem: ClassVar[Problem] = "single_label_classification"
    least: ClassVar[int] = 2
    key: ClassVar[str] = "class"

    names: tuple[str, ...]

    @property
    def has_threshold(self) -> bool:
        return len(self.names) == 2

    def parse(self, text: str) -> int:
        return self._id(text.strip())

    def show(self, label: int) -> str:
        return self.names[label]

    def array(self, labels: Sequence[int]) -> np.ndarray:
        """Ids [N] int32."""
        return np.array(labels, np.int32)

    def classes(self, label: int) -> Sequence[int]:
        return (label,)

    def strata(self, labels: Sequence[int]) -> list[Any]:
        return list(labels)

    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        """The softmax of logits [N, C]."""
        wide = np.asarray(outputs, np.float64)
        shares = np.exp(wide - wide.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def decide(self, predicted: np.ndarray, threshold: float | None = None) -> list[int]:
        if threshold is not None and self.has_threshold:
            return [int(row[1] >= threshold) for row in predicted]
        return predicted.argmax(axis=1).tolist()

    def prediction(self, row: Any, label: int) -> Prediction:
        return Prediction(self.names[label], float(row[label]), self._shares(row))


@dataclasses.dataclass(frozen=True)
class SeveralClasses(_Classes):
    """Any number of C classes, or none. A label is a tuple of ids.

    Attributes:
      separator: between the names of several classes, in tables.
    """

    problem: ClassVar[Problem] = "multi_label_classification"
    least: ClassVar[int] = 1
    key: ClassVar[str] = "classes"

    names: tuple[str, ...]
    separator: str = ","

    def __post_init__(self):
        super().__post_init__()
        if not self.separator:
            raise ValueError("the separator between the names of several classes must not be empty")

    @property
    def has_threshold(self) -> bool:
        return True

    def parse(self, text: str) -> tuple[int, ...]:
        return tuple(sorted({self._id(part.strip()) for part in text.split(self.separator) if part.strip()}))

    def show(self, label: Sequence[int]) -> str:
        return self.separator.join(self.names[index] for index in label)

    def array(self, labels: Sequence[Sequence[int]]) -> np.ndarray:
        """[N, C] float32, 0 or 1."""
        multi_hot = np.zeros((len(labels), len(self.names)), np.float32)
        for row, ids in enumerate(labels):
            multi_hot[row, list(ids)] = 1.0
        return multi_hot

    def classes(self, label: Sequence[int]) -> Sequence[int]:
        return label

    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        """The sigmoid of logits [N, C]."""
        return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(outputs, np.float64)))

    def decide(self, predicted: np.ndarray, threshold: float | None = None) -> list[tuple[int, ...]]:
        lowest = 0.5 if threshold is None else threshold
        return [tuple(np.flatnonzero(row >= lowest).tolist()) for row in predicted]

    def prediction(self, row: Any, label: Sequence[int]) -> Prediction:
        probability = float(min((row[index] for index in label), default=1.0 - np.max(row)))
        return Prediction(tuple(self.names[index] for index in label), probability, self._shares(row))


@dataclasses.dataclass(frozen=True)
class Number(Targets):
    """A number, such as a rating or the similarity of a pair. Models predict (label - lowest) / (highest - lowest).

    Attributes:
      lowest, highest: of the training labels, or of the scale.
    """

    problem: ClassVar[Problem] = "regression"
    limited: ClassVar[bool] = True

    lowest: float = dataclasses.field()  # without the base's default
    highest: float

    def __post_init__(self):
        if not -math.inf < self.lowest < self.highest < math.inf:
            raise ValueError(f"a scale needs two different, finite ends, got {self.lowest} and {self.highest}")

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    @property
    def width(self) -> float:  # type: ignore[override]  # of a frozen class
        """The difference between the highest and the lowest label."""
        return self.highest - self.lowest

    def parse(self, text: str) -> float:
        try:
            number = math.nan if "_" in text else float(text)  # Python reads 1_5 as 15
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            remedy = "; write 4.5 for 4,5, and 1234.5 for 1,234.5" if "," in text else ""
            raise ValueError(f"must be a finite number, such as 2.5, got {text.strip()!r}{remedy}")
        return number

    def show(self, label: float) -> str:
        """A label as text, rounded to a millionth of the width."""
        decimals = max(0, 6 - math.ceil(math.log10(self.width)))
        text = f"{label:.{decimals}f}"
        return (text.rstrip("0").rstrip(".") if decimals else text) or "0"

    def array(self, labels: Sequence[float]) -> np.ndarray:
        """[N] float32, from 0 to 1 between the lowest and the highest."""
        return ((np.array(labels, np.float64) - self.lowest) / self.width).astype(np.float32)

    def values(self, labels: Sequence[float]) -> np.ndarray:
        return np.array(labels, np.float64)

    def counts(self, labels: Sequence[float]) -> None:
        del labels

    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        """The outputs [N, 1] on the scale of the labels, clipped to its ends [N]."""
        return self.lowest + self.width * np.clip(np.asarray(outputs, np.float64)[:, 0], 0.0, 1.0)

    def decide(self, predicted: np.ndarray, threshold: float | None = None) -> list[float]:
        del threshold
        return predicted.tolist()

    def prediction(self, row: Any, label: float) -> Prediction:
        return Prediction(float(label), math.nan, {})

    def fields(self, prediction: Prediction) -> list[str]:
        return ["" if prediction.label is None else self.show(prediction.label)]

    def answer(self, prediction: Prediction) -> dict[str, Any]:
        return {"number": None if prediction.label is None else round(prediction.label, 6)}

    def describe(self, labels: Sequence[float]) -> str:
        return f"numbers in training from {self.lowest:g} to {self.highest:g}, mean {np.mean(labels):.3g}"


@dataclasses.dataclass(frozen=True)
class AnyNumber(Number):
    """A number on an unknown scale, such as a pretrained classifier's: the output itself.

    Attributes:
      lowest, highest: 0 and 1, so that outputs are not scaled.
      sigmoid: whether a prediction is the sigmoid of the output, as in some cross-encoders.
    """

    limited: ClassVar[bool] = False

    lowest: float = 0.0
    highest: float = 1.0
    sigmoid: bool = False

    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        """The outputs [N, 1], or their sigmoid [N]."""
        wide = np.asarray(outputs, np.float64)[:, 0]
        return 0.5 * (1.0 + np.tanh(0.5 * wide)) if self.sigmoid else wide


def whole_number(text: str) -> str:
    """1 for 1.0, as tables with missing values write integers; other text stays unchanged, such as 007."""
    match = re.fullmatch(r"(-?(?:0|[1-9][0-9]*))\.0+", text)
    return match[1] if match else text


def targets_from_json(fields: Any) -> Targets:
    """The targets whose `to_json` this is. Raises: ValueError for wrong fields."""
    kinds: dict[str, type[Targets]] = {kind.__name__: kind for kind in (OneClass, SeveralClasses, Number, AnyNumber)}
    values = dict(fields) if isinstance(fields, dict) else {}
    kind = kinds.get(values.pop("kind", ""))
    if kind is not None and {*values} == {field.name for field in dataclasses.fields(kind)}:  # type: ignore[arg-type]
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    raise ValueError(f"targets: expected a kind, {', '.join(kinds)}, and its fields, got {fields!r}")


def of_part(part: str, name: str) -> str:
    """The name of a part's metric or array: `sst/labels`; without a part `labels`."""
    return f"{part}/{name}" if part else name
