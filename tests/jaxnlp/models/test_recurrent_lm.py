import dataclasses
import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.decoding.generation import decoder_of, generate
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.models import ModelConfig, parameter_shapes
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.nn.recurrent import RecurrentCompute
from jaxnlp.saving.serialization import from_json, to_json
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.processors import sized

VOCABULARY, BATCH, POSITIONS = 11, 3, 7
TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, POSITIONS)).astype(np.int32)
SHAPES = {
    "lstm": RecurrentLMConfig(embedding_width=4, widths=(6, 5)),
    "gru": RecurrentLMConfig(cell="gru", embedding_width=4, widths=(5,)),
    "tied": RecurrentLMConfig(embedding_width=5, widths=(6, 5), tie_embeddings=True),
    "mogrifier": RecurrentLMConfig(embedding_width=4, widths=(6, 5), mogrifier_rounds=3, mogrifier_rank=2),
    "projected": RecurrentLMConfig(embedding_width=4, widths=(5, 6), tie_embeddings=True, use_output_bias=False),
}
RATES = ("embedding", "input", "hidden", "output", "weight")


@functools.cache
def made(name):
    """A model, and parameters larger than the initial ones, so that everything shows in the logits."""
    model = SHAPES[name].build(sized(VOCABULARY))
    shapes = parameter_shapes(model, TOKENS)
    generator = np.random.default_rng(2)
    return model, jax.tree.map(lambda leaf: generator.normal(size=leaf.shape).astype(np.float32), shapes)


@functools.partial(jax.jit, static_argnames="model")
def logits(model, params, tokens, key=None):
    rngs = None if key is None else {"dropout": key}
    return model.apply({"params": params}, tokens, deterministic=key is None, rngs=rngs)


@functools.partial(jax.jit, static_argnames="model")
def read_on(model, params, tokens, cache, count=None):
    return model.apply({"params": params}, tokens, cache=cache, count=count)


@functools.partial(jax.jit, static_argnames="model")
def predict(model, params, tokens):
    return model.predict(params, tokens)


@functools.partial(jax.jit, static_argnames="model")
def read(model, params, tokens):
    return model.apply({"params": params}, tokens, method="read")


def test_model_equals_embedding_lstm_and_linear_of_pytorch():
    model, params = made("lstm")
    embedding, output = torch.nn.Embedding(VOCABULARY, 4), torch.nn.Linear(5, VOCABULARY)
    layers = [torch.nn.LSTM(4, 6, batch_first=True), torch.nn.LSTM(6, 5, batch_first=True)]
    with torch.no_grad():
        embedding.weight.copy_(torch.tensor(np.asarray(params["tokens"]["embedding"])))
        output.weight.copy_(torch.tensor(np.asarray(params["head_kernel"]).T))
        output.bias.copy_(torch.tensor(np.asarray(params["head_bias"])))
        for number, layer in enumerate(layers):
            ours = params["recurrent"][f"layer_{number}_forward"]
            kernel, recurrent_kernel = (np.asarray(ours[name]) for name in ("kernel", "recurrent_kernel"))
            layer.weight_ih_l0.copy_(torch.tensor(kernel.reshape(len(kernel), -1).T))
            layer.weight_hh_l0.copy_(torch.tensor(recurrent_kernel.reshape(len(recurrent_kernel), -1).T))
            layer.bias_ih_l0.copy_(torch.tensor(np.asarray(ours["bias"]).reshape(-1)))
            layer.bias_hh_l0.zero_()
    x = embedding(torch.tensor(TOKENS))
    for layer in layers:
        x, _ = layer(x)
    np.testing.assert_allclose(logits(model, params, TOKENS), output(x).detach().numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_logits_have_a_score_for_each_word_and_see_no_later_token(name):
    model, params = made(name)
    changed = TOKENS.copy()
    changed[:, 4] = (changed[:, 4] + 1) % VOCABULARY
    y, other = (np.asarray(logits(model, params, tokens)) for tokens in (TOKENS, changed))
    assert y.shape == (BATCH, POSITIONS, VOCABULARY)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(other[:, :4], y[:, :4])
    assert (other[:, 4:] != y[:, 4:]).any(axis=2).all()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", SHAPES)
def test_reading_in_parts_equals_reading_at_once(name):
    model, params = made(name)
    expected = logits(model, params, TOKENS)
    first, cache = read_on(model, params, TOKENS[:, :3], model.empty_cache(BATCH))
    second, _ = read_on(model, params, TOKENS[:, 3:], cache)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), expected, rtol=1e-5, atol=1e-5)


