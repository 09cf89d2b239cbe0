"""Questions and their answers."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked, and the answer; None where it is not known."""

    text: str
    answer: str | None = None
