"""Formulas of learning rates; test_optimizer.py tests them through the config."""

import jax.numpy as jnp
import numpy as np

from train.schedules import noam, warmup_cosine


def test_the_published_schedule_of_the_transformer():
    steps = np.array([1, 100, 4_000, 16_000], np.float32)
    expected = 512**-0.5 * np.minimum(steps**-0.5, steps * 4_000**-1.5)
    np.testing.assert_allclose(noam(jnp.array(steps), peak=(512 * 4_000) ** -0.5, warmup=4_000), expected, rtol=1e-5)
    assert noam(jnp.float32(0.0), peak=1.0, warmup=10) == 0.0


def test_the_cosine_schedule_begins_at_zero_peaks_and_ends_at_its_floor():
    found = [warmup_cosine(jnp.float32(n), peak=2.0, warmup=10, end=110, min_lr_ratio=0.1) for n in (0, 10, 60, 200)]
    np.testing.assert_allclose(found, [0.0, 2.0, 1.1, 0.2], rtol=1e-6)
