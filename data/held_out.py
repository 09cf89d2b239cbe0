"""Held-out sentences, for training files without a validation file."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from data import DataError

T = TypeVar("T")


def hold_out(sentences: Sequence[T], file: str) -> tuple[list[T], list[T]]:
    """The sentences for training, and a tenth of all for validation, both in their order in the file.

    The choice depends only on the number of sentences, so that runs with several seeds have the same validation split.

    Args:
      sentences: at least 10.
      file: its name, for messages.

    Raises: DataError when there are fewer sentences.
    """
    if len(sentences) < 10:
        raise DataError(
            f"{file}: {len(sentences)} sentences are too few to hold out a tenth of them; give more, or a validation "
            "file with --data.validation FILE"
        )
    chosen = set(np.random.default_rng(0).permutation(len(sentences))[: len(sentences) // 10].tolist())
    train = [one for place, one in enumerate(sentences) if place not in chosen]
    return train, [one for place, one in enumerate(sentences) if place in chosen]


def held_out_note(held_out: int, total: int, file: str) -> str:
    """A line for the user. Args: the numbers of held-out sentences and of all sentences, and the name of the file."""
    sentences = f"{held_out:,} of the {total:,} sentences of {file}"
    return f"held out for validation: {sentences}, because --data.validation is not given"