def test_tokens_after_the_count_are_ignored():
    model, params = made("lstm")
    _, expected = read_on(model, params, TOKENS[:, :3], model.empty_cache(BATCH))
    _, found = read_on(model, params, TOKENS, model.empty_cache(BATCH), np.int32(3))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), found, expected)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", SHAPES)
def test_prediction_is_the_last_positions_logits(name):
    model, params = made(name)
    expected = np.asarray(logits(model, params, TOKENS))[:, -1]
    np.testing.assert_allclose(predict(model, params, TOKENS), expected, rtol=1e-5, atol=1e-5)
    strange = np.asarray(TOKENS).copy()
    strange[1, 2] = -1
    with pytest.raises(ValueError, match="but the text has -1 in row 1, position 2"):
        model.predict(params, strange)
    with pytest.raises(ValueError, match=r"tokens \[B, T\] with T at least 1, got tokens \(3, 0\)"):
        model.predict(params, TOKENS[:, :0])


@pytest.mark.parametrize("outside", [-1, -VOCABULARY - 1, VOCABULARY])
def test_under_jit_a_row_with_a_token_outside_the_vocabulary_is_nan_and_the_others_are_not(outside):
    model, params = made("lstm")
    strange = np.asarray(TOKENS).copy()
    strange[1, 2] = outside
    found, expected = (np.asarray(predict(model, params, tokens)) for tokens in (strange, TOKENS))
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[[0, 2]], expected[[0, 2]], rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SHAPES)
def test_generation_with_carried_states_writes_what_reading_everything_again_would(name):
    model, params = made(name)
    greedy = Sampling(temperature=0.0)
    text, length = np.zeros((BATCH, POSITIONS + 5), np.int32), POSITIONS  # the logits see no later token
    text[:, :length] = TOKENS
    decoder = decoder_of(model)
    for added in generate(decoder, params, TOKENS, max_new_tokens=5, key=jax.random.key(0), sampling=greedy):
        text[:, length] = np.asarray(logits(model, params, text))[:, length - 1].argmax(axis=1)
        np.testing.assert_array_equal(added, text[:, length])
        length += 1
    assert length == POSITIONS + 5


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", SHAPES)
def test_output_layer_is_what_makes_logits_of_hidden(name):
    model, params = made(name)
    w, b = model.output_layer(params)
    hidden = read(model, params, TOKENS).hidden
    y = np.asarray(hidden) @ np.asarray(w) + (0.0 if b is None else b)
    np.testing.assert_allclose(y, logits(model, params, TOKENS), rtol=1e-5, atol=1e-5)


def test_tied_models_have_no_output_matrix_and_project_where_widths_differ():
    tied, projected = made("tied")[1], made("projected")[1]
    assert set(tied) == {"tokens", "recurrent", "head_bias"}
    assert set(projected) == {"tokens", "recurrent", "projection"}
    assert projected["projection"]["kernel"].shape == (6, 4)


def test_homeworks_model_has_as_many_parameters_as_published():
    """8.8 million: 33,278 words, 128 wide throughout, two LSTM layers, an output layer with bias."""
    model = RecurrentLMConfig(embedding_width=128, widths=(128, 128)).build(sized(33_278))
    shapes = parameter_shapes(model, jnp.zeros((1, 1), jnp.int32))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 2 * 33_278 * 128 + 33_278 + 2 * (2 * 128 * 512 + 512)


