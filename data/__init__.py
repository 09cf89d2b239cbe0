"""Data sets and pipelines with NumPy, grain and jaxnlp.text. Does not use jax."""

import textwrap
from collections.abc import Mapping
from typing import Any, TypeVar

from jaxnlp.corpus import Corpus, DataConfig, DataError, LazyBatch, NumpyBatch, Split, errors_as

__all__ = [
    "Corpus",
    "DataConfig",
    "DataError",
    "LazyBatch",
    "NumpyBatch",
    "Split",
    "errors_as",
    "refuse_path",
    "require_batch",
    "require_processor",
    "require_same_options",
    "short_reason",
]

P = TypeVar("P")


def refuse_path(source: str, path: object, otherwise: str) -> None:
    """Raises DataError for a path with a source that reads none; `otherwise` is the remedy."""
    if path is not None:
        raise DataError(f"data.source {source} takes no path, got {path}; {otherwise}")


def require_batch(count: int, batch_size: int, what: str) -> None:
    """Raises DataError for fewer training examples than a batch; `what` is their noun."""
    if count < batch_size:
        raise DataError(
            f"--data.batch-size {batch_size} exceeds the number of training {what}, {count}; give {count} or less"
        )


def require_processor(processor: Any, kind: type[P]) -> P:
    """The processor. Raises: DataError when it has another type than the data set needs."""
    if not isinstance(processor, kind):
        raise DataError(
            f"this data set needs the class {kind.__name__}, got {type(processor).__name__}; use a model that was "
            "trained on the same kind of data"
        )
    return processor


def require_same_options(earlier: Any, options: Mapping[str, Any], fields: Mapping[str, str] | None = None) -> None:
    """Raises DataError naming the first option that has another value in an earlier run.

    Args:
      earlier: has the earlier run's options as attributes.
      options: the new run's values, by attribute.
      fields: names of fields of `data` that differ from their attributes.
    """
    for name, value in options.items():
        before = getattr(earlier, name)
        if before != value:
            field = (fields or {}).get(name, name)
            raise DataError(f"data.{field} is {value}, but {before} in the earlier run; set it to {before}")


def short_reason(error: Exception) -> str:
    """An error in one short line."""
    return textwrap.shorten(str(error) or type(error).__name__, width=240, placeholder=" ...")
