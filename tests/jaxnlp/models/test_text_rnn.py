import dataclasses
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch

from jaxnlp.models import Parameter, parameter_shapes
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.models.text_rnn import TextRNNConfig
from jaxnlp.nn.recurrent import RecurrentCompute
from jaxnlp.text.encoder_texts import EncoderTexts
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from jaxnlp.text.words import WordVocabulary
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.jaxnlp.models.word_classifier_helpers import (
    LENGTHS,
    MASK,
    OUTPUTS,
    PROCESSOR,
    TOKENS,
    VOCABULARY,
    WIDTH,
    assert_changes_only_training,
    assert_equals_pytorch,
    assert_initial_loss_is_that_of_chance,
    assert_padding_changes_nothing,
    with_random_params,
    zeros_like,
)
from tests.processors import sized

STATE = 5
CONFIG = TextRNNConfig(embedding_width=WIDTH, widths=(STATE,))
ATTENTION = dataclasses.replace(CONFIG, pooling="attention")


def outputs_of(config, params, x):
    """PyTorch's outputs [T, E] and last states [directions, K] of the last layer, with the parameters as they are."""
    directions = ("forward", "backward")[: 1 + config.bidirectional]
    kind, nonlinearity = config.cell.partition("_")[::2]
    arguments = {"nonlinearity": nonlinearity} if nonlinearity else {}
    layer = getattr(torch.nn, kind.upper())(
        WIDTH, STATE, len(config.widths), bidirectional=config.bidirectional, **arguments
    )
    weights = {}
    for number in range(len(config.widths)):
        for direction in directions:
            ours, suffix = params["recurrent"][f"layer_{number}_{direction}"], f"_l{number}"
            suffix += "_reverse" if direction == "backward" else ""
            for name, kernel in (("ih", ours["kernel"]), ("hh", ours["recurrent_kernel"])):
                weights[f"weight_{name}{suffix}"] = kernel.reshape(len(kernel), -1).T
            weights[f"bias_ih{suffix}"] = ours["bias"].reshape(-1)
            extra = ours.get("recurrent_bias", torch.zeros_like(ours["bias"]))
            weights[f"bias_hh{suffix}"] = extra.reshape(-1)
    outputs, last = torch.func.functional_call(layer, weights, (x[:, None],))
    h = last[0] if kind == "lstm" else last
    return outputs[:, 0], h[-len(directions) :, 0]


def pooled(config, params, x):
    outputs, last = outputs_of(config, params, x)
    match config.pooling:
        case "last":
            return last.reshape(-1)
        case "mean":
            return outputs.mean(dim=0)
        case "max":
            return outputs.amax(dim=0)
        case "attention":
            return weights_of(params, outputs) @ outputs


def weights_of(params, outputs):
    hidden = torch.tanh(outputs @ params["attention"]["kernel"] + params["attention"]["bias"])
    return torch.softmax(hidden @ params["attention_vector"], dim=0)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "changes",
    [
        {"pooling": "last"},
        {"pooling": "mean", "cell": "gru"},
        {"pooling": "max", "cell": "rnn_tanh", "widths": (STATE, STATE)},
        {"pooling": "attention", "bidirectional": False},
    ],
    ids=lambda changes: changes["pooling"],
)
def test_logits_and_gradients_are_those_of_pytorch_without_padding(changes):
    config = dataclasses.replace(CONFIG, **changes)
    model, params, logits = assert_equals_pytorch(config, lambda params, x: pooled(config, params, x))
    assert logits.shape == (3, OUTPUTS)
    assert_described(config, params)
    assert_padding_changes_nothing(model, params)


@pytest.mark.thorough
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_padding_is_not_in_the_mean_and_the_maximum(pooling):
    config = dataclasses.replace(CONFIG, pooling=pooling)
    model, params = with_random_params(config)
    found, theirs = jax.jit(model.apply)({"params": params}, TOKENS, MASK), jax.tree.map(torch.tensor, params)
    for row, length in enumerate(LENGTHS):
        x = theirs["tokens"]["embedding"][torch.tensor(TOKENS[row, :length]).long()]
        expected = pooled(config, theirs, x) @ theirs["head"]["kernel"] + theirs["head"]["bias"]
        np.testing.assert_allclose(found[row], expected, atol=1e-5)


def test_attention_weights_are_those_of_pytorch_and_padding_has_none():
    model, params = with_random_params(ATTENTION)
    found = np.asarray(jax.jit(model.attention_weights)(params, TOKENS, MASK))
    assert found.dtype == np.float32
    theirs = jax.tree.map(torch.tensor, params)
    for row, length in enumerate(LENGTHS):
        x = theirs["tokens"]["embedding"][torch.tensor(TOKENS[row, :length]).long()]
        expected = weights_of(theirs, outputs_of(ATTENTION, theirs, x)[0])
        np.testing.assert_allclose(found[row, :length], expected, atol=1e-5)
        np.testing.assert_array_equal(found[row, length:], 0.0)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    model, params = with_random_params(CONFIG)
    with pytest.raises(ValueError, match=r"attention weights need model\.pooling attention, got last"):
        model.attention_weights(params, TOKENS, MASK)


@pytest.mark.thorough
def test_initial_loss_is_that_of_chance():
    assert_initial_loss_is_that_of_chance(TextRNNConfig(pooling="attention", embedding_width=32, widths=(32,)))


