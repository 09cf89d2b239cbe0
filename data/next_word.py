"""The homework's fixtures: windows of words with the word that follows each, and prompts to continue.

Source: CMU 11-785, homework 4 part 1.
"""

from pathlib import Path

import numpy as np

from data import DataError
from data.articles import checked_ids
from data.object_arrays import read_array, read_arrays


def read_prediction_fixture(path: Path, vocabulary_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows [N, T] int32 and the words that follow them [N] int32: the arrays `inp` and `out` of a `.npz` file.

    Raises:
      FileNotFoundError: when there is no such file.
      DataError: when an array is missing, or does not hold ids of words in such shapes; says which, and what it holds.
    """
    arrays = read_arrays(path, ["inp", "out"])
    inputs = checked_ids(arrays["inp"], f"{path}: inp", vocabulary_size, axes="NT")
    targets = checked_ids(arrays["out"], f"{path}: out", vocabulary_size)
    if len(inputs) != len(targets):
        raise DataError(f"{path}: inp holds {len(inputs)} windows, but out {len(targets)} words; expected as many")
    return inputs, targets


def read_prompts(path: Path, vocabulary_size: int) -> np.ndarray:
    """Prompts of equal length [N, T] int32 from a `.npy` file. Raises: as `read_prediction_fixture`."""
    return checked_ids(read_array(path), f"{path}: prompts", vocabulary_size, axes="NT")
