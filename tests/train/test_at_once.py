"""Runs that one program trains have the numbers of runs that are trained one by one."""

import signal

import jax
import numpy as np
import pytest

from data.word_text import WordText
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.runs import load_run
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from tests.train.loop_helpers import rows
from train.at_once import fit_at_once
from train.config import update
from train.optimizer.schedules import Plateau
from train.run.folder import AT_ONCE, RunMismatchError, read_environment
from train.run.progress import NonFiniteError


@pytest.fixture
def endings():
    """How the runs of `at_once` ended."""
    return []


@pytest.fixture
def at_once(quiet, endings, monkeypatch):
    """`fit_at_once`, which draws no reports; returns the folders."""
    monkeypatch.setattr("train.loop.write_report", lambda _: None)

    def train(folder, *configs):
        folders = [folder / str(index) for index in range(len(configs))]
        endings.append(fit_at_once(configs, folders, [None] * len(configs), quiet))
        return folders

    return train


@pytest.fixture
def base(tiny_config, tiny_gpt):
    return tiny_config(model=tiny_gpt, ema_decay=0.9, total_steps=6, evaluate_every_steps=2)


def assert_equal_runs(one, other):
    """Equal records, and equal parameters of the newest checkpoint, except for rounding."""
    for ours, theirs in zip(rows(one), rows(other), strict=True):
        assert ours.pop("split") == theirs.pop("split")
        assert ours == pytest.approx(theirs, rel=2e-4)
    ours, theirs = (load_run(folder, checkpoint="latest").params for folder in (one, other))
    for (path, x), (_, y) in zip(_leaves(ours), _leaves(theirs), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-4, err_msg=path)


def _leaves(params):
    return [(jax.tree_util.keystr(path), np.asarray(x)) for path, x in jax.tree_util.tree_leaves_with_path(params)]


@pytest.mark.thorough
def test_a_recurrent_model_that_carries_its_state_is_trained_at_once(
    at_once, quick_fit, tiny_config, small_text, tmp_path
):
    size = {"batch_size": 8, "sequence_length": 4, "length_multiple": 4}
    data = WordText(source="text_file", path=str(small_text), minimum_count=1, **size)
    model = RecurrentLMConfig(embedding_width=4, widths=(4,))
    base = tiny_config(data=data, model=model, task=RecurrentLanguageModel(), total_steps=6)
    configs = [update(base, seed=seed, **{"data.few_lengths": False}) for seed in (0, 1)]
    for config, folder in zip(configs, at_once(tmp_path / "at_once", *configs), strict=True):
        quick_fit(config, tmp_path / "alone" / folder.name)
        assert_equal_runs(folder, tmp_path / "alone" / folder.name)


PLATEAU = Plateau(patience=0, decay_factor=0.1)
CHANGES = {
    "seeds and optimizers": [
        {"optimizer.learning_rate": 0.01, "optimizer.weight_decay": 0.1},
        {"optimizer.learning_rate": 0.05, "optimizer.weight_decay": 0.3, "seed": 3},
    ],
    "a plateau": [{"optimizer.schedule": PLATEAU, "seed": seed} for seed in (0, 1)],
}


@pytest.mark.thorough
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_runs_at_once_have_the_numbers_of_runs_one_by_one(changes, at_once, quick_fit, base, tmp_path):
    configs = [update(base, **change) for change in changes]
    folders = at_once(tmp_path / "at_once", *configs)
    for config, folder in zip(configs, folders, strict=True):
        quick_fit(config, tmp_path / "alone" / folder.name)
        assert_equal_runs(folder, tmp_path / "alone" / folder.name)
        assert read_environment(folder)[AT_ONCE] == 2
    assert rows(folders[0]) != rows(folders[1])


@pytest.mark.thorough
def test_stopped_runs_continue_at_once(at_once, endings, after_step, base, tmp_path):
    configs = [update(base, seed=seed) for seed in (0, 1)]
    whole = at_once(tmp_path / "whole", *configs)
    with after_step(3, lambda: signal.raise_signal(signal.SIGTERM)):
        stopped = at_once(tmp_path / "stopped", *configs)
    assert len(rows(stopped[0])) < len(rows(whole[0]))
    with after_step(10, lambda: signal.raise_signal(signal.SIGTERM)):  # the second log of the last step
        at_once(tmp_path / "stopped", *configs)
    assert [ending.stopped_by for ending in endings] == [None, "SIGTERM", None]
    for one, other in zip(stopped, whole, strict=True):
        assert load_run(one, checkpoint="latest").step == base.total_steps
        assert_equal_runs(one, other)


@pytest.mark.thorough
def test_runs_at_different_steps_are_refused(at_once, quick_fit, base, tmp_path):
    quick_fit(base, tmp_path / "0")
    before = read_environment(tmp_path / "0")
    with pytest.raises(RunMismatchError, match=r"0 to step 6, .*1 to step 0; repeat the command without --at-once"):
        at_once(tmp_path, base, update(base, seed=1))
    assert read_environment(tmp_path / "0") == before


@pytest.mark.thorough
def test_a_run_that_fails_does_not_stop_the_others(at_once, quick_fit, endings, base, tmp_path):
    configs = [base, update(base, **{"optimizer.learning_rate": 1e38})]
    folders = at_once(tmp_path / "at_once", *configs)
    quick_fit(base, tmp_path / "alone")
    assert_equal_runs(folders[0], tmp_path / "alone")
    assert list(endings[0].failed) == folders[1:]
    assert "not finite" in endings[0].failed[folders[1]]
    with pytest.raises(NonFiniteError):
        at_once(tmp_path / "all", configs[1], update(configs[1], seed=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.width": 4}, r"differ only in seed and optimizer:\n  model\.width: 8 -> 4"),
        ({"optimizer.weight_decay": 0.0}, "the optimizers keep different arrays; vary only their numbers"),
        ({"optimizer.frozen": ("head",)}, "the optimizers differ in frozen; vary only their numbers"),
    ],
    ids=["model", "state", "frozen"],
)
def test_runs_that_one_program_cannot_train_are_refused(changes, message, at_once, base, tmp_path):
    with pytest.raises(ConfigError, match=message):
        at_once(tmp_path, base, update(base, **changes))
    assert not any(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="stop_after must be None"):
        at_once(tmp_path, update(base, stop_after=3), update(base, stop_after=3, seed=1))
