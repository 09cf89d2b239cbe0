"""Data sets and pipelines: NumPy, grain and jaxnlp.text; no jax."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import grain
import numpy as np

from jaxnlp.text.characters import CharacterVocabulary


class DataError(ValueError):
    """Data that cannot be read or does not suffice; the message says what, where and what to do."""


NumpyBatch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What a training run needs of a data set.

    Attributes:
      train: batches without end, of static shapes, in an order that the seed alone decides.
      evaluation: a data set of batches for each split that can be scored; a last batch that is not full is padded,
        and its `loss_mask` is False there.
      vocabulary: what the token ids mean.
      description: one line for the person who starts the run.
      fingerprint: changes when the data changes; a run continues on the same data alone.
    """

    train: grain.IterDataset
    evaluation: dict[str, grain.MapDataset]
    vocabulary: CharacterVocabulary
    description: str
    fingerprint: str

    def batches(self, split: str) -> Iterator[NumpyBatch]:
        """One pass over a split that can be scored. Raises: DataError naming the splits there are."""
        if split not in self.evaluation:
            raise DataError(f"no split {split!r}; this data set has: {', '.join(self.evaluation)}")
        return iter(self.evaluation[split])


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What every data set's config is."""

    batch_size: int = 32
    """Examples in a training step, over all devices."""

    def load(self, seed: int) -> Corpus:
        """The data set, its training order decided by the seed."""
        raise TypeError(f"{type(self).__name__} describes no data set: it does not define load()")

    def read_file(self, path: Path, vocabulary: CharacterVocabulary) -> Iterator[NumpyBatch]:
        """One pass over a file in the data set's format, to be scored."""
        raise TypeError(f"{type(self).__name__} cannot score a file: it does not define read_file()")
