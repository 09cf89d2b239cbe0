"""The homework's fixtures: windows of words with the word that follows each, and prompts to continue.

Source: CMU 11-785, homework 4 part 1.
"""

from pathlib import Path

import numpy as np

from data import DataConfig, DataError
from data.articles import FOLDERS, checked_ids, read_homework_vocabulary
from data.download import locate_folder
from data.object_arrays import read_array, read_arrays
from jaxnlp.text.vocabulary import Vocabulary


def locate_fixture(config: DataConfig, vocabulary: Vocabulary, name: str) -> Path:
    """The homework's fixture of that name, for a run on the homework's words, which are WikiText-2's.

    Args:
      config: of the run's data.
      vocabulary: the run's, which must be the one that the fixture's ids are of.
      name: `prediction.npz` or `generation.npy`.

    Raises:
      DataError: when the run is on other words.
      FileNotFoundError: when the homework's data is nowhere; the message says what to do.
    """
    path = getattr(config, "path", None) if getattr(config, "source", None) == "cmu_hw4p1" else None
    holds = "the homework's dataset/vocab.npy, fixtures/prediction.npz and fixtures/generation.npy"
    folder = locate_folder(FOLDERS["cmu_hw4p1"], path, holds=holds, otherwise="give --file")
    if read_homework_vocabulary(folder) != vocabulary:
        raise DataError(
            f"the homework's {name} holds ids of the words in {folder / 'dataset'}, and the run's words are others: "
            f"give --file"
        )
    return folder / "fixtures" / name


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
    """Prompts of equal length [N, T] int32 from a `.npy` file of ids. Raises: as `read_prediction_fixture`."""
    try:
        prompts = read_array(path)
    except DataError as error:
        raise DataError(f"{error}; expected a .npy file of prompts: the ids of words [N, T]") from error
    return checked_ids(prompts, f"{path}: prompts", vocabulary_size, axes="NT")
