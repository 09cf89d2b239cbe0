from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxnlp.corpus import DataError, Split
from jaxnlp.decoding.generation import decoder_of
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.ops.compiler_options import jit
from jaxnlp.pages.content import HeatMap
from jaxnlp.tasks import Metric, Trained
from jaxnlp.tasks.question_answering import QuestionAnswering, evaluators
from jaxnlp.tasks.question_answering.answers import answer
from jaxnlp.tasks.question_answering.evaluators import (
    MAX_LISTED,
    MAX_MAPS,
    ConstantAnswer,
    Validation,
    answer_sections,
    attention_sections,
    attention_to_inputs,
)
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.questions import Question
from tests.random_parameters import random_parameters
from train.evaluation.scoring import SplitScoring
from train.parallel import make_parallel

VOCABULARY = CharacterVocabulary.of("abcdefgh?", special=PAD + MASK)
TRAINING = [Question("a?", "bad"), Question("b?", "bad"), Question("c?", "egg")]
ASKED = [Question("aa?", "bad"), Question("bbb?", "egg"), Question("h?", "cab")]


class AttendsToTheFirst:
    """A model whose position t of T attends only to input 0."""

    capacity, config = 20, SimpleNamespace(attends=True)

    def attention_maps(self, params, tokens):
        rows, length = tokens.shape
        weights = np.zeros((1, rows, 2, length, length), np.float32)
        weights[..., 0] = 1.0
        return {"blocks": weights}


def scoring_of(model, params=None, questions=ASKED, training=TRAINING, **fields):
    trained = Trained(QuestionAnswering(), model, params or {}, VOCABULARY)
    training = None if training is None else Split(examples=training)
    split, layout = Split(examples=questions, **fields), make_parallel("jit", jax.devices()[:1])
    objective = None if not hasattr(model, "apply") else trained.task.objective(model, None)
    return SplitScoring(trained, split, "dev", training=training, objective=objective, layout=layout, kept={})


def test_accuracy_is_shown_by_how_often_the_answer_occurs_in_training():
    frequency, listed = answer_sections(ASKED, ["bad", "cab", ""], Split(examples=TRAINING))
    assert frequency.content.rows == (("never", 1, 0.0), ("once", 1, 0.0), ("2 to 4", 1, 1.0))
    assert listed.content.rows == (("aa?", "bad", "bad"), ("bbb?", "cab", "egg"), ("h?", "", "cab"))
    assert listed.content.marks == ("good", "bad", "bad")
    assert listed.content.note == "1 of 3 right; the first 3 are listed."


def test_without_training_questions_there_are_only_the_answers_and_few_are_listed():
    (listed,) = answer_sections(ASKED * 20, ["bad", "cab", ""] * 20, None)
    assert len(listed.content.rows) == len(listed.content.marks) == MAX_LISTED
    assert listed.content.note == f"20 of 60 right; the first {MAX_LISTED} are listed."


def heat_maps(scoring, questions, given):
    sections = attention_sections(scoring, questions, given)
    assert all(isinstance(section.content, HeatMap) for section in sections)
    return [section.content for section in sections]


def test_each_character_of_an_answer_has_a_weight_for_each_of_the_question_and_mask():
    shown = heat_maps(scoring_of(AttendsToTheFirst()), ASKED, ["bad", "cabbage", ""])
    texts = [("".join(one.columns), "".join(one.rows), one.title) for one in shown]
    assert texts == [(f"aa?{MASK}", "bad", "bad (right)"), (f"bbb?{MASK}", "cabbage", "cabbage (expected egg)")]
    for one in shown:
        weights = np.array(one.weights)
        assert weights.shape == (len(one.rows), len(one.columns))
        np.testing.assert_allclose(weights[:, 0], 0.5)
    # The position of MASK predicts the first character, so it has the other half; later ones are outside the question.
    np.testing.assert_allclose(np.array(shown[0].weights)[:, -1], [0.5, 0.0, 0.0])


