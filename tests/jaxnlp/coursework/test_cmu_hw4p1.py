import os
import re
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.special

from jaxnlp.coursework.cmu_hw4p1 import generation, prediction
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from jaxnlp.tasks.language_model.evaluators import next_word_losses
from jaxnlp.text.words import WordVocabulary
from tests.coursework_runs import language_model
from tests.random_parameters import random_parameters

INP = np.random.default_rng(0).integers(0, 7, (4, 5)).astype(np.int32)
OUT = np.random.default_rng(1).integers(0, 7, 4).astype(np.int32)


def graded(scores, targets):
    """The homework's score: the mean negative log-likelihood in nats."""
    return -scipy.special.log_softmax(scores.astype(np.float64), axis=1)[np.arange(len(targets)), targets].mean()


def test_a_prediction_has_a_score_for_each_word_and_the_grade_is_that_of_the_evaluator_next_word():
    run = language_model()
    scores = prediction(INP, run)
    assert (type(scores), scores.shape, scores.dtype) == (np.ndarray, (4, 7), np.float32)
    expected = next_word_losses(run.model, run.params, INP, OUT).mean()
    np.testing.assert_allclose(graded(scores, OUT), expected, rtol=1e-5)


def test_each_generated_word_is_the_most_probable_one_after_the_words_before_it():
    run, text = language_model(), INP
    for _ in range(2):
        text = np.concatenate([text, prediction(text, run).argmax(axis=1)[:, None]], axis=1)
    found = generation(INP, 2, run)
    assert np.issubdtype(found.dtype, np.integer)
    np.testing.assert_array_equal(found, text[:, 5:])


def test_lists_and_longer_integers_are_ids_too():
    run = language_model()
    np.testing.assert_array_equal(prediction(INP.tolist(), run), prediction(INP, run))
    np.testing.assert_array_equal(generation(INP.astype(np.int64), 2, run), generation(INP, 2, run))


@pytest.mark.parametrize(
    ("inp", "forward", "message"),
    [
        (INP[0], 1, "expected inp as tokens [B, T] of int, got int32 [5]"),
        (INP.astype(np.float32), 1, "expected inp as tokens [B, T] of int, got float32 [4, 5]"),
        (INP + 1, 1, "the model's tokens are 0 to 6, but inp has 7 in row"),
        (INP[:, :0], 1, "got tokens (4, 0)|the prompt is empty"),
        (INP, 0, "max_new_tokens must be at least 1, got 0"),
    ],
    ids=["one window", "floats", "unknown id", "no words", "no new words"],
)
def test_what_is_no_batch_of_words_is_refused(inp, forward, message):
    pattern = "|".join(map(re.escape, message.split("|")))
    with pytest.raises(ValueError, match=pattern):
        generation(inp, forward, language_model())
    if forward:
        with pytest.raises(ValueError, match=pattern):
            prediction(inp, language_model())


@pytest.mark.thorough
@pytest.mark.realdata
def test_the_homeworks_fixtures_have_a_prediction_for_each_window_and_a_continuation_for_each_prompt():
    fixtures = Path(os.environ["JAXNLP_DATA"]) / "cmu11785_hw4p1" / "fixtures"
    config, words = RecurrentLMConfig(embedding_width=2, widths=(3,)), WordVocabulary(map(str, range(33_278)))
    model = config.build(words)
    params = jax.device_put(random_parameters(model, np.zeros((1, 1), np.int32), spread=0.1))
    run = Trained(RecurrentLanguageModel(), model, params, words)
    with np.load(fixtures / "prediction.npz") as arrays:
        scores = prediction(arrays["inp"], run)
        assert scores.shape == (128, 33_278)
        assert graded(scores, arrays["out"]) == pytest.approx(np.log(33_278), abs=0.1)  # it has learnt nothing
    assert generation(np.load(fixtures / "generation.npy"), 10, run).shape == (32, 10)
