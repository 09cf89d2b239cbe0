"""Metrics as (sum, count) pairs, so that an average over batches of different size is exact."""

from collections.abc import Iterable

import jax
import numpy as np

from jaxnlp.typing import Metrics


def total(metrics: Iterable[Metrics]) -> Metrics:
    """Adds up the sums and the counts, name by name; where batches are of several tasks, a name need not be in all.

    Raises:
      ValueError: when there is nothing to add up.
    """
    summed: Metrics = {}
    for found in metrics:
        for name, (value, count) in found.items():
            before = summed.get(name)
            summed[name] = (value, count) if before is None else (before[0] + value, before[1] + count)
    if not summed:
        raise ValueError("no metrics to add up: the data set gave no batch")
    return dict(sorted(summed.items()))


def means(metrics: Metrics) -> dict[str, float]:
    """Sum / count as Python floats; copies from the device, so call it only to log. A count of 0 gives NaN."""
    host = jax.device_get(metrics)
    return {name: float(np.float64(s) / np.float64(n)) if n else float("nan") for name, (s, n) in host.items()}
