"""Metrics as (sum, count) pairs, so that an average over batches of different size is exact."""

from collections.abc import Iterable

import jax
import numpy as np

from jaxnlp.typing import Metrics


def total(metrics: Iterable[Metrics]) -> Metrics:
    """Adds up the sums and the counts, name by name.

    Raises:
      ValueError: when there is nothing to add up.
    """
    collected = list(metrics)
    if not collected:
        raise ValueError("no metrics to add up: the data set gave no batch")
    return jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *collected)


def means(metrics: Metrics) -> dict[str, float]:
    """Sum / count as Python floats; copies from the device, so call it only to log. A count of 0 gives NaN."""
    host = jax.device_get(metrics)
    return {name: float(np.float64(s) / np.float64(n)) if n else float("nan") for name, (s, n) in host.items()}
