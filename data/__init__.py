"""Data sets and pipelines with NumPy, grain and jaxnlp.text. Does not use jax."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from jaxnlp.config import Config
from jaxnlp.corpus import Corpus, DataError, NumpyBatch, Split

__all__ = ["Corpus", "DataConfig", "DataError", "NumpyBatch", "Split", "refuse_path", "require_processor"]

P = TypeVar("P")


@dataclasses.dataclass(frozen=True)
class DataConfig(Config):
    """The base of every data set's config. Its properties are the facts of `jaxnlp.corpus.DataFacts`."""

    section: ClassVar[str] = "data"

    batch_size: int = 32
    """Number of examples in a training step, over all devices."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "batch_size")

    @property
    def usual(self) -> tuple[str, ...]:
        return ("source", "path", "batch_size")

    @property
    def max_length(self) -> int | None:
        """Maximum length of an input in a batch, length jitter included; None = inputs have no length."""
        return None

    @property
    def needs(self) -> str:
        """The data that `load` needs: the name of a folder in JAXNLP_DATA, or "your ..."; "" = nothing."""
        return ""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the data's parts; () = one part without a name."""
        return ()

    @property
    def together(self) -> bool:
        """Whether a training step takes a batch of each part."""
        return False

    @property
    def carries(self) -> bool:
        """Whether a row of a training batch continues where the same row of the previous batch ended; batches then have
        `reset`."""
        return False

    def check_steps(self, total_steps: int) -> None:
        """Raises ValueError when a run of this many steps would never reach some of the data."""

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Loads the data set.

        Args:
          seed: decides the order of training, at least 0.
          processor: of a pretrained model, or of the run in `init_from`; None = the data set makes its own.

        Raises:
          FileNotFoundError, DataError: when the data cannot be found or read, or does not fit the processor.
        """
        raise TypeError(f"{type(self).__name__} cannot be loaded: it does not define load()")

    def check_after(self, earlier: "DataConfig") -> None:
        """Raises DataError when the validation data of this run was training data of the run in `init_from`."""

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a file in the data set's format, for scoring. Raises: FileNotFoundError, DataError."""
        del processor
        raise DataError(f"{path}: this run's data, {type(self).__name__}, does not read files; score one of its splits")

    def require_at_least(self, least: float, *names: str) -> None:
        """Raises ValueError for a field that is smaller."""
        for name in names:
            if not getattr(self, name) >= least:
                raise ValueError(f"{self.full_name(name)} must be at least {least}, got {getattr(self, name)}")


def refuse_path(source: str, path: object, otherwise: str) -> None:
    """Raises DataError for a path that is given with a source that reads none; `otherwise` is the remedy."""
    if path is not None:
        raise DataError(f"data.source {source} takes no path, got {path}; {otherwise}")


def require_processor(processor: Any, kind: type[P]) -> P:
    """The processor. Raises: DataError when it has another type than the data set needs."""
    if not isinstance(processor, kind):
        raise DataError(
            f"this data set needs a {kind.__name__}, got a {type(processor).__name__}; use a model that was trained on "
            "the same kind of data"
        )
    return processor
