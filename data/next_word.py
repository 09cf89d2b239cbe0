"""The homework's fixtures: windows of words with the word that follows each, and prompts to continue.

Source: CMU 11-785, homework 4 part 1.
"""

from pathlib import Path

import numpy as np

from data import DataConfig, DataError
from data.articles import FOLDERS, checked_ids
from data.download import locate_folder
from data.object_arrays import read_array, read_arrays


def locate_fixture(config: DataConfig, name: str) -> Path:
    """The homework's fixture of that name, for a run on WikiText-2's words, whose ids the homework's are.

    Args:
      config: of the run's data.
      name: `prediction.npz` or `generation.npy`.

    Raises:
      DataError: when the run is on other words.
      FileNotFoundError: when the homework's data is nowhere; the message says what to do.
    """
    source = getattr(config, "source", None)
    if source not in FOLDERS:
        raise DataError(
            f"the homework's {name} holds ids of WikiText-2's words, and the run is on {source}: give --file"
        )
    path = getattr(config, "path", None) if source == "cmu_hw4p1" else None
    holds = "the homework's fixtures/prediction.npz and fixtures/generation.npy"
    return locate_folder(FOLDERS["cmu_hw4p1"], path, holds=holds, otherwise="give --file") / "fixtures" / name


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
