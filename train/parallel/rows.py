"""The rows of a batch, padded and split so that devices share them."""

from collections.abc import Mapping

import numpy as np

from jaxnlp.corpus import LazyBatch


def pad_rows(batch: Mapping[str, np.ndarray], multiple: int, *, axis: int = 0) -> dict[str, np.ndarray]:
    """Appends zero rows, with `loss_mask` False, until the number of rows is a multiple."""
    if "loss_mask" not in batch:
        raise ValueError(f"a batch needs a loss_mask that excludes padding; it has only {', '.join(batch)}")
    missing = -batch["loss_mask"].shape[axis] % multiple
    if not missing:
        return dict(batch)
    widths = [(0, 0)] * axis + [(0, missing)]
    return {name: np.pad(x, widths + [(0, 0)] * (x.ndim - axis - 1)) for name, x in batch.items()}


def split_rows(batch: Mapping[str, np.ndarray], parts: int) -> dict[str, np.ndarray]:
    """[A * B, ...] as [A, B, ...]: part a has the B rows from row a * B."""
    return {name: x.reshape(parts, len(x) // parts, *x.shape[1:]) for name, x in batch.items()}


def accumulation_parts(batch: Mapping[str, np.ndarray], parts: int, devices: int) -> dict[str, np.ndarray]:
    """The batch as [A, B, ...], B a multiple of the devices. The examples of a part do not depend on the devices."""
    return pad_rows(split_rows(pad_rows(batch, parts), parts), devices, axis=1)


def places(batch: Mapping[str, np.ndarray], parts: int, devices: int) -> np.ndarray:
    """The row at each position of a padded batch [B], or of one in several parts [A, B]; -1 = padding."""
    size = batch.size if isinstance(batch, LazyBatch) else len(batch["loss_mask"])
    numbers = {"loss_mask": np.arange(1, size + 1)}
    padded = pad_rows(numbers, devices) if parts == 1 else accumulation_parts(numbers, parts, devices)
    return padded["loss_mask"] - 1


def rows_at(batch: Mapping[str, np.ndarray], places: np.ndarray) -> dict[str, np.ndarray]:
    """The rows at some `places` [...], with zeros at padding; a lazy batch makes only these.

    If all are padding, one row is made, for the shapes.
    """
    found, rows = {}, places[places >= 0]
    made = batch.rows if isinstance(batch, LazyBatch) else lambda rows: {name: x[rows] for name, x in batch.items()}
    for name, x in made(rows if len(rows) else np.zeros(1, int)).items():
        found[name] = np.zeros((*places.shape, *x.shape[1:]), x.dtype)
        found[name][places >= 0] = x[: len(rows)]
    return found