def test_a_model_without_attention_has_no_maps_and_others_have_a_few():
    assert heat_maps(scoring_of(SimpleNamespace(config=SimpleNamespace(attends=False))), ASKED, ["bad"] * 3) == []
    assert len(heat_maps(scoring_of(AttendsToTheFirst()), ASKED * 4, ["bad"] * 12)) == MAX_MAPS


GPTS = {
    "vanilla": {"num_layers": 12},
    "synthesizer": {"kind": SynthesizerConfig},
    "perceiver": {"kind": PerceiverConfig, "num_layers": 4, "num_latents": 4},
    "along": {"kind": PerceiverConfig, "num_layers": 4, "num_latents": 4, "latent_placement": "along"},
}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("variant", GPTS)
def test_weights_are_those_of_each_single_text_and_one_program_computes_all(variant):
    shape = {
        "num_layers": 2,
        "num_heads": 2,
        "width": 8,
        "context_length": 40,
        "compute": TransformerCompute(scan_layers=True),
    } | GPTS[variant]
    model = shape.pop("kind", GPTConfig)(**shape).build(VOCABULARY)
    # Large ones, so that attention is far from even.
    params = jax.device_put(random_parameters(model, np.zeros((1, 1), np.int32), spread=0.4))
    scoring = scoring_of(model, params)
    for given in (["bad", "cabbage", "a"], ["beef", "", ""]):
        shown = heat_maps(scoring, ASKED, given)
        assert len(shown) == len([one for one in given if one])
        for one in shown:
            text, answered = "".join(one.columns), "".join(one.rows)
            alone = attention_to_inputs(jax.jit(model.attention_maps)(params, VOCABULARY.encode(text + answered)[None]))
            first = len(text) - 1
            expected = alone[0, first : first + len(answered), : first + 1]
            np.testing.assert_allclose(one.weights, expected, atol=1e-3)
    assert scoring.once(jit, model.attention_maps)._cache_size() == 1


def test_an_answer_may_fill_the_models_context():
    given = "a" * (AttendsToTheFirst.capacity - len("aa?") - len(MASK) + 1)
    (shown,) = heat_maps(scoring_of(AttendsToTheFirst()), ASKED[:1], [given])
    assert len(shown.weights) == len(given)


def random_weights(*shape, seed=0):
    logits = np.random.default_rng(seed).normal(size=shape)
    causal = np.arange(shape[-2])[:, None] >= np.arange(shape[-1])
    weights = np.where(causal, np.exp(logits), 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_layers_are_multiplied_and_half_of_each_is_the_residual_connection():
    weights = random_weights(2, 2, 3, 5, 5)
    found = attention_to_inputs({"blocks": weights})
    for example in range(2):
        layers = [(layer[example].mean(axis=0) + np.eye(5)) / 2 for layer in weights]
        np.testing.assert_allclose(found[example], layers[1] @ layers[0])


@pytest.mark.parametrize("blocks", [0, 1, 2])
@pytest.mark.parametrize("extra", [0, 6])
def test_rows_sum_to_one_and_do_not_see_later_positions(blocks, extra):
    """Maps of a Perceiver of 3 latents and 6 positions, whose outputs may attend to the inputs next to the latents."""
    maps = {"down_project": random_weights(1, 1, 2, 3, 6)}
    maps |= {"blocks": random_weights(blocks, 1, 2, 3, 3)} if blocks else {}
    up = np.concatenate([random_weights(1, 1, 2, 6, 3), random_weights(1, 1, 2, 6, 6)[..., :extra]], axis=-1)
    maps["up_project"] = up / up.sum(axis=-1, keepdims=True)
    found = attention_to_inputs(maps)
    assert found.shape == (1, 6, 6)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0)
    np.testing.assert_allclose(np.triu(found[0], 1), 0.0, atol=1e-12)


def test_an_output_of_a_perceiver_attends_to_what_its_latents_attend_to():
    down = np.zeros((1, 1, 1, 2, 4))
    down[..., 1] = 1.0  # both latents attend to input 1
    up = np.zeros((1, 1, 1, 4, 2))
    up[..., 1] = 1.0  # all outputs attend to the second
    found = attention_to_inputs({"down_project": down, "up_project": up})
    expected = 0.5 * np.eye(4)
    expected[:, 1] += 0.5
    np.testing.assert_allclose(found[0], expected)


