"""What a run prints before its first step: its data, parameters and devices, and settings that need a longer run."""

import jax

from jaxnlp.corpus import Corpus
from train import run_folder
from train.begin import Initialisation
from train.config import TrainConfig
from train.setup import Setup, count_parameters


def announcement(setup: Setup, begun: Initialisation, *, step: int) -> list[str]:
    """The lines that summarise a run which has trained `step` steps so far."""
    total = setup.config.total_steps
    parameters = count_parameters(setup.abstract_state().params)
    return [
        setup.corpus.description,
        *notes_of_splits(setup.corpus),
        *begun.notes,
        *settings_for_longer_runs(setup.config),
        f"{parameters:,} parameters, {jax.device_count()} x {run_folder.device_name()}",
        *([f"continuing from step {step} of {total}"] if 0 < step < total else []),
        "compiling the training step" if step < total else f"the run is finished, at step {step} of {total}",
    ]


def notes_of_splits(corpus: Corpus) -> list[str]:
    """A line for each note of the splits. It starts with the names of the split, which may have two."""
    names_of: dict[str, list[str]] = {}
    for name, split in corpus.splits.items():
        for note in split.notes:
            names_of.setdefault(note, []).append(name)
    return [f"{', '.join(names)}: {note}" for note, names in names_of.items()]


def settings_for_longer_runs(config: TrainConfig) -> list[str]:
    """A line for each setting that needs more steps, or more evaluations, than the run has."""
    evaluations = -(-config.total_steps // config.evaluate_every_steps)
    lines = []
    warmup = config.optimizer.warmup_steps
    if warmup > config.total_steps:
        lines.append(
            f"the warmup of {warmup} steps is longer than the run, so the learning rate ends at "
            f"{config.total_steps / warmup:.0%} of its peak; lower --optimizer.warmup-steps"
        )
    if config.nt_asgd_patience is not None and evaluations <= config.nt_asgd_patience + 2:
        lines.append(
            f"averaging needs at least {config.nt_asgd_patience + 2} evaluations, but the run has {evaluations}; "
            "evaluate more often, or lower --nt-asgd-patience"
        )
    needed = config.optimizer.plateau_patience + 2
    if config.optimizer.schedule == "plateau" and evaluations <= needed:
        lines.append(
            f"the schedule plateau needs at least {needed} evaluations, but the run has {evaluations}; evaluate more "
            "often, or lower --optimizer.plateau-patience"
        )
    return lines
