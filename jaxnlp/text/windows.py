"""Examples of CMU 11-785's homework 4: next-word prediction."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class NextWordWindow:
    """A window of words and the word that follows it.

    Attributes:
      inputs: ids of the words [T] int32.
      target: id of the following word.
    """

    inputs: np.ndarray
    target: int