@pytest.fixture(scope="module")
def model():
    return GPTConfig(num_layers=1, num_heads=2, width=8, context_length=40).build(VOCABULARY)


@pytest.fixture(scope="module")
def params(model):
    return jax.jit(lambda: model.init(jax.random.key(0), np.zeros((1, 1), np.int32)))()["params"]


def batch_of(questions):
    """Padded rows, scored on the answers."""
    rows = [VOCABULARY.encode(f"{q.text}{MASK}{q.answer}{MASK}") for q in questions]
    text = np.zeros((len(rows), max(map(len, rows))), np.int32)
    mask = np.zeros(text.shape, bool)
    for number, (row, question) in enumerate(zip(rows, questions, strict=True)):
        text[number, : len(row)] = row
        mask[number, len(question.text) + 1 : len(row)] = True
    return {"tokens": text[:, :-1], "targets": text[:, 1:], "loss_mask": mask[:, 1:]}


@pytest.mark.thorough
def test_validation_gives_the_loss_the_share_of_right_answers_and_the_answers(model, params):
    given = answer(decoder_of(model), params, VOCABULARY, [question.text for question in ASKED])
    # The model is untrained: the expected answers are made to fit its own, but for the last.
    questions = [Question(q.text, line or "x") for q, line in zip(ASKED[:2], given, strict=False)] + [ASKED[2]]
    right = sum(q.answer == line for q, line in zip(questions, given, strict=True))
    assert right == 2
    evaluation = Validation()(scoring_of(model, params, questions, batches=(batch_of(ASKED),)))
    assert evaluation.metrics["exact_match"] == Metric(2 / 3, 3)
    assert evaluation.metrics["loss"].count == sum(len(q.answer) + 1 for q in ASKED)
    declared = set(QuestionAnswering().metrics(VOCABULARY, Split(examples=questions)))
    assert evaluation.metrics.keys() == declared - {"positions_per_token"}
    assert evaluation.predictions == {"answers.txt": "".join(f"{line}\n" for line in map(evaluators.one_line, given))}
    assert {"Answers", "Accuracy by frequency of the answer"} <= {section.name for section in evaluation.sections}


def test_questions_without_answers_are_answered_and_not_scored(model, params):
    questions = [Question(question.text) for question in ASKED]
    evaluation = Validation()(scoring_of(model, params, questions, scored=False))
    assert evaluation.metrics == {}
    assert evaluation.predictions["answers.txt"].count("\n") == 3
    assert evaluation.sections == []


def test_documents_without_questions_have_only_a_loss(model, params):
    evaluation = Validation()(scoring_of(model, params, (), batches=(batch_of(ASKED),)))
    assert evaluation.metrics.keys() == {"loss"}
    assert evaluation.predictions == {}


def test_a_constant_answer_is_right_where_it_is_the_expected_one():
    evaluation = ConstantAnswer(answer="egg")(scoring_of(object(), training=None))
    assert evaluation.metrics == {"exact_match": Metric(1 / 3, 3)}
    assert evaluation.remarks == {"answer": "egg"}


def test_the_most_frequent_answer_of_training_is_the_default():
    asked = [*ASKED, Question("e?", "bad")]
    evaluation = ConstantAnswer()(scoring_of(object(), questions=asked))
    assert evaluation.metrics == {"exact_match": Metric(0.5, 4)}
    assert evaluation.remarks == {"answer": "bad"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"training": None}, "needs training questions; give --answer"),
        ({"training": []}, "needs training questions; give --answer"),
        ({"questions": ()}, "dev has no questions with answers"),
        ({"scored": False}, "dev has no questions with answers"),
    ],
)
def test_a_constant_answer_needs_questions_with_answers(fields, message):
    with pytest.raises(DataError, match=message):
        ConstantAnswer()(scoring_of(object(), **fields))
