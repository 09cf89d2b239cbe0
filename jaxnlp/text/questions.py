"""Questions and their answers."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Question:
    """A question and its answer; None = the answer is not known."""

    text: str
    answer: str | None = None
