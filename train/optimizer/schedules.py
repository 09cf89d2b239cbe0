"""Learning rates as functions of progress, and the optimizer's step that multiplies updates by them.

Every schedule is the published formula, as in PyTorch and the papers, after a linear warmup:

    rate(progress) = peak * progress / warmup    up to `warmup`
                   = peak * shape(progress)      after it
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxnlp.typing import Array, Params, PyTree

Schedule = Callable[[Array], Array]
"""Maps progress, [] float32 in steps or tokens, this update included, to a learning rate."""


def constant(progress: Array, *, peak: float, warmup: int) -> Array:
    """peak, after a linear warmup."""
    return _after_warmup(progress, jnp.ones_like(progress), peak=peak, warmup=warmup)


def linear(progress: Array, *, peak: float, warmup: int, end: int, min_lr_ratio: float) -> Array:
    """Linear from the peak to the floor, peak * min_lr_ratio, between `warmup` and `end`.

    Source: Devlin et al. 2019, section A.2, with a floor of zero.
    """
    shape = 1.0 - (1.0 - min_lr_ratio) * _share(progress, warmup, end)
    return _after_warmup(progress, shape, peak=peak, warmup=warmup)


def cosine(progress: Array, *, peak: float, warmup: int, end: int, min_lr_ratio: float) -> Array:
    """Half a cosine from the peak to the floor, between `warmup` and `end`.

    floor + (peak - floor) (1 + cos(pi (progress - warmup) / (end - warmup))) / 2,   floor = peak * min_lr_ratio

    Source: Loshchilov and Hutter 2017, eq. 5, without restarts; karpathy/minGPT counts progress in the same way, with
    min_lr_ratio 0.1.
    """
    shape = _half_cosine(1.0, min_lr_ratio, _share(progress, warmup, end))
    return _after_warmup(progress, shape, peak=peak, warmup=warmup)


def cosine_restarts(
    progress: Array, *, peak: float, warmup: int, interval: int, growth: float, min_lr_ratio: float
) -> Array:
    """Half a cosine from the peak to the floor, which restarts.

    The first lasts `interval`, and each next one is `growth` >= 1 times as long as the one before it.

    Source: Loshchilov and Hutter 2017, eq. 5.
    """
    passed = jnp.maximum(progress - float(warmup), 0.0)
    if growth == 1.0:
        number = _intervals(passed, interval)
        start, length = number * interval, jnp.full_like(passed, interval)
    else:
        guess = jnp.floor(jnp.log1p(passed * (growth - 1.0) / interval) / math.log(growth))
        # Rounding may shift a restart by one step.
        candidates = [guess + shift for shift in (-1.0, 0.0, 1.0)]
        starts = [interval * (growth**number - 1.0) / (growth - 1.0) for number in candidates]
        number = sum(((start <= 1.00001 * passed).astype(passed.dtype) for start in starts), candidates[0] - 1.0)
        start, length = interval * (growth**number - 1.0) / (growth - 1.0), interval * growth**number
    shape = _half_cosine(1.0, min_lr_ratio, jnp.maximum(passed - start, 0.0) / length)
    return _after_warmup(progress, shape, peak=peak, warmup=warmup)


def step(progress: Array, *, peak: float, warmup: int, interval: int, factor: float) -> Array:
    """peak * factor^floor((progress - warmup) / interval): a drop after each interval.

    Source: He et al. 2016, section 3.4, where the factor is 0.1.
    """
    drops = _intervals(progress - float(warmup), interval)
    return _after_warmup(progress, factor**drops, peak=peak, warmup=warmup)


def exponential(progress: Array, *, peak: float, warmup: int, interval: int, factor: float) -> Array:
    """peak * factor^((progress - warmup) / interval): like `step`, but smooth."""
    return _after_warmup(progress, factor ** ((progress - float(warmup)) / interval), peak=peak, warmup=warmup)


def one_cycle(
    progress: Array, *, peak: float, warmup: int, end: int, start_lr_ratio: float, min_lr_ratio: float
) -> Array:
    """Half a cosine up, from peak * start_lr_ratio to the peak at `warmup`, and half a cosine down to the floor at
    `end`.

    Source: Smith and Topin 2019, with cosines instead of lines, as in fast.ai and PyTorch.
    """
    up = _half_cosine(start_lr_ratio, 1.0, _share(progress, 0, warmup))
    down = _half_cosine(1.0, min_lr_ratio, _share(progress, warmup, end))
    return peak * jnp.where(progress < float(warmup), up, down)


def noam(progress: Array, *, peak: float, warmup: int) -> Array:
    """peak * min(progress / warmup, sqrt(warmup / progress)), the inverse square root; the warmup is at least 1.

    Source: Vaswani et al. 2017, section 5.3, where the width D gives the peak: 1 / sqrt(D warmup).
    """
    return peak * jnp.minimum(progress / float(warmup), jnp.sqrt(float(warmup) / jnp.maximum(progress, 1.0)))


def plateau_scale(
    losses: Sequence[float], *, patience: int, factor: float, min_lr_ratio: float, threshold: float = 1e-4
) -> float:
    """The factor of the learning rate after evaluations with these validation losses.

    A loss is an improvement if it is below the lowest one by at least the fraction `threshold` of it. After more than
    `patience` evaluations in a row without an improvement, the rate is multiplied by `factor`, down to `min_lr_ratio`,
    and the count restarts. NaN is not an improvement.

    Source: PyTorch's ReduceLROnPlateau, with its defaults.
    """
    scale, lowest, without = 1.0, math.inf, 0
    for loss in losses:
        limit = lowest if lowest == math.inf else lowest - threshold * abs(lowest)
        if loss < limit:
            lowest, without = loss, 0
        else:
            without += 1
        if without > patience:
            scale, without = max(scale * factor, min_lr_ratio), 0
    return scale


def _share(progress: Array, begin: int, end: int) -> Array:
    """The fraction of the way from `begin` to `end`, from 0 to 1."""
    return jnp.clip((progress - float(begin)) / float(max(1, end - begin)), 0.0, 1.0)


def _intervals(steps: Array, interval: int) -> Array:
    """The number of whole intervals in `steps`, a whole number in float32; corrects quotients that were rounded
    down."""
    return jnp.floor((steps + 0.5) / interval)


def _half_cosine(first: float, last: float, share: Array) -> Array:
    return last + (first - last) * 0.5 * (1.0 + jnp.cos(jnp.pi * share))


def _after_warmup(progress: Array, shape: Array, *, peak: float, warmup: int) -> Array:
    return peak * jnp.where(progress < float(warmup), progress / float(max(1, warmup)), shape)


_LOW_LIMIT = 2**20
"""Progress is stored as (high, low) with low < 2^20: float32 and int32 are too small for the tokens of a long run."""


class ScheduleState(NamedTuple):
    """Progress as high * 2^20 + low; the factor of plateau; and the learning rate of the last update."""

    high: Array
    low: Array
    plateau_scale: Array
    learning_rate: Array


def scale_by_progress(
    schedule: Schedule, *, by_tokens: bool, reference_tokens: int | None = None
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by minus the schedule's learning rate.

    Its `update` takes the keyword `progress`, [] int32 or float: the number of tokens in this step, the count of the
    objective's progress metric.

    Args:
      schedule: see `Schedule`.
      by_tokens: whether the schedule counts tokens; otherwise it counts updates.
      reference_tokens: the learning rate is multiplied by `progress` divided by this; None = no scaling.

    Source: Merity et al. 2018, section 4.1, for learning rates that follow the sequence length.
    """

    def init(params: Params) -> ScheduleState:
        del params
        zero, rate = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32)
        return ScheduleState(zero, jnp.copy(zero), jnp.ones((), jnp.float32), rate)

    def update(updates: PyTree, state: ScheduleState, params: Params | None = None, *, progress: Array):
        del params
        low = state.low + (progress.astype(jnp.int32) if by_tokens else 1)
        high, low = state.high + low // _LOW_LIMIT, low % _LOW_LIMIT
        rate = state.plateau_scale * schedule(high.astype(jnp.float32) * _LOW_LIMIT + low.astype(jnp.float32))
        if reference_tokens is not None:
            rate = rate * progress.astype(jnp.float32) / reference_tokens
        updates = jax.tree.map(lambda u: -rate.astype(u.dtype) * u, updates)
        return updates, ScheduleState(high, low, state.plateau_scale, rate)

    return optax.GradientTransformationExtraArgs(init, update)


def current_learning_rate(opt_state: PyTree) -> Array:
    """The learning rate of the last update, [] float32, on the device; with layer-wise rates, that of the heads."""
    return optax.tree.get(opt_state, "learning_rate")


def with_plateau_scale(opt_state: PyTree, scale: Array) -> PyTree:
    """The optimizer's state with another factor of the learning rate, [] float32."""
    return optax.tree.set(opt_state, plateau_scale=scale)