@pytest.mark.thorough
def test_initial_embeddings_and_output_weights_are_uniform_and_the_output_bias_zero():
    model = RecurrentLMConfig(embedding_width=64, widths=(32,)).build(sized(500))
    params = jax.device_get(jax.jit(model.init)(jax.random.key(0), TOKENS))["params"]
    for values in (np.asarray(params["tokens"]["embedding"]), np.asarray(params["head_kernel"])):
        assert 0.099 < np.abs(values).max() <= 0.1
        assert abs(values.mean()) < 5 * 0.1 / 3**0.5 / values.size**0.5
    assert not params["head_bias"].any()


def test_the_unigram_bias_scores_each_token_by_its_frequency():
    counts = np.array([7, 0, 2, 0, 6])
    config = RecurrentLMConfig(embedding_width=3, widths=(4,), init_bias_from_unigram=True)
    found = config.initial_params(types.SimpleNamespace(token_counts=counts))
    assert found.keys() == {"head_bias"}
    np.testing.assert_allclose(np.exp(found["head_bias"]), (counts + 1) / 20.0, rtol=1e-6)
    assert dataclasses.replace(config, init_bias_from_unigram=False).initial_params(None) == {}
    with pytest.raises(ValueError, match="init_bias_from_unigram needs token counts"):
        config.initial_params(types.SimpleNamespace(token_counts=None))
    with pytest.raises(ValueError, match=r"needs model\.use_output_bias"):
        dataclasses.replace(config, use_output_bias=False)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("rate", RATES)
