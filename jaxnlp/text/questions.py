"""Questions and their answers."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Question:
    """A question and its answer; None = not known."""

    text: str
    answer: str | None = None
