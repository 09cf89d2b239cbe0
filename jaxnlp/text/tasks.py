"""What can be asked of a text, or of two."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class TextTask:
    """A question with a number for its answer.

    Attributes:
      name: of the task.
      kind: which class a text is of; whether two texts mean the same; or how much they do.
      labels: classification: how many classes, numbered from 0. Paraphrase: 2, 1 = the same. Similarity: the highest
        score; 0 is the lowest.
    """

    name: str
    kind: Literal["classification", "paraphrase", "similarity"]
    labels: int

    @property
    def texts(self) -> int:
        """How many it is about."""
        return 1 if self.kind == "classification" else 2

    def expected(self) -> str:
        """Its labels, in words."""
        if self.kind == "similarity":
            return f"a number from 0 to {self.labels}"
        return f"a whole number from 0 to {self.labels - 1}"

    def admits(self, label: float) -> bool:
        """Whether it is one of the task's labels."""
        if self.kind == "similarity":
            return 0.0 <= label <= self.labels
        return label in range(self.labels)


TaskName = Literal["sst", "cfimdb", "quora", "sts"]
TASKS: dict[str, TextTask] = {
    task.name: task
    for task in (
        TextTask("sst", "classification", 5),
        TextTask("cfimdb", "classification", 2),
        TextTask("quora", "paraphrase", 2),
        TextTask("sts", "similarity", 5),
    )
}
"""Those of CS224N's default project: sentiment in five steps and in two, questions asked twice, and likeness."""