def test_each_dropout_is_a_function_of_its_key_and_off_in_evaluation(rate):
    model = RecurrentLMConfig(embedding_width=4, widths=(6, 5), **{f"{rate}_dropout_rate": 0.5}).build(
        sized(VOCABULARY)
    )
    params = made("lstm")[1]
    first, again, other = (np.asarray(logits(model, params, TOKENS, jax.random.key(n))) for n in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(logits(model, params, TOKENS), logits(*made("lstm"), TOKENS))


@functools.partial(jax.jit, static_argnames="rate")
def reading(params, rate, batch=TOKENS):
    model = RecurrentLMConfig(embedding_width=4, widths=(6, 5), **{f"{rate}_dropout_rate": 0.5}).build(
        sized(VOCABULARY)
    )
    rngs = {"dropout": jax.random.key(3)}
    return model.apply({"params": params}, batch, deterministic=False, rngs=rngs, method="read")


def test_output_mask_is_the_same_at_all_positions_and_differs_between_sequences():
    found = reading(made("lstm")[1], "output")
    kept = np.asarray(found.dropped) != 0.0
    assert (kept == kept[:, :1]).all()
    assert (kept[0] != kept[1]).any()
    np.testing.assert_allclose(found.dropped, np.where(kept, 2.0 * np.asarray(found.outputs), 0.0), rtol=1e-6)


def outputs_and_what_they_depend_on(rate):
    """Outputs under a dropout of one half, and for each parameter whether any output has a gradient to it."""
    params, batch = made("lstm")[1], np.arange(2 * VOCABULARY, dtype=np.int32).reshape(2, -1) % VOCABULARY
    upstreams = np.random.default_rng(0).normal(size=(2, *batch.shape, 5)).astype(np.float32)

    @jax.jit
    def outputs_and_gradients(params):
        y, pull = jax.vjp(lambda p: reading(p, rate, batch=batch).outputs, params)
        return y, jax.vmap(pull)(upstreams)[0]

    y, gradients = jax.device_get(outputs_and_gradients(params))
    return params, batch, y, jax.tree.map(lambda g: np.abs(g).sum(axis=0) > 0.0, gradients)


@pytest.mark.thorough
def test_a_dropped_word_is_zero_at_all_positions_and_the_others_are_doubled():
    params, batch, y, used = outputs_and_what_they_depend_on("embedding")
    words = used["tokens"]["embedding"].any(axis=1)
    assert 0 < words.sum() < VOCABULARY
    table = np.where(words[:, None], 2.0 * params["tokens"]["embedding"], 0.0)
    plain = read(made("lstm")[0], params | {"tokens": {"embedding": table}}, batch)
    np.testing.assert_allclose(y, plain.outputs, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_weight_dropout_is_one_mask_of_the_recurrent_matrices_for_all_positions_and_sequences():
    params, batch, y, used = outputs_and_what_they_depend_on("weight")
    masked = {}
    for name, layer in params["recurrent"].items():
        kept = used["recurrent"][name]["recurrent_kernel"]
        assert 0.3 < float(kept.mean()) < 0.7
        assert used["recurrent"][name]["kernel"].all()
        masked[name] = layer | {"recurrent_kernel": np.where(kept, 2.0 * layer["recurrent_kernel"], 0.0)}
    plain = read(made("lstm")[0], params | {"recurrent": masked}, batch)
    np.testing.assert_allclose(y, plain.outputs, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_short_types_keep_float32_parameters_and_stay_near_float32():
    model, params = made("tied")
    short, rounded = (
        RecurrentLMConfig(embedding_width=5, widths=(6, 5), tie_embeddings=True, compute=compute).build(
            sized(VOCABULARY)
        )
        for compute in (RecurrentCompute(dtype="bfloat16"), RecurrentCompute(matmul_dtype="bfloat16"))
    )
    expected = np.asarray(logits(model, params, TOKENS))
    initial = jax.eval_shape(short.init, jax.random.key(0), TOKENS)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(initial))
    for other in (short, rounded):
        found = np.asarray(logits(other, params, TOKENS))
        assert found.dtype == np.float32
        assert (found != expected).any()
        np.testing.assert_allclose(found, expected, atol=0.4)


def test_config_reads_back_equal_from_json():
    config = RecurrentLMConfig(cell="gru", widths=(7, 5), weight_dropout_rate=0.25)
    assert from_json(to_json(config), ModelConfig) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "lstmm"}, "model.cell must be one of rnn_tanh, rnn_relu, gru, lstm, got 'lstmm'; did you mean lstm?"),
        ({"embedding_width": 0}, "model.embedding_width must be at least 1, got 0"),
        ({"widths": ()}, "model.widths needs at least one layer, got none"),
        ({"widths": (4, 0)}, "model.widths must be at least 1 each, got (4, 0)"),
        ({"forget_bias": float("nan")}, "model.forget_bias must be finite, got nan"),
        ({"widths": (4,), "hidden_dropout_rate": 0.1}, "model.hidden_dropout_rate applies only to models with several"),
        (
            {"cell": "gru", "forget_bias": 1.0},
            "model.forget_bias applies only to the cell lstm; set it to 0.0",
        ),
        (
            {"cell": "gru", "mogrifier_rounds": 5},
            "model.mogrifier_rounds applies only to the cell lstm; set it to 0, got 5",
        ),
        (
            {"mogrifier_rank": 8},
            "model.mogrifier_rank applies only to a mogrifier (model.mogrifier_rounds); set it to None, got 8",
        ),
        ({"mogrifier_rounds": -1}, "model.mogrifier_rounds must be at least 0, got -1"),
        *(({f"{rate}_dropout_rate": 1.0}, f"model.{rate}_dropout_rate must be in [0, 1), got 1.0") for rate in RATES),
    ],
)
def test_configs_that_describe_no_model_are_refused(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        RecurrentLMConfig(**changes)


@pytest.mark.parametrize("shape", SHAPES)
def test_embeddings_are_what_words_are_read_as(shape):
    model, params = made(shape)
    read = model.apply({"params": params}, TOKENS, method=lambda module, tokens: module.tokens(tokens))
    np.testing.assert_array_equal(np.asarray(model.embeddings(params))[TOKENS], read)


def test_scaled_embeddings_are_those_of_a_table_sqrt_d_times_as_large():
    params = made("lstm")[1]
    scaled = RecurrentLMConfig(embedding_width=4, widths=(6, 5), scale_embeddings=True).build(sized(VOCABULARY))
    larger = params | {"tokens": {"embedding": 2.0 * params["tokens"]["embedding"]}}
    expected = logits(made("lstm")[0], larger, TOKENS)
    np.testing.assert_allclose(logits(scaled, params, TOKENS), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_input_mask_is_the_same_at_all_positions_and_differs_between_sequences():
    """What the outputs have a gradient to, of an embedding that is given position by position."""
    params = made("lstm")[1]
    distinct = np.arange(2 * 5, dtype=np.int32).reshape(2, 5)  # no word twice
    gradient = jax.jit(jax.grad(lambda p: reading(p, "input", batch=distinct).outputs.sum()))(params)
    used = np.asarray(gradient["tokens"]["embedding"])[:10].reshape(2, 5, 4) != 0.0
    assert (used == used[:, :1]).all()
    assert (used[0] != used[1]).any()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell": "gru", "use_output_bias": False},
        {"tie_embeddings": True},
        {"cell": "rnn_tanh", "widths": (3, 4)},
        {"mogrifier_rounds": 2},
        {"mogrifier_rounds": 5, "mogrifier_rank": 2},
    ],
    ids=str,
)
def test_every_parameter_is_described_and_no_other(changes):
    config = RecurrentLMConfig(**({"embedding_width": 4, "widths": (6, 5)} | changes))
    init = config.build(sized(VOCABULARY)).init
    shapes = jax.eval_shape(lambda key: init(key, TOKENS), jax.random.key(0))["params"]
    found = assert_described(config, shapes)
    tied, biased = config.tie_embeddings, config.use_output_bias
    heads = set() if tied else {("head_kernel",)}
    heads |= {("head_bias",)} if biased else set()
    assert {path for path, entry in found.items() if entry.head} == heads
    assert found["recurrent", "layer_1_forward", "kernel"].depth == 1
    assert found["tokens", "embedding"].depth == "below"


