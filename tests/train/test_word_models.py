"""The recipes of the word language models take a few steps, small, on a text that needs no files."""

import pytest

from train.command_line import RunOptions, parse
from train.config import update

SMALL = ["--data.source", "python_docs", "--data.batch-size", "8", "--model.embedding-width", "6", "--total-steps", "3"]


@pytest.mark.parametrize(
    ("recipe", "widths"), [("lstm_lm_hw4", ["5", "4"]), ("lstm_lm_cpu", ["5", "6"]), ("awd_lstm", ["7", "7", "6"])]
)
def test_each_recipe_trains_evaluates_and_continues_its_sample(quick_fit, tmp_path, recipe, widths):
    options = [*SMALL, "--data.sequence-length", "20", "--sample-length-tokens", "4", "--model.widths", *widths]
    config, _ = parse([recipe, *options], RunOptions(), program="train")
    # The text is long: few words of it are enough, and rare ones make the output layer slow.
    config = update(config, **{"data.minimum_count": 100, "data.evaluation_batch_size": 500, "sample_prompt": "The"})
    outcome = quick_fit(config, tmp_path)
    assert int(outcome.state.step) == 3
    assert int(outcome.state.skipped_updates) == 0
    assert (tmp_path / "blocks.jsonl").read_text().count("\n") == 1
    assert (tmp_path / "words.json").exists()
