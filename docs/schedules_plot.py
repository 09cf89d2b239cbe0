"""Draws every schedule of the learning rate: python -m docs.schedules_plot --out FOLDER writes FOLDER/schedules.png."""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import tyro

from jaxnlp.cli.messages import exit_status
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

STEPS = 1_000
WARMUP = 100
INTERVAL = 150
LOSSES = (3.0, 2.0, 1.5, 1.5, 1.5, 1.2, 1.0, 1.0, 1.0, 1.0)
"""Validation losses for the drawing of a plateau, one after each tenth of the run."""

SCHEDULES: tuple[Schedule, ...] = (
    Constant(warmup=WARMUP),
    Linear(warmup=WARMUP, min_lr_ratio=0.0),
    Cosine(warmup=WARMUP),
    CosineRestarts(warmup=WARMUP, interval=INTERVAL, growth=2.0),
    OneCycle(warmup=300, min_lr_ratio=0.0),
    Step(warmup=WARMUP, interval=INTERVAL, decay_factor=0.5),
    Exponential(warmup=WARMUP, interval=INTERVAL, decay_factor=0.5),
    Noam(warmup=WARMUP),
    Plateau(warmup=WARMUP, patience=0, decay_factor=0.5),
)


def rates(schedule: Schedule) -> np.ndarray:
    """The learning rate of each update: [STEPS]."""
    progress = jnp.arange(1, STEPS + 1, dtype=jnp.float32)
    found = np.array(schedule.rate(progress, peak=1.0, total_steps=STEPS))
    tenth = STEPS // len(LOSSES)
    for done in range(1, len(LOSSES)):
        scale = schedule.scale(LOSSES[:done])
        found[done * tenth : (done + 1) * tenth] *= 1.0 if scale is None else scale
    return found


def draw(out: Path) -> Path:
    """Draws all schedules into one picture. Returns: its path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    for axes, schedule in zip(figure.subplots(3, 3, sharex=True, sharey=True).flat, SCHEDULES, strict=True):
        axes.plot(np.arange(1, STEPS + 1), rates(schedule), color="#1f7fc0", linewidth=1.6)
        axes.set_title(schedule.kind, fontsize=10)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_ylim(0.0, 1.08)
    figure.supxlabel("step")
    figure.supylabel("learning rate, as a fraction of the peak")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "schedules.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def main(out: Path = Path("docs/images")) -> None:
    """Writes schedules.png.

    Args:
      out: its folder.
    """
    print(draw(out.expanduser()))


if __name__ == "__main__":
    sys.exit(exit_status(lambda: tyro.cli(main)))
