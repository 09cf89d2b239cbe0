import dataclasses

import pytest

from data import Split
from train.announcement import announcement, notes_of_splits, settings_for_longer_runs
from train.begin import begin
from train.config import update
from train.setup import set_up


@pytest.fixture
def begun(tiny_config):
    return begin(tiny_config())._replace(notes=("heads are initialised at random",))


@pytest.fixture
def setup(begun):
    return set_up(begun)


@pytest.mark.parametrize(
    ("step", "last"),
    [
        (0, ["compiling the training step"]),
        (2, ["continuing from step 2 of 12", "compiling the training step"]),
        (12, ["the run is finished, at step 12 of 12"]),
    ],
)
def test_a_run_announces_data_notes_parameters_devices_and_where_it_continues(setup, begun, step, last):
    first, note, size, *rest = announcement(setup, begun, step=step)
    assert first == "text_file: 900 characters, 11 distinct; 810 for training, 90 for validation"
    assert note == "heads are initialised at random"
    assert size.startswith("187 parameters, 8 x ")
    assert rest == last


def test_notes_name_all_their_splits(setup):
    notes = ("1 pair was truncated to 8 tokens per side, the first in line 3 of dev[en].txt", "another")
    splits = {"validation": Split(notes=notes), "test": Split(), "dev": Split(notes=("another", "third"))}
    assert notes_of_splits(dataclasses.replace(setup.corpus, splits=splits)) == [
        "validation: 1 pair was truncated to 8 tokens per side, the first in line 3 of dev[en].txt",
        "validation, dev: another",
        "dev: third",
    ]


@pytest.mark.parametrize(("patience", "steps", "given"), [(5, 3, True), (0, 3, True), (0, 5, False)])
def test_too_few_evaluations_to_average_are_announced(tiny_config, patience, steps, given):
    config = tiny_config(nt_asgd_patience=patience, total_steps=steps, evaluate_every_steps=2)
    line = (
        f"averaging needs at least {patience + 2} evaluations, but the run has 2; evaluate more often, or lower "
        "--nt-asgd-patience"
    )
    assert settings_for_longer_runs(config) == [line] * given


@pytest.mark.parametrize(("patience", "steps", "given"), [(0, 2, True), (8, 2, True), (1, 4, False)])
def test_a_plateau_that_cannot_be_found_is_announced(tiny_config, patience, steps, given):
    changes = {"optimizer.schedule": "plateau", "optimizer.plateau_patience": patience}
    config = update(tiny_config(total_steps=steps, evaluate_every_steps=1), **changes)
    line = (
        f"the schedule plateau needs at least {patience + 2} evaluations, but the run has {steps}; evaluate more "
        "often, or lower --optimizer.plateau-patience"
    )
    assert settings_for_longer_runs(config) == [line] * given


@pytest.mark.parametrize(("warmup", "steps", "given"), [(100, 30, True), (30, 30, False)])
def test_a_warmup_that_is_longer_than_the_run_is_announced(tiny_config, warmup, steps, given):
    config = update(tiny_config(total_steps=steps), **{"optimizer.warmup_steps": warmup})
    line = (
        "the warmup of 100 steps is longer than the run, so the learning rate ends at 30% of its peak; lower "
        "--optimizer.warmup-steps"
    )
    assert settings_for_longer_runs(config) == [line] * given
