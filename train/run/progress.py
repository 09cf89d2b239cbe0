"""The progress of a run: when to log, evaluate and save, when averaging starts, the factor of the learning rate."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.typing import Array, PyTree
from train.config import TrainConfig
from train.optimizer.chain import with_plateau_scale
from train.parallel import Parallel
from train.run.early_stopping import stops_early
from train.step import StepOutput, TrainState


class Due(NamedTuple):
    """Whether to log, evaluate and save after a step."""

    log: bool
    evaluate: bool
    save: bool


class NonFiniteError(ValueError):
    """The loss, its gradient or the parameters became NaN or infinite."""

    exit_status = 1


@dataclasses.dataclass
class RunProgress:
    """The progress of a run.

    Attributes:
      state: of the last step.
      step: number of steps done.
      train_seconds: before this start.
      losses, scores: the validation loss and the score of each evaluation so far; higher scores are better.
    """

    state: TrainState
    step: int = 0
    train_seconds: float = 0.0
    losses: Sequence[float] = ()
    scores: Sequence[float] = ()

    def ended(self, config: TrainConfig) -> bool:
        """Whether the run has done its last step, or stops early."""
        return self.step >= config.total_steps or stops_early(self.scores, config.stop_after)

    def due(self, config: TrainConfig, *, stopped: bool) -> Due:
        """Whether to log, evaluate and save now; `stopped`: whether a signal stops the run here."""
        evaluate = self.step == config.total_steps or self.step % config.evaluate_every_steps == 0
        save = evaluate or stopped or self.step % config.checkpoint_every_steps == 0
        return Due(save or self.step % config.log_every_steps == 0, evaluate, save)

    @staticmethod
    def check_finite(
        output: StepOutput, config: TrainConfig, step: int, finite: Array, *, last_good: int | None, workdir: Path
    ) -> None:
        """Raises NonFiniteError for parameters that are not finite, and for a skipped update if the config forbids it.

        After an update that overflowed, no later gradient would be finite.

        Args:
          output: of the step.
          config: of the run.
          step: its number.
          finite: whether the parameters after it are finite, [] bool.
          last_good: the step of the latest checkpoint; None = there is none.
          workdir: the run's folder.
        """
        good = (
            "there is no checkpoint before it" if last_good is None else f"the last good checkpoint is step {last_good}"
        )
        remedy = (
            f"{good} in {workdir}. In a new --workdir, try a lower --optimizer.learning-rate or a smaller "
            "--optimizer.max-grad-norm"
        )
        if config.nonfinite == "stop" and int(output.skipped_updates):
            raise NonFiniteError(
                f"the loss or its gradient was not finite at step {int(output.first_skipped_step)}; {remedy}, or "
                "--nonfinite skip to continue without such updates"
            )
        if not finite:
            raise NonFiniteError(f"the parameters are not finite after step {step}; {remedy}")

    def evaluated(self, score: dict[str, float], config: TrainConfig, layout: Parallel) -> None:
        """Records the validation loss and the score. If the loss has stopped improving, starts averaging (NT-ASGD), or
        lowers the learning rate (plateau)."""
        self.losses, self.scores = [*self.losses, score["loss"]], [*self.scores, score["score"]]
        state, patience = self.state, config.nt_asgd_patience
        stalled = patience is not None and has_stalled(self.losses, patience)
        if stalled and not np.asarray(layout.fetch(state.averaged)).any():  # in NumPy: nothing is compiled here
            self.state = dataclasses.replace(state, averaged=layout.place(np.int32(1)))
        scale = config.optimizer.schedule.scale(self.losses)
        if scale is not None:
            scaled = with_plateau_scale(self.state.opt_state, layout.place(np.float32(scale)))
            self.state = dataclasses.replace(self.state, opt_state=scaled)


@jax.jit
def all_finite(tree: PyTree) -> Array:
    """Whether every value is finite, [] bool."""
    return jnp.all(jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]))


def has_stalled(losses: Sequence[float], patience: int) -> bool:
    """Whether the latest validation loss is above the lowest of those more than `patience` evaluations before it.
    Losses that are not finite are left out.

    Source: Merity et al. 2018, algorithm 1.
    """
    finite = [loss for loss in losses if math.isfinite(loss)]
    if not losses or not math.isfinite(losses[-1]):
        return False
    older = finite[: max(0, len(finite) - 1 - patience)]
    return len(older) > 0 and finite[-1] > min(older)
