import jax
import numpy as np
import pytest
from train.answers import MOST_SHOWN, attention_to_inputs, describe

from data import Question
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from train import answers

VOCABULARY = CharacterVocabulary.of("abcdefgh?", special=PAD + MASK)
TRAINING = [Question("a?", "bad"), Question("b?", "bad"), Question("c?", "egg")]
ASKED = [Question("aa?", "bad"), Question("bbb?", "egg"), Question("h?", "cab")]


class Looker:
    """Has attention that can be told apart: position t of T attends to input 0 alone."""

    capacity = 20

    def attention_maps(self, params, tokens):
        rows, length = tokens.shape
        weights = np.zeros((rows, 2, length, length), np.float32)
        weights[..., 0] = 1.0
        return {"block_0": weights}


def test_answers_say_how_often_their_place_occurs_in_training():
    rows = describe(object(), {}, VOCABULARY, ASKED, ["bad", "cab", ""], TRAINING)["answers"]
    assert rows == [
        {"question": "aa?", "answer": "bad", "given": "bad", "seen": 2},
        {"question": "bbb?", "answer": "egg", "given": "cab", "seen": 1},
        {"question": "h?", "answer": "cab", "given": "", "seen": 0},
    ]


def test_each_character_of_an_answer_has_a_weight_for_each_of_the_question_and_mask():
    shown = describe(Looker(), {}, VOCABULARY, ASKED, ["bad", "cabbage", ""], TRAINING)["attention"]
    texts = [(one["text"], one["given"], one["answer"]) for one in shown]
    assert texts == [(f"aa?{MASK}", "bad", "bad"), (f"bbb?{MASK}", "cabbage", "egg")]
    for one in shown:
        weights = np.array(one["weights"])
        assert weights.shape == (len(one["given"]), len(one["text"]))
        np.testing.assert_allclose(weights[:, 0], 0.5)
    # MASK says the first character, so the other half is its own; the characters after it lie outside the question.
    np.testing.assert_allclose(np.array(shown[0]["weights"])[:, -1], [0.5, 0.0, 0.0])


def test_a_model_without_attention_has_none_to_show_and_others_only_a_few():
    assert describe(object(), {}, VOCABULARY, ASKED, ["bad"] * 3, TRAINING)["attention"] == []
    many = ASKED * 4
    assert len(describe(Looker(), {}, VOCABULARY, many, ["bad"] * 12, TRAINING)["attention"]) == MOST_SHOWN


GPTS = {
    "vanilla": {"num_layers": 12},
    "synthesizer": {"kind": SynthesizerConfig},
    "perceiver": {"kind": PerceiverConfig, "num_layers": 4, "num_latents": 4},
    "along": {"kind": PerceiverConfig, "num_layers": 4, "num_latents": 4, "latent_placement": "along"},
}


@pytest.mark.parametrize("variant", GPTS)
def test_weights_are_those_of_each_text_alone_though_all_go_through_one_program(variant):
    shape = {
        "num_layers": 2,
        "num_heads": 2,
        "width": 8,
        "context_length": 40,
        "compute": Compute(scan_layers=True),
    } | GPTS[variant]
    model = shape.pop("kind", GPTConfig)(**shape).build(VOCABULARY.size)
    params = jax.jit(lambda: model.init(jax.random.key(0), np.zeros((1, 1), np.int32)))()["params"]
    params = jax.tree.map(lambda leaf: 20.0 * leaf, params)  # so that attention is far from even
    answers._maps.clear_cache()
    for given in (["bad", "cabbage", "a"], ["beef", "", ""]):
        shown = describe(model, params, VOCABULARY, ASKED, given, TRAINING)["attention"]
        assert len(shown) == len([one for one in given if one])
        for one in shown:
            tokens = VOCABULARY.encode(one["text"] + one["given"])[None]
            alone = attention_to_inputs(jax.jit(model.attention_maps)(params, tokens))[0]
            first = len(one["text"]) - 1
            expected = alone[first : first + len(one["given"]), : first + 1]
            np.testing.assert_allclose(one["weights"], expected, atol=1e-3)
    assert answers._maps._cache_size() == 1


def test_an_answer_may_fill_the_models_context():
    given = "a" * (Looker.capacity - len("aa?") - len(MASK) + 1)
    shown = describe(Looker(), {}, VOCABULARY, ASKED[:1], [given], TRAINING)["attention"]
    assert len(shown[0]["weights"]) == len(given)


def random_weights(*shape, seed=0):
    logits = np.random.default_rng(seed).normal(size=shape)
    causal = np.arange(shape[-2])[:, None] >= np.arange(shape[-1])
    weights = np.where(causal, np.exp(logits), 0.0)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_layers_are_multiplied_with_half_passed_on_by_each():
    first, second = random_weights(2, 3, 5, 5), random_weights(2, 3, 5, 5, seed=1)
    found = attention_to_inputs({"block_1": second, "block_0": first})
    for example in range(2):
        layers = [(weights[example].mean(axis=0) + np.eye(5)) / 2 for weights in (first, second)]
        np.testing.assert_allclose(found[example], layers[1] @ layers[0])


@pytest.mark.parametrize("blocks", [0, 1, 2])
@pytest.mark.parametrize("beside", [0, 6])
def test_rows_sum_to_one_and_see_no_future(blocks, beside):
    """Of a perceiver of 3 latents and 6 positions, whose outputs may see the inputs beside the latents."""
    maps = {"down_project": random_weights(1, 2, 3, 6)}
    maps |= {f"block_{n}": random_weights(1, 2, 3, 3, seed=n) for n in range(blocks)}
    up = np.concatenate([random_weights(1, 2, 6, 3), random_weights(1, 2, 6, 6)[..., :beside]], axis=-1)
    maps["up_project"] = up / up.sum(axis=-1, keepdims=True)
    found = attention_to_inputs(maps)
    assert found.shape == (1, 6, 6)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0)
    np.testing.assert_allclose(np.triu(found[0], 1), 0.0, atol=1e-12)


def test_a_perceivers_output_takes_what_its_latents_took():
    down = np.zeros((1, 1, 2, 4))
    down[0, 0, :, 1] = 1.0  # both latents look at input 1
    up = np.zeros((1, 1, 4, 2))
    up[..., 1] = 1.0  # all outputs look at the second
    found = attention_to_inputs({"down_project": down, "up_project": up})
    expected = 0.5 * np.eye(4)
    expected[:, 1] += 0.5
    np.testing.assert_allclose(found[0], expected)
