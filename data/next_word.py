"""The fixtures of CMU's homework: windows of words with the next word of each, and prompts to continue.

Source: CMU 11-785, homework 4 part 1.
"""

from pathlib import Path

import numpy as np

from data import DataError, Split
from data.download import locate_folder
from data.readers.articles import FOLDERS, OTHERWISE, checked_ids
from data.readers.object_arrays import read_array, read_arrays
from jaxnlp.text.vocabulary import Vocabulary
from jaxnlp.text.windows import NextWordWindow

FIXTURES = {"prediction": "prediction.npz", "generation": "generation.npy"}
"""The splits and their files in the folder `fixtures` of the homework."""


def fixture_splits(path: str | None, vocabulary: Vocabulary) -> dict[str, Split]:
    """The splits of the fixtures in the folder of the homework's data, as far as their files exist.

    Args:
      path: folder of the homework's data; None = in $JAXNLP_DATA.
      vocabulary: of the homework.

    Raises: as `read_prediction_fixture`.
    """
    folder = locate_folder(FOLDERS["cmu_hw4p1"], path, holds="the homework's files", otherwise=OTHERWISE) / "fixtures"
    files = {name: folder / file for name, file in FIXTURES.items()}
    read = {name: read_fixture(file, vocabulary.size) for name, file in files.items() if file.is_file()}
    return {name: split for name, split in read.items() if split is not None}


def read_fixture(path: Path, vocabulary_size: int) -> Split | None:
    """Windows of a `.npz` file or prompts of a `.npy` file; None for files with another ending."""
    if path.name.endswith(".npz"):
        return read_prediction_fixture(path, vocabulary_size)
    if path.name.endswith((".npy", ".npy.gz")):
        return read_prompts(path, vocabulary_size)
    return None


def read_prediction_fixture(path: Path, vocabulary_size: int) -> Split[NextWordWindow]:
    """N windows and the next word of each, without batches: the arrays `inp` [N, T] and `out` [N] of a `.npz` file.

    Raises:
      FileNotFoundError: when the file does not exist.
      DataError: naming an array that is missing, or is not ids of words in these shapes.
    """
    arrays = read_arrays(path, ["inp", "out"])
    inputs = checked_ids(arrays["inp"], f"{path}: inp", vocabulary_size, axes="NT")
    targets = checked_ids(arrays["out"], f"{path}: out", vocabulary_size)
    if len(inputs) != len(targets):
        raise DataError(
            f"{path}: inp has {len(inputs)} windows, but out has {len(targets)} words; expected equal numbers"
        )
    return Split(examples=tuple(map(NextWordWindow, inputs, targets.tolist())))


def read_prompts(path: Path, vocabulary_size: int) -> Split[np.ndarray]:
    """N prompts of equal length [T] int32, without batches and targets, from a `.npy` file of ids [N, T].

    Raises: as `read_prediction_fixture`.
    """
    try:
        prompts = read_array(path)
    except DataError as error:
        raise DataError(f"{error}; expected a .npy file of prompts: the ids of words [N, T]") from error
    return Split(examples=tuple(checked_ids(prompts, f"{path}: prompts", vocabulary_size, axes="NT")), scored=False)
