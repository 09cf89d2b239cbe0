"""Held-out sentences and rows of training files without a validation file."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from data import DataError

T = TypeVar("T")


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
    fold -1, which is never held out."""
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


def with_training_rows(folds: Sequence[int], classes: Sequence[Sequence[int]]) -> list[int]:
    """The folds of rows, by which each class has a training row, since it cannot be learned without one.

    If all rows of a class have the same fold, the first of them gets fold -1. Args: classes: of each row.
    """
    kept, rows_of = list(folds), dict[int, list[int]]()
    for row, ids in enumerate(classes):
        for one in ids:
            rows_of.setdefault(one, []).append(row)
    for rows in rows_of.values():
        if len({kept[row] for row in rows}) == 1:
            kept[rows[0]] = -1
    return kept


def held_out_note(held_out: int, total: int, file: str) -> str:
    """A line for the user. Args: the numbers of held-out and of all sentences, and the name of the file."""
    sentences = f"{held_out:,} of the {total:,} sentences of {file}"
    return f"held out for validation: {sentences}, because --data.validation is not given"
