"""The lines that a run prints before its first step and after its last one.

Before: its data, parameters and devices, and settings that need a longer run. After: its checkpoints, and the state of
its learning-rate schedule.
"""

from collections.abc import Sequence
from pathlib import Path

import jax
from rich.console import Console

from jaxnlp.corpus import Corpus
from jaxnlp.saving.checkpoint_reading import find_checkpoint
from train.config import TrainConfig
from train.parallel import Parallel
from train.run import folder as run_folder
from train.run.early_stopping import reason_to_stop
from train.run.machine import device_name
from train.run.setup import Setup


def announcement(setup: Setup, layout: Parallel, *, step: int, ended: bool = False) -> list[str]:
    """The lines before training, after `step` steps, perhaps all."""
    total, types = setup.config.total_steps, setup.config.model.compute.types
    if step >= total:
        state = [f"the run is finished, at step {step} of {total}"]
    elif ended:
        state = ["the run has stopped early; to continue it, give a larger --stop-after, or None"]
    else:
        state = [*([f"continuing from step {step} of {total}"] if step else []), "compiling the training step"]
    return [
        setup.corpus.description,
        *notes_of_splits(setup.corpus),
        *setup.begun.notes,
        *settings_for_longer_runs(setup.config),
        f"{setup.num_parameters:,} parameters, {jax.device_count()} x {device_name()}, {types}",
        *layout.lines(),
        *state,
    ]


def ending(workdir: Path, setup: Setup, *, scores: Sequence[float], ended: bool) -> list[str]:
    """The lines after training: last checkpoint, state of the schedule, best checkpoint, reason of an early stop.

    Args:
      workdir: the run's folder, with at least one checkpoint.
      setup: of the run.
      scores: of all evaluations.
      ended: whether the run has done its last step, or has stopped early.
    """
    config, last = setup.config, find_checkpoint(workdir, "latest").step
    lines = [f"last checkpoint  step {last} of {config.total_steps}; {schedule_state(workdir, config, last)}"]
    best = find_checkpoint(workdir, "best")
    if best.metrics is not None:
        sign = 1.0 if setup.metrics[config.best_metric].better == "higher" else -1.0
        score = sign * best.metrics["score"]
        line = f"best checkpoint  step {best.step}, with the validation {config.best_metric} {score:.4f}"
        equal = list(scores).count(best.metrics["score"]) > 1 and config.best_metric != "loss"
        lines.append(f"{line} and, of several with this value, the lowest loss" if equal else line)
    if ended and last < config.total_steps:
        lines.insert(0, f"stopped early    {reason_to_stop(config.best_metric, scores)}")
    return lines


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Prints lines as plain texts, in the process that writes the run's folder."""
    if run_folder.writes_folder():
        for line in lines:
            console.print(line, highlight=False, markup=False, emoji=False)


def schedule_state(workdir: Path, config: TrainConfig, step: int) -> str:
    """The learning rate of a step, and the step's position in the schedule."""
    rate = run_folder.learning_rate(workdir / run_folder.METRICS_FILE, step)
    words = "the learning rate" if rate is None else f"the learning rate {rate:.3g}"
    return f"{words} {config.optimizer.schedule.state(step, config.total_steps)}"


def notes_of_splits(corpus: Corpus) -> list[str]:
    """A line for each note of the splits, after the names of its splits."""
    names_of: dict[str, list[str]] = {}
    for name, split in corpus.splits.items():
        for note in split.notes:
            names_of.setdefault(note, []).append(name)
    return [f"{', '.join(names)}: {note}" for note, names in names_of.items()]


def settings_for_longer_runs(config: TrainConfig) -> list[str]:
    """A line for each setting that needs more steps or evaluations than the run has."""
    evaluations = -(-config.total_steps // config.evaluate_every_steps)
    lines = config.optimizer.schedule.shortfalls(config.total_steps, evaluations)
    if config.nt_asgd_patience is not None and evaluations <= config.nt_asgd_patience + 2:
        lines.append(
            f"averaging needs at least {config.nt_asgd_patience + 2} evaluations, but the run has {evaluations}; "
            "evaluate more often, or lower --nt-asgd-patience"
        )
    if config.stop_after is not None and evaluations < config.stop_after + 2:
        lines.append(
            f"early stopping needs at least {config.stop_after + 2} evaluations, but the run has {evaluations}; "
            "evaluate more often, or lower --stop-after"
        )
    return lines
