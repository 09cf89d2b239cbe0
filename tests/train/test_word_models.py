"""The recipes of the word language models take a few steps, small, on a text that needs no files."""

import json

import pytest

from train.cli.command_line import RunOptions, parse
from train.config import update

SMALL = ["--data.source", "python_docs", "--data.batch-size", "8", "--model.embedding-width", "6", "--total-steps", "3"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("recipe", "widths"), [("lstm_lm_hw4", ["5", "4"]), ("lstm_lm_cpu", ["5", "6"]), ("awd_lstm", ["7", "7", "6"])]
)
def test_each_recipe_trains_and_shows_a_sample_and_its_words(quick_fit, tmp_path, recipe, widths):
    options = [
        *SMALL,
        "--data.sequence-length",
        "20",
        "--task.sample-prompt",
        "The",
        "--task.sample-tokens",
        "4",
        "--model.widths",
        *widths,
    ]
    config, _ = parse([recipe, *options], RunOptions(), program="train")
    # The text is long: few words of it are enough, and rare ones make the output layer slow.
    config = update(config, **{"data.minimum_count": 100, "data.evaluation_batch_size": 500})
    outcome = quick_fit(config, tmp_path)
    assert int(outcome.state.step) == 3
    assert int(outcome.state.skipped_updates) == 0
    blocks = [json.loads(line)["name"] for line in (tmp_path / "blocks.jsonl").read_text().splitlines()]
    assert blocks == ["Samples", "Perplexity by position", "Nearest embeddings"]
