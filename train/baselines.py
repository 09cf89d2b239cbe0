"""`python -m train.baselines london`: what a model must beat: one answer to every question."""

import dataclasses
import sys
from collections import Counter
from typing import Any, Literal

import tyro

from data import DataError
from data.names import NamesQuestions
from train.evaluation import exact_match


@dataclasses.dataclass(frozen=True)
class London:
    """Answers every birth-place question with one place."""

    data: NamesQuestions = dataclasses.field(default_factory=NamesQuestions)
    split: Literal["validation", "dev"] = "dev"
    """The questions to answer."""
    place: str | None = "London"
    """The answer; None = the place that the training questions have most often."""


def london(command: London) -> tuple[str, float, int]:
    """The answer given, the share of questions it is right for, and how many there are."""
    corpus = command.data.load(seed=0)
    questions = corpus.split(command.split).questions
    place = command.place
    if place is None:
        place = Counter(question.answer for question in corpus.split("train").questions).most_common(1)[0][0]
    return str(place), exact_match([str(place)] * len(questions), questions), len(questions)


COMMANDS = {"london": London}


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 2 a wrong command."""
    types: Any = COMMANDS
    try:
        command = tyro.extras.subcommand_cli_from_dict(types, prog="python -m train.baselines", args=arguments)
        place, share, questions = london(command)
    except (DataError, FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{command.split} exact_match {share:.4f}  ({questions:,} questions, each answered with {place!r})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
