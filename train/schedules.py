"""Learning rates as functions of progress."""

from collections.abc import Callable

import jax.numpy as jnp

from jaxnlp.typing import Array

Schedule = Callable[[Array], Array]
"""Maps progress, [] float32 in steps or tokens, to a learning rate."""


def warmup_cosine(
    progress: Array, *, peak: float, warmup: int, end: int, min_lr_ratio: float, decay: bool = True
) -> Array:
    """The learning rate of an update.

    peak * progress / warmup                                                        up to `warmup`,
    floor + (peak - floor) (1 + cos(pi (progress - warmup) / (end - warmup))) / 2   up to `end`,
    floor = peak * min_lr_ratio                                                     after it.

    Args:
      progress: [] float, steps or tokens trained on, this update included.
      peak: the highest learning rate.
      warmup: end of the linear warmup, in the unit of progress.
      end: end of the cosine decay, in the unit of progress.
      min_lr_ratio: the floor as a fraction of the peak.
      decay: False keeps the peak after the warmup.

    Source: Loshchilov and Hutter 2017, eq. 5, without restarts; karpathy/minGPT counts progress in the same way, with
    min_lr_ratio 0.1.
    """
    share = jnp.clip((progress - float(warmup)) / float(max(1, end - warmup)), 0.0, 1.0)
    cosine = 0.5 * (1.0 + jnp.cos(jnp.pi * share)) if decay else jnp.ones_like(share)
    decayed = min_lr_ratio + (1.0 - min_lr_ratio) * cosine
    return peak * jnp.where(progress < float(warmup), progress / float(max(1, warmup)), decayed)


def noam(progress: Array, *, peak: float, warmup: int) -> Array:
    """The learning rate that the Transformer was published with.

    peak * min(progress / warmup, sqrt(warmup / progress))

    Args:
      progress: [] float, steps or tokens trained on, this update included.
      peak: the highest learning rate, that at the end of the warmup; published: 1 / sqrt(D warmup).
      warmup: end of the linear warmup, in the unit of progress; at least 1.

    Source: Vaswani et al. 2017, section 5.3, where the peak follows from the width D.
    """
    return peak * jnp.minimum(progress / float(warmup), jnp.sqrt(float(warmup) / jnp.maximum(progress, 1.0)))
