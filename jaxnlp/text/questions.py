"""Questions and their answers."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Question:
    """A question and its answer; None where the answer is not known."""

    text: str
    answer: str | None = None
