"""Files of the splits, and held-out sentences and rows of training files without a validation file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from data import DataConfig, DataError
from data.readers.file_options import TextFiles
from jaxnlp.config import UserPath

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class SplitFiles(TextFiles):
    """The base of data sets whose source may be the user's files, one for each split."""

    source: str = "files"
    """Name of the source; files = files of your own."""
    train: UserPath | None = None
    """Your training file; required for data.source files."""
    validation: UserPath | None = None
    """Your validation file; None = a tenth of the training sentences is held out."""
    test: UserPath | None = None
    """Your test file; None = no test split."""

    def __post_init__(self):
        super().__post_init__()
        own = self.source == "files"
        self.only_if(own, "data.source files", "train", "validation", "test")
        self.format_only_if(own, "data.source files")

    @property
    def needs(self) -> str:
        return {"small_grammar": "", "files": "your sentences"}.get(self.source, self.source)

    def given_files(self) -> dict[str, Path]:
        """The path of each split's given file. Raises: DataError without a training file."""
        if self.train is None:
            raise DataError("data.source files needs your training file: give it with --data.train FILE")
        given = {"train": self.train, "validation": self.validation, "test": self.test}
        return {split: Path(file) for split, file in given.items() if file is not None}

    def check_after(self, earlier: DataConfig) -> None:
        """Raises DataError when an earlier run was trained on sentences of the validation or test split.

        Runs that hold out a tenth of the same file hold out the same sentences.
        """
        if not (isinstance(earlier, type(self)) and self.source == earlier.source == "files" and earlier.train):
            return
        scored = {"validation": self.validation, "test": self.test}
        if self.validation is None and earlier.validation is not None:
            scored["validation"] = self.train
        for split, file in scored.items():
            if file is not None and Path(file).resolve() == Path(earlier.train).resolve():
                raise DataError(
                    f"the earlier run was trained on {file}, which has sentences of the {split} split; give another "
                    f"file with --data.{split}"
                )


def hold_out(sentences: Sequence[T], file: str, what: str = "sentences") -> tuple[list[T], list[T]]:
    """The sentences for training, and a tenth for validation, both in file order.

    The choice depends only on the number of sentences, so that all seeds have the same validation split.

    Args:
      sentences: at least 10.
      file: its name, for messages.
      what: the noun for them.

    Raises: DataError when there are fewer sentences.
    """
    if len(sentences) < 10:
        ends = " (in columns, an empty line ends a sentence)" * (what == "sentences")
        raise DataError(
            f"{file}: expected at least 10 {what}, to hold out a tenth of them, got {len(sentences)}{ends}; give more, "
            "or a validation file with --data.validation FILE"
        )
    chosen = set(np.random.default_rng(0).permutation(len(sentences))[: len(sentences) // 10].tolist())
    train = [one for index, one in enumerate(sentences) if index not in chosen]
    return train, [one for index, one in enumerate(sentences) if index in chosen]


def folds_of(strata: Sequence[Any], folds: int, seed: int) -> list[int]:
    """The fold of each row, from 0. Each stratum is divided about equally between the folds; a stratum's single row has
    fold -1, since a class without a training row cannot be learned."""
    generator, assigned = np.random.default_rng(seed), [-1] * len(strata)
    members: dict[Any, list[int]] = {}
    for row, stratum in enumerate(strata):
        members.setdefault(stratum, []).append(row)
    dealt = 0
    for stratum in sorted(members, key=repr):
        rows = members[stratum]
        if len(rows) > 1:
            for row in generator.permutation(rows):
                assigned[row], dealt = dealt % folds, dealt + 1
    return assigned


def held_out_note(held_out: int, total: int, file: str) -> str:
    """A line for the user. Args: the numbers of held-out and of all sentences, and the name of the file."""
    sentences = f"{held_out:,} of the {total:,} sentences of {file}"
    return f"held out for validation: {sentences}, because --data.validation is not given"
