"""Metrics as (sum, count) pairs, so that averages over batches of different sizes are exact."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from jaxnlp.typing import Metrics


def total(metrics: Iterable[Metrics]) -> Metrics:
    """Adds up sums and counts by name. A name may be missing in some batches, as with several tasks.

    NumPy's values are added up in float64, because float32 cannot count by ones above 2^24.

    Raises: ValueError when there are no metrics.
    """
    summed: Metrics = {}
    for batch in metrics:
        for name, (value, count) in batch.items():
            pair = (_wide(value), _wide(count))
            before = summed.get(name)
            summed[name] = pair if before is None else (before[0] + pair[0], before[1] + pair[1])
    if not summed:
        raise ValueError("there are no metrics to add up: the data set has no batches")
    return dict(sorted(summed.items()))


def _wide(x: Any) -> Any:
    return np.float64(x) if isinstance(x, np.ndarray | np.generic) else x


def means(metrics: Metrics) -> dict[str, float]:
    """Sum / count as Python floats. It copies from the device, so call it only for logging. A count of 0 gives NaN."""
    host = jax.device_get(metrics)
    return {name: float(np.float64(s) / np.float64(n)) if n else float("nan") for name, (s, n) in host.items()}
