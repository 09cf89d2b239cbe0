"""Runs that become longer than they were planned."""

import chex
import pytest

from jaxnlp.runs import load_run
from tests.train.loop_helpers import arrays
from train.config import update
from train.run.folder import RunMismatchError, read_config, read_environment


@pytest.mark.thorough
def test_a_run_becomes_longer_where_the_learning_rate_does_not_depend_on_its_length(tiny_config, quick_fit, tmp_path):
    """The straight run of the new length and the one that was made longer end at the same bits."""
    config = tiny_config(total_steps=6, **{"optimizer.schedule": "constant"})
    quick_fit(update(config, total_steps=3), tmp_path / "longer")
    longer = quick_fit(config, tmp_path / "longer").state
    chex.assert_trees_all_equal(arrays(longer), arrays(quick_fit(config, tmp_path / "straight").state))
    decaying = update(config, **{"optimizer.schedule": "cosine"})
    quick_fit(update(decaying, total_steps=3), tmp_path / "decaying")
    with pytest.raises(RunMismatchError, match="total_steps: 3 -> 6"):
        quick_fit(decaying, tmp_path / "decaying")


@pytest.mark.thorough
def test_a_run_that_is_extended_says_so_and_its_older_checkpoints_still_load(
    tiny_config, tiny_gpt, quick_fit, tmp_path
):
    config = tiny_config(model=tiny_gpt, total_steps=3, evaluate_every_steps=3, **{"optimizer.schedule": "cosine"})
    quick_fit(config, tmp_path)
    longer = update(config, total_steps=6)
    with pytest.raises(RunMismatchError, match=r"(?s)depend on total_steps\. --extend continues anyway.*: 3 -> 6"):
        quick_fit(longer, tmp_path)
    with pytest.raises(RunMismatchError, match="seed: 0 -> 1"):
        quick_fit(update(longer, seed=1), tmp_path, extend=True)
    written = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(written.replace('"total_steps": 3', '"total_steps": 6'))
    for extend in (False, True):
        with pytest.raises(RunMismatchError, match=r"config\.json was edited .* undo the change: total_steps: 3 -> 6"):
            quick_fit(longer, tmp_path, extend=extend)
    (tmp_path / "config.json").write_text(written)
    assert int(quick_fit(longer, tmp_path, extend=True).state.step) == 6
    assert read_environment(tmp_path)["extended_from_total_steps"] == [3]
    assert read_config(tmp_path).total_steps == 6
    assert load_run(tmp_path, checkpoint=3).step == 3
    quick_fit(longer, tmp_path)  # it is finished, and needs no flag
    assert read_environment(tmp_path)["extended_from_total_steps"] == [3]
