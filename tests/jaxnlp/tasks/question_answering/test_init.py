import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.corpus import Split
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks import MetricKind
from jaxnlp.tasks.question_answering import QuestionAnswering
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.questions import Question

VOCABULARY = CharacterVocabulary.of("abc?", special=PAD + MASK)
QUESTIONS = (Question("a?", "b"),)


def test_only_questions_with_answers_have_a_share_of_right_ones():
    task = QuestionAnswering()
    names = {"loss", "exact_match", "positions_per_token"}
    assert task.metrics(VOCABULARY, Split(examples=QUESTIONS)).keys() == names
    assert task.metrics(VOCABULARY, Split(examples=QUESTIONS, scored=False)).keys() == names - {"exact_match"}
    assert task.metrics(VOCABULARY, Split()).keys() == names - {"exact_match"}
    assert task.metrics(VOCABULARY, Split(examples=QUESTIONS))["exact_match"] == MetricKind("questions")
    assert task.metrics(VOCABULARY, Split())["positions_per_token"].title == "positions per character"


@pytest.mark.thorough
def test_progress_counts_all_processed_tokens_and_the_loss_only_scored_ones():
    """The throughput once counted only scored targets: one token in many of a question."""
    model = GPTConfig(num_layers=1, num_heads=1, width=4, context_length=8).build(VOCABULARY)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    tokens = np.zeros((2, 8), np.int32)
    tokens[0, :6], tokens[1, :3] = 3, 4
    mask = np.zeros((2, 8), bool)
    mask[0, 5], mask[1, 2] = True, True
    objective = QuestionAnswering().objective(model, None)
    batch = {"tokens": jnp.array(tokens), "targets": jnp.array(tokens), "loss_mask": jnp.array(mask)}
    _, (metrics, _) = jax.jit(objective.loss)(params, batch, None, ())
    assert metrics[objective.progress] == (16.0, 9.0)
    assert metrics["loss"][1] == 2.0
