import dataclasses
import json
import types

import pytest

from data import Split
from jaxnlp.tasks import MetricKind
from train.config import update
from train.optimizer.schedules import Constant, Cosine, Linear, Plateau
from train.parallel import make_parallel
from train.run import announcement as announcements
from train.run.announcement import announcement, ending, notes_of_splits, schedule_state, settings_for_longer_runs
from train.run.init_from import begin
from train.run.setup import set_up


@pytest.fixture
def setup(tiny_config):
    return set_up(begin(tiny_config())._replace(notes=("heads are initialised at random",)))


def steps_logged(folder):
    """A metrics.jsonl whose learning rate at step n is n / 10."""
    rows = [{"step": step, "split": "train", "learning_rate": step / 10} for step in (3, 6, 9)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("schedule", "state"),
    [
        (Cosine(), "the learning rate 0.6 is at step 6 of 12 of the schedule cosine"),
        (Linear(end=8), "the learning rate 0.6 is at step 6 of 8 of the schedule linear"),
        (Cosine(end=4), "the learning rate 0.6 is at step 4 of 4 of the schedule cosine"),
        (
            Linear(unit="tokens", end=900),
            "the learning rate 0.6 follows the schedule linear, of 900 tokens",
        ),
        (Constant(), "the learning rate 0.6 follows the schedule constant"),
        (Plateau(), "the learning rate 0.6 follows the schedule plateau"),
    ],
    ids=str,
)
def test_the_state_of_each_schedule_is_said(tiny_config, tmp_path, schedule, state):
    steps_logged(tmp_path)
    config = tiny_config(**{"optimizer.schedule": schedule})
    assert (
        schedule_state(tmp_path, config, 6) == schedule_state(tmp_path, config, 8).replace("step 8", "step 6") == state
    )


def test_a_schedule_without_logged_rates_is_said_without_one(tiny_config, tmp_path):
    expected = "the learning rate is at step 6 of 12 of the schedule cosine"
    assert schedule_state(tmp_path, tiny_config(), 6) == expected


@pytest.mark.parametrize(
    ("step", "last"),
    [
        (0, ["compiling the training step"]),
        (2, ["continuing from step 2 of 12", "compiling the training step"]),
        (12, ["the run is finished, at step 12 of 12"]),
    ],
)
def test_a_run_announces_data_notes_parameters_devices_and_where_it_continues(setup, step, last):
    first, note, size, *rest = announcement(setup, make_parallel("jit"), step=step)
    assert first == "text_file: 900 characters, 11 distinct; 810 for training, 90 for validation"
    assert note == "heads are initialised at random"
    assert size.startswith("187 parameters, 8 x ")
    assert size.endswith(", float32")
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
    changes = {"optimizer.schedule": "plateau", "optimizer.schedule.patience": patience}
    config = update(tiny_config(total_steps=steps, evaluate_every_steps=1), **changes)
    line = (
        f"the schedule plateau needs at least {patience + 2} evaluations, but the run has {steps}; "
        "evaluate more often, or lower --optimizer.schedule.patience"
    )
    assert settings_for_longer_runs(config) == [line] * given


@pytest.mark.parametrize(("patience", "steps", "given"), [(2, 3, True), (1, 2, True), (2, 4, False)])
def test_too_few_evaluations_to_stop_early_are_announced(tiny_config, patience, steps, given):
    config = tiny_config(stop_after=patience, total_steps=steps, evaluate_every_steps=1)
    line = (
        f"early stopping needs at least {patience + 2} evaluations, but the run has {steps}; evaluate more often, or "
        "lower --stop-after"
    )
    assert settings_for_longer_runs(config) == [line] * given


@pytest.mark.parametrize(("warmup", "steps", "given"), [(100, 30, True), (30, 30, False)])
def test_a_warmup_that_is_longer_than_the_run_is_announced(tiny_config, warmup, steps, given):
    config = update(tiny_config(total_steps=steps), **{"optimizer.schedule.warmup": warmup})
    line = (
        "the warmup of 100 steps is longer than the run, so the learning rate ends at 30% of its peak; lower "
        "--optimizer.schedule.warmup"
    )
    assert settings_for_longer_runs(config) == [line] * given


@pytest.mark.parametrize(("scores", "equal"), [([0.5, 0.75, 0.75], True), ([0.5, 0.6, 0.75], False)])
def test_the_best_of_several_checkpoints_with_equal_values_is_explained(tmp_path, monkeypatch, scores, equal):
    metrics = {"score": 0.75, "loss": 0.1}
    monkeypatch.setattr(announcements, "find_checkpoint", lambda *_: types.SimpleNamespace(step=3, metrics=metrics))
    monkeypatch.setattr(announcements, "schedule_state", lambda *_: "")
    config = types.SimpleNamespace(best_metric="accuracy", total_steps=9)
    setup = types.SimpleNamespace(config=config, metrics={"accuracy": MetricKind("texts")})
    reason, _, best = ending(tmp_path, setup, scores=scores, ended=True)
    assert reason.startswith("stopped early")
    assert best == "best checkpoint  step 3, with the validation accuracy 0.7500" + equal * (
        " and, of several with this value, the lowest loss"
    )
