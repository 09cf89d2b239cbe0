"""A short run of the recipe on the small grammar, which all tests score and use."""

import jax
import pytest
from rich.console import Console

from configs import small_grammar_parser
from tests.jaxnlp.tasks.two_devices import two_devices
from train.config import update
from train.loop import fit

SMALL = {
    "data.sentences": 400,
    "data.held_out_sentences": 40,
    "data.lengths": (),
    "data.max_length": 32,
    "data.minimum_count": 1,
    "model.hidden_width": 64,
    "model.word_width": 16,
    "model.tag_width": 16,
    "model.label_width": 8,
    "model.dropout_rate": 0.1,
    "optimizer.learning_rate": 1e-2,
    "optimizer.schedule.warmup": 5,
    "task.l2": 1e-8,
    "task.label_smoothing": 0.01,
    "ema_decay": 0.9,
}


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Its folder."""
    folder = tmp_path_factory.mktemp("parsing") / "run"
    config = update(
        small_grammar_parser.get_config(), total_steps=60, evaluate_every_steps=60, log_every_steps=10, **SMALL
    )
    with two_devices(), jax.numpy_dtype_promotion("standard"):
        fit(config, folder, console=Console(quiet=True))
    return folder