def test_the_initial_forget_bias_is_no_part_of_the_architecture():
    plain, other = RecurrentLMConfig(), RecurrentLMConfig(forget_bias=1.0, output_dropout_rate=0.5)
    assert plain.architecture() == other.architecture()
    assert plain.architecture() != RecurrentLMConfig(scale_embeddings=True).architecture()
    assert plain.max_length is None


def test_a_mogrifier_changes_the_function_and_its_matrices_of_zeros_do_not():
    plain, params = made("lstm")
    model, gated = made("mogrifier")
    layers = {
        name: layer | {key: gated["recurrent"][name][key] for key in gated["recurrent"][name].keys() - layer.keys()}
        for name, layer in params["recurrent"].items()
    }
    assert (np.asarray(logits(model, params | {"recurrent": layers}, TOKENS)) != logits(plain, params, TOKENS)).any()
    zeros = {
        name: {key: np.zeros_like(x) if key.startswith("mogrifier") else x for key, x in layer.items()}
        for name, layer in layers.items()
    }
    found = logits(model, params | {"recurrent": zeros}, TOKENS)
    np.testing.assert_allclose(found, logits(plain, params, TOKENS), rtol=1e-5, atol=1e-6)
    assert model.config.architecture() != plain.config.architecture()
    assert {key for layer in layers.values() for key in layer if key.startswith("mogrifier")} == {
        f"mogrifier_{number}_{end}_kernel" for number in (1, 2, 3) for end in ("down", "up")
    }
