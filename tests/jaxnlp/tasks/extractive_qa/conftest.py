"""A small model that finds birth places, trained; and one of a BERT with random parameters."""

import jax
import pytest

from configs.invented_people_qa import get_config
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.extractive_qa import BertSpanConfig
from jaxnlp.runs import load_run
from jaxnlp.tasks import Trained
from jaxnlp.tasks.extractive_qa import ExtractiveQA
from jaxnlp.text.question_contexts import QuestionProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.jaxnlp.tasks.two_devices import train
from tests.random_parameters import random_parameters
from train.config import update


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run's folder."""
    folder = tmp_path_factory.mktemp("extractive_qa") / "run"
    fields = {"model.embedding_width": 32, "model.widths": (32,), "data.people": 60, "data.batch_size": 16}
    fields |= {"data.max_length": 128, "data.overlap": 32, "data.length_multiple": 128}  # one program
    fields |= {"optimizer.learning_rate": 1e-2, "optimizer.schedule.warmup": 5}
    fields |= dict.fromkeys(("total_steps", "evaluate_every_steps", "checkpoint_every_steps"), 100)
    return train(update(get_config(), **fields), folder)


@pytest.fixture(scope="session")
def trained(run) -> Trained:
    """The model of the run."""
    return load_run(run)


@pytest.fixture(scope="session")
def bert() -> Trained:
    """A BERT with random parameters."""
    words = ["where", "was", "ann", "born", "in", "oslo", "lim", "##a", "?", "."]
    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, *words])
    config = BertSpanConfig(encoder=BertConfig(num_layers=1, num_heads=2, width=8, max_positions=32))
    processor = QuestionProcessor(vocabulary, 24, 4)
    model = config.build(processor)
    params = random_parameters(model, *config.inputs(processor), spread=1.0)
    return Trained(ExtractiveQA(), model, jax.device_put(params), processor, name="tiny")
