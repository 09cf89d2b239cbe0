"""docs/optimizers.md has every optimizer, and the optimizers by hand are those of optax and of training."""

import re

import jax
import numpy as np
import optax
import pytest

from docs.optimizers_by_hand import RATES, adam, averaged, draw, loss, momentum, noisy_gradients, path, rmsprop
from tests.pages import blocks_of
from train.optimizer import SGD, AdamW, OptimizerConfig, RMSProp

GRADIENTS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


def directions(transformation):
    """What optax makes of the gradients, one after the other."""
    state, found = transformation.init(GRADIENTS[0]), []
    with jax.numpy_dtype_promotion("standard"):  # optax's averages count in int32
        for gradient in GRADIENTS:
            direction, state = transformation.update(gradient, state)
            found.append(direction)
    return np.stack(found)


@pytest.mark.parametrize(
    ("by_hand", "theirs"),
    [
        (averaged, optax.ema(0.9, debias=True)),
        (momentum, optax.trace(0.9)),
        (momentum, SGD(momentum=0.9).direction(lambda params: params)),
        (rmsprop, optax.scale_by_rms(0.9, 1e-8, eps_in_sqrt=False)),
        (rmsprop, RMSProp(beta2=0.9).direction(lambda params: params)),
        (adam, optax.scale_by_adam(0.9, 0.999, 1e-8)),
        (adam, AdamW().direction(lambda params: params)),
    ],
    ids=["averaged", "momentum", "momentum-option", "rmsprop", "rmsprop-option", "adam", "adam-option"],
)
def test_each_optimizer_by_hand_is_that_of_optax(by_hand, theirs):
    state, found = None, []
    for gradient in GRADIENTS.astype(np.float64):
        direction, state = by_hand(gradient, state)
        found.append(direction)
    np.testing.assert_allclose(found, directions(theirs), rtol=2e-4, atol=2e-6)


def test_the_average_of_the_page_begins_with_the_first_value(root):
    (code,) = (block.text for block in blocks_of(root / "docs" / "optimizers.md") if block.language == "python")
    values = {}
    exec(code.replace("(3.0, 1.0, 2.0)", "(3.0,)"), values)
    assert values["mean"] == pytest.approx(3.0)
    assert values["value"] == pytest.approx(0.3)
    exec(code, values)
    assert values["mean"] == pytest.approx((0.81 * 3.0 + 0.9 * 1.0 + 2.0) / 2.71)


def test_the_page_has_every_optimizer(root):
    page = (root / "docs" / "optimizers.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--optimizer ([a-z]+)", page)) == OptimizerConfig.kinds().keys()


def test_every_optimizer_goes_down_the_valley():
    for optimizer, rate in RATES.items():
        heights = loss(path(optimizer, rate))
        assert heights[-1] < 0.01 * heights[0]


def test_the_correction_matters_at_first_only():
    states, state = [], None
    for value in noisy_gradients():
        mean, state = averaged(value, state)
        states.append((mean, state.value))
    assert states[0][0] == pytest.approx(10 * states[0][1])
    assert states[-1][0] == pytest.approx(states[-1][1], rel=0.01)


@pytest.mark.thorough
def test_the_picture_is_drawn(tmp_path):
    assert draw(tmp_path).read_bytes().startswith(b"\x89PNG")
