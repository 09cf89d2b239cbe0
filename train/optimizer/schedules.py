"""Learning-rate schedules: a class for each, with the published formula, as in PyTorch and the papers.

After a linear warmup,

    rate(progress) = peak * progress / warmup    up to `warmup`
                   = peak * shape(progress)      after it

with progress in steps or tokens, this update included. A new schedule is a new class.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import jax.numpy as jnp

from jaxnlp.config import Choice, Fraction, Natural, ProperFraction, Within
from jaxnlp.typing import Array

Length = Annotated[int, Within("[1, 1000000000000001)")]
"""In steps or tokens, perhaps more than 32 bits can count, so a float."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(Choice):
    """The learning rate of each step, as a fraction of its peak. docs/schedules.md has plots."""

    section: ClassVar[str] = "optimizer.schedule"

    warmup: Annotated[int, Within("[0, 1000000000000001)")] = 0
    """Length of the warmup, in which the learning rate rises linearly from 0 to its peak."""
    unit: Literal["steps", "tokens"] = "steps"
    """Unit of all lengths of the schedule."""

    @property
    def ends_with_run(self) -> bool:
        """Whether the learning rate depends on the number of steps of the run."""
        return False

    def rate(self, progress: Array, *, peak: float, total_steps: int) -> Array:
        """The learning rate, [] float32. A run that is shorter than the warmup ends during the warmup."""
        shape = self.shape(progress, total_steps)
        return peak * jnp.where(progress < float(self.warmup), progress / float(max(1, self.warmup)), shape)

    def shape(self, progress: Array, total_steps: int) -> Array:
        """The learning rate after the warmup, as a fraction of its peak."""
        raise TypeError(f"{type(self).__name__} does not define shape()")

    def scale(self, losses: Sequence[float]) -> float | None:
        """A factor of the learning rate after evaluations with these validation losses; None = no such factor."""
        return None

    def state(self, step: int, total_steps: int) -> str:
        """The position of a step in the schedule, which completes "the learning rate ..."."""
        return f"follows the schedule {self.kind}"

    def shortfalls(self, total_steps: int, evaluations: int) -> list[str]:
        """A line for each setting that needs more steps or evaluations than the run has."""
        if self.unit == "tokens" or self.warmup <= total_steps:
            return []
        return [
            f"the warmup of {self.warmup} steps is longer than the run, so the learning rate ends at "
            f"{total_steps / self.warmup:.0%} of its peak; lower --optimizer.schedule.warmup"
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(Schedule, kind="constant"):
    """The peak, after the warmup."""

    def shape(self, progress: Array, total_steps: int) -> Array:
        return jnp.ones_like(progress)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noam(Schedule, kind="noam"):
    """peak * min(progress / warmup, sqrt(warmup / progress)): the inverse square root.

    Source: Vaswani et al. 2017, section 5.3, where the width D gives the peak: 1 / sqrt(D warmup).
    """

    warmup: Length = 4000
    """Length of the warmup, in which the learning rate rises linearly from 0 to its peak."""

    def shape(self, progress: Array, total_steps: int) -> Array:
        return jnp.sqrt(float(self.warmup) / jnp.maximum(progress, 1.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Falling(Schedule):
    """Falls to a floor, peak * min_lr_ratio, and stays there."""

    end: Length | None = None
    """Step or token at which the fall ends, counted from the start of the run; None = the last step of the run."""
    min_lr_ratio: Fraction = 0.1
    """Lowest learning rate, as a fraction of the peak."""

    def __post_init__(self):
        super().__post_init__()
        if self.end is None and self.unit == "tokens":
            raise ValueError(f"the schedule {self.kind} in tokens needs {self.section}.end")
        if self.end is not None and self.end <= self.warmup:
            raise ValueError(
                f"{self.section}.end must be greater than {self.section}.warmup, got {self.end} and {self.warmup}"
            )

    @property
    def ends_with_run(self) -> bool:
        return self.end is None

    def state(self, step: int, total_steps: int) -> str:
        """The step and the end, or the tokens at the end."""
        if self.unit == "tokens":
            return f"{super().state(step, total_steps)}, of {self.end} tokens"
        end = self.end or total_steps
        return f"is at step {min(step, end)} of {end} of the schedule {self.kind}"

    def _fallen(self, progress: Array, total_steps: int) -> Array:
        """Progress of the fall, from 0 to 1."""
        return _share(progress, self.warmup, self.end or total_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cosine(Falling, kind="cosine"):
    """Half a cosine from the peak to the floor.

    floor + (peak - floor) (1 + cos(pi (progress - warmup) / (end - warmup))) / 2,   floor = peak * min_lr_ratio

    Source: Loshchilov and Hutter 2017, eq. 5, without restarts; karpathy/minGPT, with min_lr_ratio 0.1.
    """

    def shape(self, progress: Array, total_steps: int) -> Array:
        return _half_cosine(1.0, self.min_lr_ratio, self._fallen(progress, total_steps))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(Falling, kind="linear"):
    """Linear from the peak to the floor.

    Source: Devlin et al. 2019, section A.2, with a floor of zero.
    """

    def shape(self, progress: Array, total_steps: int) -> Array:
        return 1.0 - (1.0 - self.min_lr_ratio) * self._fallen(progress, total_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneCycle(Falling, kind="one_cycle"):
    """Half a cosine up, from peak * start_lr_ratio to the peak at the end of the warmup, and half a cosine down to the
    floor.

    Source: Smith and Topin 2019, with cosines instead of lines, as in fast.ai and PyTorch.
    """

    start_lr_ratio: Fraction = 0.04
    """First learning rate, as a fraction of the peak."""

    def rate(self, progress: Array, *, peak: float, total_steps: int) -> Array:
        up = _half_cosine(self.start_lr_ratio, 1.0, _share(progress, 0, self.warmup))
        down = _half_cosine(1.0, self.min_lr_ratio, self._fallen(progress, total_steps))
        return peak * jnp.where(progress < float(self.warmup), up, down)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step(Schedule, kind="step"):
    """peak * factor^floor((progress - warmup) / interval): a drop after each interval.

    Source: He et al. 2016, section 3.4, where the factor is 0.1.
    """

    interval: Length
    """Length of the interval in which the learning rate falls by the factor."""
    decay_factor: ProperFraction = 0.1
    """Factor of the learning rate after each interval."""

    def shape(self, progress: Array, total_steps: int) -> Array:
        return self.decay_factor ** _intervals(progress - float(self.warmup), self.interval)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exponential(Step, kind="exponential"):
    """peak * factor^((progress - warmup) / interval): like `Step`, but smooth."""

    def shape(self, progress: Array, total_steps: int) -> Array:
        return self.decay_factor ** ((progress - float(self.warmup)) / float(self.interval))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CosineRestarts(Schedule, kind="cosine_restarts"):
    """Half a cosine from the peak to the floor, peak * min_lr_ratio, which restarts.

    The first lasts `interval`, and each next one `growth` times as long as the previous one.

    Source: Loshchilov and Hutter 2017, eq. 5.
    """

    interval: Length
    """Length of the interval before the first restart."""
    growth: Annotated[float, Within("[1, inf)")] = 1.0
    """Length of each interval, relative to the previous one."""
    min_lr_ratio: Fraction = 0.1
    """Lowest learning rate, as a fraction of the peak."""

    def shape(self, progress: Array, total_steps: int) -> Array:
        interval, growth = float(self.interval), self.growth
        passed = jnp.maximum(progress - float(self.warmup), 0.0)
        if growth == 1.0:
            start, length = _intervals(passed, interval) * interval, jnp.full_like(passed, interval)
        else:
            guess = jnp.floor(jnp.log1p(passed * (growth - 1.0) / interval) / math.log(growth))
            # Rounding may shift a restart by one step.
            candidates = [guess + shift for shift in (-1.0, 0.0, 1.0)]
            starts = [interval * (growth**number - 1.0) / (growth - 1.0) for number in candidates]
            number = sum(((start <= 1.00001 * passed).astype(passed.dtype) for start in starts), candidates[0] - 1.0)
            start, length = interval * (growth**number - 1.0) / (growth - 1.0), interval * growth**number
        return _half_cosine(1.0, self.min_lr_ratio, jnp.maximum(passed - start, 0.0) / length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plateau(Constant, kind="plateau"):
    """The peak, which is lowered when the validation loss stops falling.

    A loss is an improvement if it is below the lowest one by at least 1e-4 of it. After more than `patience`
    consecutive evaluations without an improvement, the rate is multiplied by `decay_factor`, and the count restarts.

    Source: PyTorch's ReduceLROnPlateau, with its defaults.
    """

    patience: Natural = 3
    """Maximum number of evaluations without a lower validation loss; one more lowers the learning rate."""
    decay_factor: ProperFraction = 0.1
    """Factor that lowers the learning rate."""
    min_lr_ratio: Fraction = 0.1
    """Lowest learning rate, as a fraction of the peak."""

    def scale(self, losses: Sequence[float]) -> float:
        scale, lowest, without = 1.0, math.inf, 0
        for loss in losses:
            limit = lowest if lowest == math.inf else lowest - 1e-4 * abs(lowest)
            if loss < limit:
                lowest, without = loss, 0
            else:
                without += 1
            if without > self.patience:
                scale, without = max(scale * self.decay_factor, self.min_lr_ratio), 0
        return scale

    def shortfalls(self, total_steps: int, evaluations: int) -> list[str]:
        """Also a line if the run has too few evaluations to find a plateau."""
        lines = super().shortfalls(total_steps, evaluations)
        if evaluations <= self.patience + 2:
            lines.append(
                f"the schedule plateau needs at least {self.patience + 2} evaluations, but the run has {evaluations}; "
                "evaluate more often, or lower --optimizer.schedule.patience"
            )
        return lines


def _share(progress: Array, begin: int, end: int) -> Array:
    """The fraction of the way from `begin` to `end`, from 0 to 1."""
    return jnp.clip((progress - float(begin)) / float(max(1, end - begin)), 0.0, 1.0)


def _intervals(progress: Array, interval: float) -> Array:
    """The number of whole intervals, as float32; corrects quotients that were rounded down."""
    return jnp.floor((progress + 0.5) / float(interval))


def _half_cosine(first: float, last: float, share: Array) -> Array:
    return last + (first - last) * 0.5 * (1.0 + jnp.cos(jnp.pi * share))
