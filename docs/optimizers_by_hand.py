"""Optimizers by hand, in NumPy, and pictures of them: python -m docs.optimizers_by_hand --out FOLDER.

Each optimizer is a function of the gradient and its own state, and returns the direction of the update and the next
state; None = the state before the first update. An update subtracts the direction times the learning rate. The page
docs/optimizers.md explains them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro

from jaxnlp.cli.messages import exit_status

Optimizer = Callable[[np.ndarray, Any], tuple[np.ndarray, Any]]


class Average(NamedTuple):
    """An exponentially weighted average, and the number of values in it."""

    value: np.ndarray
    count: int


def averaged(x: np.ndarray, state: Average | None, beta: float = 0.9) -> tuple[np.ndarray, Average]:
    """m <- beta m + (1 - beta) x, from m = 0. Returns: m / (1 - beta^t), the weighted mean of the t values so far."""
    value, count = state or Average(np.zeros_like(x), 0)
    value, count = beta * value + (1 - beta) * x, count + 1
    return value / (1 - beta**count), Average(value, count)


def sgd(gradient: np.ndarray, state: None = None) -> tuple[np.ndarray, None]:
    """The gradient itself."""
    return gradient, None


def momentum(gradient: np.ndarray, state: np.ndarray | None = None, beta: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """v <- beta v + g, from v = 0."""
    velocity = gradient if state is None else beta * state + gradient
    return velocity, velocity


def rmsprop(
    gradient: np.ndarray, state: np.ndarray | None = None, beta: float = 0.9, epsilon: float = 1e-8
) -> tuple[np.ndarray, np.ndarray]:
    """s <- beta s + (1 - beta) g^2, from s = 0; the direction is g / (sqrt(s) + epsilon)."""
    square = (1 - beta) * gradient**2 + (0.0 if state is None else beta * state)
    return gradient / (np.sqrt(square) + epsilon), square


def adam(
    gradient: np.ndarray,
    state: tuple[Average, Average] | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> tuple[np.ndarray, tuple[Average, Average]]:
    """m and s are averages of g and of g^2; the direction is m / (sqrt(s) + epsilon)."""
    mean, first = averaged(gradient, state and state[0], beta1)
    square, second = averaged(gradient**2, state and state[1], beta2)
    return mean / (np.sqrt(square) + epsilon), (first, second)


STEEPNESS = np.array([1.0, 20.0])
"""Second derivatives of a valley: it is 20 times as steep across as along."""
START = np.array([-4.0, 1.5])
RATES: dict[Optimizer, float] = {sgd: 0.09, momentum: 0.02, rmsprop: 0.15, adam: 0.3}
"""Learning rate of each optimizer in the picture."""
STEPS = 40


def loss(x: np.ndarray) -> np.ndarray:
    """The height of the valley at points x [..., 2]: [...]."""
    return 0.5 * (STEEPNESS * x**2).sum(axis=-1)


def path(optimizer: Optimizer, rate: float, steps: int = STEPS) -> np.ndarray:
    """The points that an optimizer goes through in the valley, from `START`: [steps + 1, 2]."""
    points, state = [START], None
    for _ in range(steps):
        direction, state = optimizer(STEEPNESS * points[-1], state)
        points.append(points[-1] - rate * direction)
    return np.stack(points)


def noisy_gradients(steps: int = 60) -> np.ndarray:
    """A gradient of 1 with noise, as batches have it: [steps]."""
    return 1.0 + np.random.default_rng(0).normal(size=steps)


def draw(out: Path) -> Path:
    """Draws averages with and without correction, and the path of each optimizer. Returns: the picture's path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.4), layout="constrained")
    rows = figure.subfigures(2, 1, height_ratios=(1.0, 1.5))
    axes = rows[0].subplots()
    values, state, corrected, plain = noisy_gradients(), None, [], []
    for value in values:
        mean, state = averaged(value, state)
        corrected.append(mean)
        plain.append(state.value)
    axes.plot(values, ".", color="#aaaaaa", label="gradients of batches")
    axes.plot(plain, color="#d08030", label="average, beta 0.9")
    axes.plot(corrected, color="#1f7fc0", label="the same with bias correction")
    axes.set_xlabel("step")
    axes.legend(fontsize=8, loc="lower right")
    x, y = np.meshgrid(np.linspace(-5, 2, 120), np.linspace(-2, 2, 80))
    panels = rows[1].subplots(2, 2, sharex=True, sharey=True)
    for axes, (optimizer, rate) in zip(panels.flat, RATES.items(), strict=True):
        axes.contour(x, y, loss(np.stack([x, y], axis=-1)), levels=12, colors="#cccccc", linewidths=0.7)
        axes.plot(*path(optimizer, rate).T, ".-", color="#1f7fc0", linewidth=1.0, markersize=4)
        axes.plot(0, 0, "x", color="#d03030")
        axes.set_title(f"{optimizer.__name__}, learning rate {rate}", fontsize=10)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "optimizers.png"
    figure.savefig(file, dpi=110, metadata={"Software": None})
    return file


def main(out: Path = Path("docs/images")) -> None:
    """Writes optimizers.png.

    Args:
      out: its folder.
    """
    print(draw(out.expanduser()))


if __name__ == "__main__":
    sys.exit(exit_status(lambda: tyro.cli(main)))
