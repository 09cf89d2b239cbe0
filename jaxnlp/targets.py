"""Targets of classifiers: one class, any number of classes, or a number per example. Does not use jax."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_NAMES = 10
"""Maximum number of class names in a message."""


@dataclasses.dataclass(frozen=True)
class Classes:
    """The C classes of a data set. A label is the id of a class, or with `several` a tuple of ids.

    Attributes:
      names: of the classes, in the order of their ids.
      several: whether an example has any number of classes, also none, instead of exactly one.
      separator: between the names of several classes, in tables.
    """

    names: tuple[str, ...]
    several: bool = False
    separator: str = ","

    def __post_init__(self):
        least = 1 if self.several else 2
        if len(self.names) < least or len(set(self.names)) != len(self.names):
            raise ValueError(f"expected at least {least} classes with distinct names, got {', '.join(self.names)}")
        if self.several and not self.separator:
            raise ValueError("the separator between the names of several classes must not be empty")

    @property
    def outputs(self) -> int:
        """Number of a model's outputs: a logit for each class."""
        return len(self.names)

    @property
    def one_class(self) -> bool:
        """Whether an example has exactly one class."""
        return not self.several

    @property
    def has_threshold(self) -> bool:
        """Whether a probability threshold applies: to each of several classes, or to the second of two."""
        return self.several or len(self.names) == 2

    def shown_names(self) -> str:
        """The names of the classes; of many classes only the first ten."""
        more = f" and {len(self.names) - MOST_NAMES} more" if len(self.names) > MOST_NAMES else ""
        return f"{', '.join(self.names[:MOST_NAMES])}{more}"

    def parse(self, text: str) -> Any:
        """The label in a field of a table. Classes whose names are whole numbers may be written as 1.0.

        Raises: ValueError for an unknown class.
        """
        parts = [part.strip() for part in text.split(self.separator)] if self.several else [text.strip()]
        ids = [self._id(part) for part in parts if part or not self.several]
        return tuple(sorted(set(ids))) if self.several else ids[0]

    def _id(self, name: str) -> int:
        for known in (name, whole_number(name)):
            if known in self.names:
                return self.names.index(known)
        raise ValueError(f"must be one of {self.shown_names()}, got {name!r}")

    def show(self, label: Any) -> str:
        """The names of a label's classes."""
        return self.separator.join(self.names[number] for number in label) if self.several else self.names[label]

    def array(self, labels: Sequence[Any]) -> np.ndarray:
        """Labels as the array of a batch: ids [B] int32; for several classes [B, C] float32, 0 or 1."""
        if not self.several:
            return np.array(labels, np.int32)
        found = np.zeros((len(labels), len(self.names)), np.float32)
        for row, ids in enumerate(labels):
            found[row, list(ids)] = 1.0
        return found

    def counts(self, labels: Sequence[Any]) -> np.ndarray:
        """Number of examples of each class [C] int."""
        ids = [number for label in labels for number in label] if self.several else list(labels)
        return np.bincount(np.array(ids, int), minlength=len(self.names))

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {"names": list(self.names), "several": self.several, "separator": self.separator}


def whole_number(text: str) -> str:
    """1 for 1.0, as tables have whole numbers where some are missing; other text is returned as it is, such as 007."""
    found = re.fullmatch(r"(-?(?:0|[1-9][0-9]*))\.0+", text)
    return found[1] if found else text


@dataclasses.dataclass(frozen=True)
class Scale:
    """Numbers, such as ratings. A label is a float. Models predict (label - lowest) / (highest - lowest).

    Attributes:
      lowest: of the training labels.
      highest: of the training labels.
    """

    lowest: float
    highest: float

    def __post_init__(self):
        if not -math.inf < self.lowest < self.highest < math.inf:
            raise ValueError(f"a scale needs two different, finite ends, got {self.lowest} and {self.highest}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of classes: none."""
        return ()

    @property
    def outputs(self) -> int:
        """Number of a model's outputs: one."""
        return 1

    @property
    def one_class(self) -> bool:
        """Whether an example has exactly one class: no."""
        return False

    @property
    def has_threshold(self) -> bool:
        """Whether a probability threshold applies: no."""
        return False

    @property
    def width(self) -> float:
        """The difference between the highest and the lowest label."""
        return self.highest - self.lowest

    def parse(self, text: str) -> float:
        """The number in a field of a table. Raises: ValueError if it is not a finite number."""
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"must be a finite number, got {text.strip()!r}")
        return number

    def show(self, label: float) -> str:
        """A label as text, rounded to a millionth of the width."""
        decimals = max(0, 6 - math.ceil(math.log10(self.width)))
        text = f"{label:.{decimals}f}"
        return (text.rstrip("0").rstrip(".") if decimals else text) or "0"

    def array(self, labels: Sequence[float]) -> np.ndarray:
        """Labels as the array of a batch [B] float32, from 0 to 1 between the lowest and the highest."""
        return ((np.array(labels, np.float64) - self.lowest) / self.width).astype(np.float32)

    def unscaled(self, outputs: np.ndarray) -> np.ndarray:
        """A model's outputs [...] on the scale of the labels, clipped to its ends."""
        return self.lowest + self.width * np.clip(outputs, 0.0, 1.0)

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {"lowest": self.lowest, "highest": self.highest}


Targets = Classes | Scale


def targets_from_json(fields: Any) -> Targets:
    """The targets whose `to_json` this is. Raises: ValueError for wrong fields."""
    try:
        if "names" in fields:
            return Classes(tuple(map(str, fields["names"])), bool(fields["several"]), str(fields["separator"]))
        return Scale(float(fields["lowest"]), float(fields["highest"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"targets: expected names of classes, or the ends of a scale, got {fields!r}") from error
