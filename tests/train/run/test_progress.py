import io
import math
import shutil

import chex
import numpy as np
import pytest
from rich.console import Console

from jaxnlp.saving.checkpoint_reading import checkpoint_steps
from tests.train.loop_helpers import arrays, rows
from train.config import update
from train.report.logged_run import LoggedRun
from train.run.early_stopping import evaluations_since_best
from train.run.folder import has_ended, read_environment
from train.run.progress import all_finite, has_stalled
from train.sweep import SweptRun

NAN = float("nan")


@pytest.mark.parametrize(
    ("losses", "stalled"),
    [
        ([3.0, 2.0, 1.0], False),
        ([3.0, 2.0, 3.5], True),
        ([3.0, NAN, 2.0, 3.5], True),  # a NaN in between blocks nothing
        ([3.0, 2.0, NAN], False),
        ([NAN], False),
        ([], False),
    ],
)
def test_losses_that_are_not_finite_neither_start_averaging_nor_block_it(losses, stalled):
    assert has_stalled(losses, 1) == stalled


def begins_to_average(losses, patience):
    """The evaluation, from 1, at which algorithm 1 of Merity et al. 2018 begins to; None where it never does."""
    logs = []
    for number, loss in enumerate(losses, start=1):
        if len(logs) > patience and loss > min(logs[: len(logs) - patience]):
            return number
        logs.append(loss)
    return None


@pytest.mark.parametrize("patience", range(7))
def test_the_validation_loss_has_stalled_when_algorithm_1_says_so(patience):
    begun = set()
    for losses in np.random.default_rng(patience).random((200, 12)).tolist():
        stalled = [n for n in range(1, 13) if has_stalled(losses[:n], patience)]
        assert next(iter(stalled), None) == begins_to_average(losses, patience)
        begun.add(next(iter(stalled), None))
    assert len(begun) > 1


@pytest.fixture(scope="module")
def stalling(tiny_config):
    """A run of twelve steps whose validation loss rises after its third evaluation."""
    rates = {"optimizer.learning_rate": 10.0, "optimizer.schedule": "linear", "optimizer": "sgd"}
    return tiny_config(stop_after=2, evaluate_every_steps=1, keep_checkpoints=1, **rates)


@pytest.fixture(scope="module")
def ended(stalling, quick_fit, tmp_path_factory):
    """The folder of such a run, its last state, and what it printed."""
    workdir, console = tmp_path_factory.mktemp("ended"), Console(file=io.StringIO(), soft_wrap=True)
    outcome = quick_fit(stalling, workdir, console)
    assert outcome.stopped_by is None
    return workdir, arrays(outcome.state), console.file.getvalue()


def losses(workdir):
    return [row["loss"] for row in rows(workdir) if row["split"] == "validation"]


def test_a_run_ends_early_says_why_and_keeps_its_last_and_best_checkpoint(stalling, ended):
    workdir, state, printed = ended
    found = losses(workdir)
    step, best = len(found), found.index(min(found)) + 1
    assert step == int(state.step) < stalling.total_steps
    assert evaluations_since_best([-loss for loss in found]) == step - best == 2
    assert {best, step} <= {*checkpoint_steps(workdir)}
    rate = rows(workdir)[-2]["learning_rate"]
    assert printed.splitlines()[-4:] == [
        "writing the report",
        "stopped early    the validation loss has not improved in 2 evaluations",
        f"last checkpoint  step {step} of 12; the learning rate {rate:.3g} is at step {step} of 12 of the schedule "
        "linear",
        f"best checkpoint  step {best}, with the validation loss {min(found):.4f}",
    ]


@pytest.mark.thorough
def test_the_same_command_on_a_run_that_has_stopped_early_says_so_and_trains_nothing(
    stalling, ended, quick_fit, loud, tmp_path
):
    workdir, state, _ = ended
    workdir = shutil.copytree(workdir, tmp_path / "run")
    before = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    again = quick_fit(stalling, workdir, loud)
    chex.assert_trees_all_equal(arrays(again.state), state)
    assert {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()} == before
    assert "the run has stopped early; to continue it, give a larger --stop-after, or None" in loud.file.getvalue()
    assert has_ended(workdir, stalling)
    assert SweptRun({}, (), stalling, workdir).finished
    longer = update(stalling, stop_after=None)
    assert not has_ended(workdir, longer)
    assert int(quick_fit(longer, workdir).state.step) == 12
    assert has_ended(workdir, longer)


@pytest.mark.thorough
def test_a_run_that_was_stopped_and_continued_ends_early_at_the_same_bits(
    stalling, ended, quick_fit, stop_at, tmp_path
):
    workdir, state, _ = ended
    with stop_at(3):
        assert quick_fit(stalling, tmp_path).stopped_by == "SIGTERM"
    with stop_at(int(state.step)):  # the run ends there all the same
        outcome = quick_fit(stalling, tmp_path)
    assert outcome.stopped_by is None
    chex.assert_trees_all_equal(arrays(outcome.state), state)
    assert rows(tmp_path) == rows(workdir)


def test_the_report_says_that_a_run_has_stopped_early(stalling, ended):
    workdir, _, _ = ended
    environment, logged = read_environment(workdir), rows(workdir)
    reason = "the validation loss has not improved in 2 evaluations"
    assert LoggedRun("a", {"stop_after": 2}, environment, logged).early_stop == reason
    assert LoggedRun("a", {"stop_after": None}, environment, logged).early_stop == ""
    assert LoggedRun("a", {}, {}, logged).early_stop == ""


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 5])
def test_one_value_that_is_not_finite_is_found_in_any_leaf(bad, place):
    tree = {"a": np.zeros((2, 3), np.float32), "b": (np.ones(1, np.float32), None)}
    assert bool(all_finite(tree)) is True
    tree["a"].flat[place] = bad
    assert bool(all_finite(tree)) is False
    tree["a"].flat[place], tree["b"][0][0] = 0.0, bad
    assert bool(all_finite(tree)) is False
