"""`jaxnlp lr-find RECIPE`: a range test, which suggests a learning rate and plots the loss against it.

The learning rate grows exponentially. The loss shows where learning starts and where it diverges.

Source: Smith 2017, section 3.3; the suggestion is the steepest point of the smoothed curve, as in fastai.
"""

import dataclasses
import io
import math
from pathlib import Path
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from jaxnlp.cli.messages import program_name
from jaxnlp.config import Config, Within
from jaxnlp.inference.caches import use_compilation_cache
from jaxnlp.saving.atomic_files import write_file
from jaxnlp.typing import Array
from train.cli.command_line import UsageError, parse
from train.config import TrainConfig
from train.optimizer.schedules import Schedule
from train.parallel import make_parallel
from train.run.device import for_device
from train.run.init_from import begin
from train.run.memory import require_memory
from train.run.setup import set_up
from train.step import weighted

PROGRAM = f"{program_name()} lr-find"
SMOOTHING = 0.9
"""Decay rate of the loss's moving average, which is bias-corrected."""
DIVERGED = 4.0
"""The test ends when the smoothed loss exceeds this multiple of its lowest value."""


@dataclasses.dataclass(frozen=True)
class FindOptions(Config):
    """Options of the range test."""

    usual = ("smallest", "largest", "steps", "plot")
    unused: ClassVar = ("total-steps", "evaluate-every-steps", "optimizer.learning-rate")

    smallest: float = 1e-6
    """Learning rate of the first step."""
    largest: float = 1.0
    """Learning rate of the last step."""
    steps: Annotated[int, Within("[20, 2147483648)")] = 200
    """Number of steps."""
    plot: Path | None = None
    """File of the plot, in the format of its suffix. None = runs/RECIPE.lr_find.svg."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.smallest < self.largest:
            raise ValueError(
                f"--smallest must be positive and less than --largest, got {self.smallest} and {self.largest}"
            )
        if self.plot is not None:
            from matplotlib.backend_bases import FigureCanvasBase

            endings = FigureCanvasBase.filetypes
            if self.plot.suffix[1:].lower() not in endings:
                raise ValueError(f"--plot must end in one of .{', .'.join(sorted(endings))}, got {self.plot}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialRange(Schedule):
    """Learning rates that grow exponentially, from step 1 to the last step."""

    smallest: float
    largest: float
    steps: int

    def rate(self, progress: Array, **_: object) -> Array:
        """smallest (largest / smallest)^((progress - 1) / (steps - 1))."""
        return self.smallest * jnp.exp((progress - 1.0) / (self.steps - 1) * math.log(self.largest / self.smallest))


def range_test(config: TrainConfig, *, smallest: float, largest: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Trains with a growing learning rate until the loss diverges.

    Returns:
      Learning rates [N] and losses [N] before each update, N <= steps; all finite.
    """

    schedule = ExponentialRange(smallest=smallest, largest=largest, steps=steps)
    optimizer = dataclasses.replace(config.optimizer, schedule=schedule, reference_tokens=None)
    layout = make_parallel("jit")
    config = for_device(dataclasses.replace(config, optimizer=optimizer), jax.devices()[0])
    setup = set_up(begin(config), devices=layout.devices)
    require_memory(setup)
    state = layout.initialise(setup.initial_state, setup.given)
    train_step = layout.compile_train(setup.step, setup.abstract_state)
    batches = iter(setup.corpus.train)
    rates: list[float] = []
    losses: list[float] = []
    for step in range(1, steps + 1):
        state, output = train_step(state, layout.put_batch(next(batches), config.accumulation_steps))
        loss, count = jax.device_get(weighted(output.metrics))
        if not count:  # the count is 0 where the loss or the gradient is not finite
            break
        rates.append(float(schedule.rate(jnp.float32(step))))
        losses.append(float(loss / count))
        curve = smoothed(losses)
        if curve[-1] > DIVERGED * curve.min():
            break
    return np.array(rates), np.array(losses)


def smoothed(losses: list[float] | np.ndarray) -> np.ndarray:
    """Bias-corrected exponential moving average with decay rate `SMOOTHING`: [N] -> [N]."""
    average, curve = 0.0, []
    for step, loss in enumerate(losses, 1):
        average = SMOOTHING * average + (1 - SMOOTHING) * loss
        curve.append(average / (1 - SMOOTHING**step))
    return np.array(curve)


def suggest(rates: np.ndarray, losses: np.ndarray) -> float:
    """The learning rate at which the smoothed loss falls fastest per decade, before its minimum.

    Raises: UsageError when the loss does not fall over the range, or is never finite.
    """
    if not len(losses):
        raise UsageError(
            "the loss or the gradient is not finite even at the smallest learning rate; try a lower --smallest"
        )
    curve = smoothed(losses)
    lowest = int(curve.argmin())
    if lowest < 2:
        raise UsageError(
            f"the loss does not fall between learning rates {rates[0]:.1e} and {rates[-1]:.1e}; widen the range with "
            "--smallest and --largest"
        )
    slopes = np.gradient(curve[: lowest + 1], np.log10(rates[: lowest + 1]))
    return float(rates[1 + slopes[1:-1].argmin()])  # the one-sided slopes at both ends are noise


def draw(path: Path, rates: np.ndarray, losses: np.ndarray, suggestion: float) -> None:
    """Plots the loss against the learning rate, in the format of the file's suffix."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(rates, losses, color="#1f7fc0", alpha=0.35, lw=1, label="loss")
    axes.plot(rates, smoothed(losses), color="#1f7fc0", lw=2, label="smoothed")
    axes.axvline(suggestion, color="#d9651b", ls="--", label=f"steepest: {suggestion:.2g}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
    axes.set_ylim(top=min(losses.max(), 1.2 * losses[0]) + 0.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower())
    write_file(path, content.getvalue())


def main(arguments: list[str]) -> int:
    """Trains, prints a suggestion and draws the plot. Returns: the exit status.

    Raises: ValueError for a wrong command, or without a suggestion; OSError.
    """
    console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
    config, options = parse(arguments, FindOptions(), program=PROGRAM)
    use_compilation_cache(None)
    console.print("compiling the training step")
    rates, losses = range_test(config, smallest=options.smallest, largest=options.largest, steps=options.steps)
    plot = options.plot or Path("runs") / f"{config.recipe}.lr_find.svg"
    suggestion = suggest(rates, losses)
    draw(plot, rates, losses, suggestion)
    console.print(f"{len(rates)} steps, loss {losses[0]:.4f}, lowest (smoothed) {smoothed(losses).min():.4f}")
    console.print(
        f"suggested  --optimizer.learning-rate {suggestion:.2g}   (the recipe has {config.optimizer.learning_rate:g})"
    )
    console.print(f"plot       {plot}")
    return 0
