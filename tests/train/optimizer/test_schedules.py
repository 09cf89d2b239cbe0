"""Formulas of learning rates, compared with PyTorch and the papers; test_chain.py tests them through the config."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from train.optimizer.schedules import (
    Constant,
    Cosine,
    CosineRestarts,
    Exponential,
    Linear,
    Noam,
    OneCycle,
    Plateau,
    Schedule,
    Step,
)

PEAK, STEPS = 2.0, 60


def ours(schedule):
    """The rates of a schedule after 0 to STEPS updates."""
    return rates(schedule, jnp.arange(STEPS + 1, dtype=jnp.float32))


def rates(schedule, progress, *, peak=PEAK):
    """The rates of a schedule at each progress."""
    return np.asarray(jax.jit(functools.partial(schedule.rate, peak=peak, total_steps=STEPS))(progress))


def pytorchs(make):
    """The rates of a PyTorch scheduler after 0 to STEPS updates."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = make(optimizer)
    rates = []
    for _ in range(STEPS + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(rates) <= STEPS:
            scheduler.step()
    return rates


def lr(name, **options):
    return lambda optimizer: getattr(torch.optim.lr_scheduler, name)(optimizer, **options)


@pytest.mark.parametrize(
    ("schedule", "make"),
    [
        (Constant(), lr("ConstantLR", factor=1.0)),
        (Linear(), lr("LinearLR", start_factor=1.0, end_factor=0.1, total_iters=STEPS)),
        (Cosine(), lr("CosineAnnealingLR", T_max=STEPS, eta_min=0.1 * PEAK)),
        (
            CosineRestarts(interval=7, growth=2.0),
            lr("CosineAnnealingWarmRestarts", T_0=7, T_mult=2, eta_min=0.1 * PEAK),
        ),
        (CosineRestarts(interval=9, min_lr_ratio=0.0), lr("CosineAnnealingWarmRestarts", T_0=9)),
        (Step(interval=8, decay_factor=0.5), lr("StepLR", step_size=8, gamma=0.5)),
        # A quotient of float32 is rounded down here.
        (Step(interval=41, decay_factor=0.5), lr("StepLR", step_size=41, gamma=0.5)),
        (CosineRestarts(interval=41), lr("CosineAnnealingWarmRestarts", T_0=41, eta_min=0.2)),
        (Exponential(interval=1, decay_factor=0.9), lr("ExponentialLR", gamma=0.9)),
        (
            # PyTorch's first and last steps are numbered 0 and total_steps - 1, and its rise ends one step earlier.
            OneCycle(warmup=17, start_lr_ratio=0.04, min_lr_ratio=0.04 / 1e4),
            lr("OneCycleLR", max_lr=PEAK, total_steps=STEPS + 1, pct_start=18 / (STEPS + 1)),
        ),
    ],
    ids=lambda value: "" if callable(value) else str(value),  # the address of a function differs between processes
)
def test_rates_are_those_of_pytorch(schedule, make):
    np.testing.assert_allclose(ours(schedule), pytorchs(make), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [Step, Exponential, CosineRestarts])
@pytest.mark.parametrize("growth", [1.0, 2.0])
def test_an_interval_may_have_more_tokens_than_32_bits_count(kind, growth):
    given = {"growth": growth} if kind is CosineRestarts else {}
    long, short = (kind(unit="tokens", interval=length, **given) for length in (10**12, 10))
    for share in (0.0, 0.5, 1.0, 2.5):
        rates = [s.rate(jnp.float32(share * s.interval), peak=1.0, total_steps=9) for s in (long, short)]
        np.testing.assert_allclose(*rates, rtol=0.1)


@pytest.mark.parametrize("name", sorted(Schedule.kinds().keys() - {"one_cycle"}))
def test_the_warmup_is_linear_and_ends_at_the_peak(name):
    kind = Schedule.kinds()[name]
    found = ours(kind(warmup=10, **({"interval": 5} if "interval" in kind.__dataclass_fields__ else {})))
    np.testing.assert_allclose(found[:11], PEAK * np.arange(11) / 10, rtol=1e-6)
    assert found.max() == pytest.approx(PEAK)


def test_after_the_warmup_a_schedule_begins_as_it_does_without_one():
    for plain in (Step(interval=5), Exponential(interval=5), CosineRestarts(interval=5, growth=3.0)):
        warmed = dataclasses.replace(plain, warmup=10)
        np.testing.assert_allclose(ours(warmed)[10:], ours(plain)[: STEPS - 9], rtol=1e-5)


@pytest.mark.thorough
def test_a_restart_is_at_its_step_whatever_the_logarithm_rounds_to():
    for growth, interval in ((2.0, 10), (3.0, 1), (1.5, 64), (1.1, 100)):
        starts = [interval * (growth**n - 1.0) / (growth - 1.0) for n in range(9)]
        starts = [math.ceil(start - 1e-6) for start in starts]
        steps = np.array([*starts, *(start - 1 for start in starts[1:])], np.float32)
        schedule = CosineRestarts(interval=interval, growth=growth, min_lr_ratio=0.0)
        at_start, before = np.split(rates(schedule, steps, peak=1.0), [9])
        assert at_start.min() > 0.99 - 4.0 / interval**2
        assert interval < 10 or before.max() < 0.1


def test_the_published_schedule_of_the_transformer():
    steps = np.array([1, 100, 4_000, 16_000], np.float32)
    expected = 512**-0.5 * np.minimum(steps**-0.5, steps * 4_000**-1.5)
    found = rates(Noam(warmup=4_000), np.array([*steps, 0.0], np.float32), peak=(512 * 4_000) ** -0.5)
    np.testing.assert_allclose(found, [*expected, 0.0], rtol=1e-5)


def test_the_cosine_schedule_begins_at_zero_peaks_and_ends_at_its_floor():
    found = rates(Cosine(warmup=10, end=110), np.array([0.0, 10.0, 60.0, 200.0], np.float32))
    np.testing.assert_allclose(found, [0.0, 2.0, 1.1, 0.2], rtol=1e-6)


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_a_plateau_lowers_the_rate_when_pytorch_does(patience):
    for losses in np.random.default_rng(patience).random((20, 30)).tolist():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, factor=0.5, patience=patience, min_lr=PEAK / 100, eps=0.0
        )
        for number, loss in enumerate(losses, start=1):
            scheduler.step(loss)
            scale = Plateau(patience=patience, decay_factor=0.5, min_lr_ratio=0.01).scale(losses[:number])
            assert PEAK * scale == pytest.approx(optimizer.param_groups[0]["lr"])


def test_a_plateau_is_found_where_the_loss_is_nan_and_no_other_schedule_looks_for_one():
    plateau = Plateau(patience=1, decay_factor=0.5, min_lr_ratio=0.0)
    assert [plateau.scale([3.0] + [math.nan] * count) for count in range(5)] == [1.0, 1.0, 0.5, 0.5, 0.25]
    assert Cosine().scale([3.0, 3.0]) is None