def test_roles_of_the_parameters():
    assert ATTENTION.parameter(("tokens", "embedding")) == Parameter("VD", "below")
    assert ATTENTION.parameter(("recurrent", "layer_0_backward", "kernel")) == Parameter("D4K", 0, matrix=True)
    assert ATTENTION.parameter(("attention_vector",)) == Parameter("E")
    assert ATTENTION.parameter(("head", "bias")) == Parameter("C", head=True)
    for missing in (("attention", "kernel"), ("static_tokens", "embedding"), ("recurrent", "layer_1_forward", "bias")):
        with pytest.raises(KeyError, match=f"this model has no parameter {'/'.join(missing)}"):
            CONFIG.parameter(missing)


def test_logits_are_float32_whatever_the_type_of_the_computation():
    config = dataclasses.replace(ATTENTION, compute=RecurrentCompute(dtype="bfloat16", matmul_dtype="bfloat16"))
    inputs = map(zeros_like, config.inputs(PROCESSOR))
    found, _ = jax.eval_shape(config.build(PROCESSOR).init_with_output, jax.random.key(0), *inputs)
    assert (found.shape, found.dtype) == ((1, OUTPUTS), np.float32)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": ()}, "model.widths needs at least one layer, got none"),
        ({"widths": (3, 0)}, "model.widths must be at least 1 each, got (3, 0)"),
        ({"pooling": "cls"}, "model.pooling must be one of last, mean, max, attention, got 'cls'"),
        (
            {"vectors": "two_channels", "vectors_path": "file"},
            "model.vectors must be one of random, static, non_static, got 'two_channels'",
        ),
        ({"cell": "gru", "forget_bias": 1.0}, "model.forget_bias applies only to the cell lstm; set it to 0.0, got"),
        ({"hidden_dropout_rate": 0.1}, "model.hidden_dropout_rate applies only to models with several layers"),
        ({"weight_dropout_rate": 1.0}, "model.weight_dropout_rate must be in [0, 1), got 1.0"),
    ],
)
def test_a_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TextRNNConfig(**fields)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rate", ["embedding_dropout_rate", "dropout_rate", "hidden_dropout_rate", "weight_dropout_rate"]
)
def test_each_rate_of_dropout_changes_training_and_nothing_else(rate):
    plain = dict.fromkeys(("embedding_dropout_rate", "dropout_rate"), 0.0)
    assert_changes_only_training(dataclasses.replace(CONFIG, widths=(STATE, STATE), cell="lstm", **plain), rate)


@pytest.mark.thorough
def test_the_forget_gate_begins_with_its_bias():
    def biases(forget_bias):
        config = dataclasses.replace(CONFIG, cell="lstm", forget_bias=forget_bias)
        model = config.build(PROCESSOR)
        params = jax.jit(model.init)(jax.random.key(0), *map(zeros_like, config.inputs(PROCESSOR)))["params"]
        return np.asarray(params["recurrent"]["layer_0_forward"]["bias"])

    more = biases(2.0) - biases(0.0)
    assert sorted(more.sum(axis=-1).tolist()) == pytest.approx([0.0, 0.0, 0.0, 2.0 * STATE])


def pretrained(processor=None, **fields):
    """A language model with random parameters."""
    config = RecurrentLMConfig(**({"embedding_width": WIDTH, "widths": (7,)} | fields))
    params = parameter_shapes(config.build(sized(VOCABULARY)), zeros_like(config.inputs(None)[0]))
    draw = np.random.default_rng(0)
    return SimpleNamespace(
        model=config.build(sized(VOCABULARY)),
        params=jax.tree.map(lambda x: draw.normal(size=x.shape).astype(np.float32), params),
        processor=EncoderTexts(WordPieceVocabulary.of_pieces(SPECIAL)) if processor is None else processor,
        name="texts",
    )


@pytest.mark.parametrize("fields", [{}, {"cell": "gru", "widths": (3, 5)}, {"tie_embeddings": True}])
def test_a_language_model_gives_its_shape_its_layers_its_word_vectors_and_its_vocabulary(fields):
    theirs = pretrained(**fields)
    ours = dataclasses.replace(ATTENTION, embedding_dropout_rate=0.3)
    found = ours.adopt(theirs)
    shape = {name: getattr(theirs.model.config, name) for name in ("cell", "embedding_width", "widths")}
    assert found.config == dataclasses.replace(ours, **shape, bidirectional=False)
    assert found.processor == theirs.processor.vocabulary
    assert found.params == {name: theirs.params[name] for name in ("tokens", "recurrent")}
    shapes = parameter_shapes(found.config.build(PROCESSOR), *map(zeros_like, found.config.inputs(PROCESSOR)))
    for name, params in found.params.items():
        assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, shapes[name])
    assert set(shapes) - set(found.params) == {"attention", "attention_vector", "head"}
    assert found.notes[0].startswith("word vectors and layers from texts: ")


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        ({"processor": WordVocabulary(["a"])}, {}, "those of a WordVocabulary; give a run of text_rnn_pretrain"),
        ({"scale_embeddings": True}, {}, "scales embeddings or has a mogrifier, which a classifier does not"),
        ({"mogrifier_rounds": 1}, {}, "scales embeddings or has a mogrifier, which a classifier does not"),
        ({}, {"vectors": "static", "vectors_path": "file"}, "set model.vectors to random, got static"),
        ({}, {"widths": (4, 4), "hidden_dropout_rate": 0.1}, "model.hidden_dropout_rate applies only to"),
    ],
)
def test_a_language_model_that_does_not_fit_is_refused(theirs, ours, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(CONFIG, **ours).adopt(pretrained(**theirs))


def test_other_models_take_no_language_model_of_texts():
    with pytest.raises(ValueError, match="its model is a RecurrentLMConfig, expected TextCNNConfig"):
        TextCNNConfig().adopt(pretrained())
