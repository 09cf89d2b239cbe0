"""Entities of the small grammar, learnt by a small BiLSTM-CRF."""

import pytest

from configs.small_grammar_tagger import get_config
from jaxnlp.runs import load_run
from tests.jaxnlp.tasks.two_devices import train
from train.config import update


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run's folder."""
    folder = tmp_path_factory.mktemp("tagger") / "run"
    small = {"word_width": 24, "character_features": 8, "recurrent_widths": (24,), "input_dropout_rate": 0.1}
    fields = {f"model.{name}": value for name, value in small.items()} | {"model.output_dropout_rate": 0.0}
    fields |= {"data.sentences": 800, "data.held_out_sentences": 60, "data.batch_size": 16, "data.max_characters": 8}
    # One length, so that one program is compiled.
    fields |= {"data.length_multiple": 24, "data.max_length": 24, "model.word_dropout_rate": 0.02}
    fields |= {"optimizer.learning_rate": 3e-2, "optimizer.schedule.warmup": 5}
    fields |= dict.fromkeys(("total_steps", "evaluate_every_steps", "checkpoint_every_steps"), 150)
    return train(update(get_config(), **fields), folder)


@pytest.fixture(scope="session")
def trained(run):
    """The model of the run."""
    return load_run(run)
