"""Texts with labels, and the description of a data set's labels."""

import dataclasses
import math
from typing import Any, Literal, Self, get_args

LabelKind = Literal["classification", "paraphrase", "similarity"]
MOST_NAMES = 10
"""Maximum number of class names in a message."""
TEXTS_PER_EXAMPLE = {1: "one text per example", 2: "two texts per example"}
"""The number of texts of an example, in messages."""


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts, and its label.

    Attributes:
      id: its name in predictions.
      text: the text.
      pair: the second text; None = examples are not pairs.
      label: the id of its class, or its similarity; None = not known.
    """

    id: str
    text: str
    pair: str | None
    label: float | None


@dataclasses.dataclass(frozen=True)
class Labels:
    """Description of the labels of a data set.

    Attributes:
      kind: the class of a text or of a pair; whether two texts mean the same; or how similar they are.
      texts: 1, or 2 for pairs.
      names: of the classes, in the order of their ids; ("0", "1") for paraphrase, 1 = the same; () for similarity.
      highest: the highest similarity of the scale, which starts at 0; 0 for the other kinds.
    """

    kind: LabelKind
    texts: int
    names: tuple[str, ...] = ()
    highest: float = 0.0

    def __post_init__(self):
        if self.kind not in get_args(LabelKind):
            raise ValueError(f"labels: kind must be one of {', '.join(get_args(LabelKind))}, got {self.kind!r}")
        if self.texts not in ((1, 2) if self.kind == "classification" else (2,)):
            raise ValueError(f"labels: a {self.kind} of {self.texts!r} texts; texts must be 2, or 1 for classification")
        if not all(isinstance(name, str) for name in self.names) or len(set(self.names)) != len(self.names):
            raise ValueError(f"labels: names must be distinct strings, got {self.names!r}")
        if self.kind == "similarity":
            if self.names or not 0.0 < self.highest < math.inf:
                raise ValueError(
                    f"labels: a similarity needs no names and a positive highest, got {self.names} and {self.highest}"
                )
            return
        if self.highest:
            raise ValueError(f"labels: highest applies only to similarity; it must be 0, got {self.highest}")
        if self.kind == "paraphrase" and self.names != ("0", "1"):
            raise ValueError(f"labels: the names of a paraphrase must be 0 and 1, got {self.names}")
        if len(self.names) < 2:
            raise ValueError(f"labels: a classification needs at least two classes, got {self.names}")

    def expected(self) -> str:
        """The labels, in words."""
        if self.kind == "similarity":
            return f"a number from 0 to {self.highest:g}"
        if self.names == tuple(map(str, range(len(self.names)))):
            return f"a whole number from 0 to {len(self.names) - 1}"
        more = f" and {len(self.names) - MOST_NAMES} more" if len(self.names) > MOST_NAMES else ""
        return f"one of {', '.join(self.names[:MOST_NAMES])}{more}"

    def admits(self, label: float) -> bool:
        """Whether a number is the id of a class, or a similarity on the scale."""
        if self.kind == "similarity":
            return 0.0 <= label <= self.highest
        return label in range(len(self.names))

    def parse(self, text: str) -> float:
        """The id of a class by its name, or a similarity. Classes named by whole numbers may be written as 1.0.

        Raises: ValueError: "must be ..., got ...", for a text that is not a label.
        """
        text = text.strip()
        if self.kind != "similarity" and text in self.names:
            return float(self.names.index(text))
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if self.kind == "similarity":
            if self.admits(number):
                return number
        elif number.is_integer() and str(int(number)) in self.names:
            return float(self.names.index(str(int(number))))
        raise ValueError(f"must be {self.expected()}, got {text!r}")

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return dataclasses.asdict(self) | {"names": list(self.names)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The labels whose `to_json` this is. Raises: ValueError naming the wrong field."""
        try:
            kind, texts, names, highest = (fields[name] for name in ("kind", "texts", "names", "highest"))
        except (KeyError, TypeError) as error:
            raise ValueError(f"labels: expected kind, texts, names and highest, got {fields!r}") from error
        if not isinstance(names, list) or isinstance(highest, bool) or not isinstance(highest, int | float):
            raise ValueError(f"labels: expected a list of names and a number highest, got {names!r} and {highest!r}")
        return cls(kind, texts, tuple(names), float(highest))
