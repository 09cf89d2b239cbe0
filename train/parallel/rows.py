"""The rows of a batch, padded and split so that devices share them."""

from collections.abc import Mapping

import numpy as np


def pad_rows(batch: Mapping[str, np.ndarray], multiple: int, *, axis: int = 0) -> dict[str, np.ndarray]:
    """Appends zero rows until the number of rows is a multiple; `loss_mask` is False there, so no loss counts them."""
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
