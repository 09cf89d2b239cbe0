"""Draws every schedule of the learning rate: python -m docs.schedules_plot --out FOLDER writes FOLDER/schedules.png."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from train.optimizer import OptimizerConfig, make_schedule, schedules

STEPS = 1_000
WARMUP = 100
INTERVAL = 150
LOSSES = (3.0, 2.0, 1.5, 1.5, 1.5, 1.2, 1.0, 1.0, 1.0, 1.0)
"""Validation losses for the drawing of a plateau, one after each tenth of the run."""

CONFIGS = {
    "constant": OptimizerConfig(learning_rate=1.0, warmup_steps=WARMUP, schedule="constant"),
    "linear": OptimizerConfig(learning_rate=1.0, warmup_steps=WARMUP, schedule="linear", min_lr_ratio=0.0),
    "cosine": OptimizerConfig(learning_rate=1.0, warmup_steps=WARMUP, schedule="cosine"),
    "cosine_restarts": OptimizerConfig(
        learning_rate=1.0, warmup_steps=WARMUP, schedule="cosine_restarts", interval_steps=INTERVAL, restart_growth=2.0
    ),
    "one_cycle": OptimizerConfig(learning_rate=1.0, warmup_steps=300, schedule="one_cycle", min_lr_ratio=0.0),
    "step": OptimizerConfig(
        learning_rate=1.0, warmup_steps=WARMUP, schedule="step", interval_steps=INTERVAL, decay_factor=0.5
    ),
    "exponential": OptimizerConfig(
        learning_rate=1.0, warmup_steps=WARMUP, schedule="exponential", interval_steps=INTERVAL, decay_factor=0.5
    ),
    "noam": OptimizerConfig(learning_rate=1.0, warmup_steps=WARMUP, schedule="noam"),
    "plateau": OptimizerConfig(
        learning_rate=1.0, warmup_steps=WARMUP, schedule="plateau", plateau_patience=0, decay_factor=0.5
    ),
}


def rates(config: OptimizerConfig) -> np.ndarray:
    """The learning rate of each update: [STEPS]."""
    progress = jnp.arange(1, STEPS + 1, dtype=jnp.float32)
    found = np.array(jax.vmap(make_schedule(config, total_steps=STEPS))(progress))
    if config.schedule == "plateau":
        tenth = STEPS // len(LOSSES)
        for done in range(1, len(LOSSES)):
            found[done * tenth : (done + 1) * tenth] *= schedules.plateau_scale(
                LOSSES[:done],
                patience=config.plateau_patience,
                factor=config.decay_factor,
                min_lr_ratio=config.min_lr_ratio,
            )
    return found


def draw(out: Path) -> Path:
    """Draws all schedules into one picture. Returns: its path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    for axes, (name, config) in zip(figure.subplots(3, 3, sharex=True, sharey=True).flat, CONFIGS.items(), strict=True):
        axes.plot(np.arange(1, STEPS + 1), rates(config), color="#1f7fc0", linewidth=1.6)
        axes.set_title(name, fontsize=10)
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
    print(draw(out))


if __name__ == "__main__":
    tyro.cli(main)
