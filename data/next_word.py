"""The fixtures of CMU's homework: windows of words with the word that follows each, and prompts to continue.

Source: CMU 11-785, homework 4 part 1.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
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


class LazySplits(Mapping[str, Split]):
    """Splits by name; some are read when they are first used."""

    def __init__(self, splits: Mapping[str, Split], readers: Mapping[str, Callable[[], Split]]):
        """Args: splits: the splits that are already read. readers: functions that read the others."""
        self._splits, self._readers = dict(splits), dict(readers)

    def __getitem__(self, name: str) -> Split:
        if name in self._readers:
            self._splits[name] = self._readers.pop(name)()
        return self._splits[name]

    def __contains__(self, name: object) -> bool:
        return name in self._splits or name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter((*self._splits, *self._readers))

    def __len__(self) -> int:
        return len(self._splits) + len(self._readers)


def fixture_splits(splits: Mapping[str, Split], path: str | None, vocabulary: Vocabulary) -> Mapping[str, Split]:
    """The splits, and those of the fixtures in the folder of the homework's data.

    Args:
      splits: of the text.
      path: folder of the homework's data; None = in $JAXNLP_DATA.
      vocabulary: of the homework.
    """
    folder = locate_folder(FOLDERS["cmu_hw4p1"], path, holds="the homework's files", otherwise=OTHERWISE) / "fixtures"
    readers: dict[str, Callable[[Path, int], Split]] = {
        "prediction": read_prediction_fixture,
        "generation": read_prompts,
    }
    return LazySplits(
        splits,
        {
            name: functools.partial(readers[name], folder / file, vocabulary.size)
            for name, file in FIXTURES.items()
            if (folder / file).is_file()
        },
    )


def read_fixture(path: Path, vocabulary_size: int) -> Split | None:
    """Windows of a `.npz` file or prompts of a `.npy` file; None for files with another ending."""
    if path.name.endswith(".npz"):
        return read_prediction_fixture(path, vocabulary_size)
    if path.name.endswith((".npy", ".npy.gz")):
        return read_prompts(path, vocabulary_size)
    return None


def read_prediction_fixture(path: Path, vocabulary_size: int) -> Split[NextWordWindow]:
    """Windows and the words that follow them: the arrays `inp` [N, T] and `out` [N] of a `.npz` file.

    Returns:
      N examples, without batches.

    Raises:
      FileNotFoundError: when the file does not exist.
      DataError: when an array is missing, or is not ids of words in these shapes; names the array and its contents.
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
    """Prompts of equal length, from a `.npy` file of ids [N, T].

    Returns:
      N examples [T] int32, without batches and without targets.

    Raises: as `read_prediction_fixture`.
    """
    try:
        prompts = read_array(path)
    except DataError as error:
        raise DataError(f"{error}; expected a .npy file of prompts: the ids of words [N, T]") from error
    return Split(examples=tuple(checked_ids(prompts, f"{path}: prompts", vocabulary_size, axes="NT")), scored=False)
