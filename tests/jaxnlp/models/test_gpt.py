import dataclasses
import functools
import re

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.nn.compute import TransformerCompute
from tests.jaxnlp.models.gpt_helpers import (
    BATCH,
    CONTEXT,
    HEADS,
    LAYERS,
    TARGETS,
    TOKENS,
    VARIANTS,
    VOCABULARY,
    WIDTH,
    apply,
    initial_params,
    make_key,
    make_model,
    mean_loss,
    random_params,
    shapes_of,
)

DROPOUT = {"embedding_dropout_rate": 0.2, "attention_dropout_rate": 0.3, "residual_dropout_rate": 0.1}


@functools.partial(jax.jit, static_argnums=0)
def logits_and_gradients(model, params, dropout_key=None):
    """Logits, and gradients of the mean loss: in training when there is a key."""

    def loss(params):
        logits = apply(model, params, TOKENS, deterministic=dropout_key is None, dropout_key=dropout_key)
        return mean_loss(logits), logits

    gradients, logits = jax.grad(loss, has_aux=True)(params)
    return logits, gradients


def from_hugging_face(named):
    """The parameter tree that holds the tensors of a GPT2LMHeadModel, or their gradients."""

    def value(name):
        return named[name].detach().numpy()

    def dense(name):
        return {leaf: stacked(f"{name}.{source}") for leaf, source in (("kernel", "weight"), ("bias", "bias"))}

    def heads(layer):
        return {leaf: array.reshape(*array.shape[:-1], 3, HEADS, -1) for leaf, array in layer.items()}

    def stacked(name):
        return np.stack([value(f"transformer.h.{layer}.{name}") for layer in range(LAYERS)])

    def stacked_norm(name):
        return {"scale": stacked(f"{name}.weight"), "bias": stacked(f"{name}.bias")}

    params = {
        "tokens": {"embedding": value("transformer.wte.weight")},
        "positions": value("transformer.wpe.weight"),
        "blocks": {
            "attention_norm": stacked_norm("ln_1"),
            "attention": {"qkv": heads(dense("attn.c_attn")), "out": dense("attn.c_proj")},
            "feed_forward_norm": stacked_norm("ln_2"),
            "feed_forward": {"up": dense("mlp.c_fc"), "down": dense("mlp.c_proj")},
        },
        "final_norm": {"scale": value("transformer.ln_f.weight"), "bias": value("transformer.ln_f.bias")},
    }
    return params | ({"head": {"kernel": value("lm_head.weight").T}} if "lm_head.weight" in named else {})


@pytest.mark.sweep(1)
@pytest.mark.parametrize("tied", [False, True], ids=["own_head", "tied"])
def test_logits_and_gradients_equal_those_of_hugging_face_gpt2(tied):
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=CONTEXT,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            activation_function="gelu_new",
            tie_word_embeddings=tied,
        )
    ).eval()
    named = dict(theirs.named_parameters())
    torch.manual_seed(0)
    for parameter in named.values():
        torch.nn.init.normal_(parameter, std=0.4)
    expected = theirs(torch.tensor(TOKENS, dtype=torch.int64)).logits
    labels = torch.tensor(TARGETS, dtype=torch.int64)
    torch.nn.functional.cross_entropy(expected.reshape(-1, VOCABULARY), labels.reshape(-1)).backward()

    model = make_model(tie_embeddings=tied, scan_layers=False)
    logits, gradients = logits_and_gradients(model, from_hugging_face(named))
    np.testing.assert_allclose(logits, expected.detach(), atol=2e-5)
    expected_gradients = from_hugging_face({name: parameter.grad for name, parameter in named.items()})
    assert jax.tree.structure(gradients) == jax.tree.structure(expected_gradients)
    for (path, found), wanted in zip(
        jax.tree_util.tree_leaves_with_path(gradients), jax.tree.leaves(expected_gradients), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=jax.tree_util.keystr(path))


@pytest.fixture
def optimised_programs():
    """As in training, where a compiler that fuses differently could give other bits."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.thorough
@pytest.mark.usefixtures("optimised_programs")
@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("vanilla", {"remat": True}),
        ("vanilla", {"scan_layers": True, "remat": True}),
        ("synthesizer", {"scan_layers": True, "remat": True}),
        ("along", {"remat": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_looping_over_layers_and_recomputing_change_no_numbers(variant, changes):
    settings = VARIANTS[variant] | DROPOUT | {"use_bias": False, "tie_embeddings": True}
    plain, other = make_model(**settings, scan_layers=False), make_model(**settings | {"scan_layers": False} | changes)
    params = random_params(plain)
    logits, gradients = logits_and_gradients(plain, params, make_key(3))
    other_logits, other_gradients = logits_and_gradients(other, params, make_key(3))
    np.testing.assert_array_equal(other_logits, logits)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), other_gradients, gradients)


@pytest.mark.thorough
@pytest.mark.usefixtures("optimised_programs")
@pytest.mark.parametrize("variant", ["vanilla", "prefix"])
def test_looping_over_layers_draws_the_same_initial_weights_and_gives_the_same_logits(variant):
    settings = VARIANTS[variant] | {"use_bias": False, "tie_embeddings": True}
    plain, looped = (make_model(**settings, scan_layers=scan_layers) for scan_layers in (False, True))
    jax.tree.map(np.testing.assert_array_equal, initial_params(looped, make_key(0)), initial_params(plain, make_key(0)))
    params = random_params(plain)
    np.testing.assert_array_equal(apply(looped, params, TOKENS), apply(plain, params, TOKENS))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("variant", "name"),
    [
        *(("vanilla", name) for name in DROPOUT),
        ("synthesizer", "attention_dropout_rate"),
        ("along", "residual_dropout_rate"),
    ],
)
def test_each_dropout_needs_a_key_and_changes_the_logits_in_training(variant, name):
    model = make_model(**VARIANTS[variant], **{name: 0.5})
    params = random_params(model)
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        jax.eval_shape(lambda: apply(model, params, TOKENS, deterministic=False))
    first, again, other = (
        apply(model, params, TOKENS, deterministic=False, dropout_key=make_key(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(again, first)
    assert not np.allclose(first, other)
    assert not np.allclose(first, apply(make_model(**VARIANTS[variant]), params, TOKENS))


def test_nothing_is_dropped_outside_training():
    model, plain = make_model(**DROPOUT), make_model()
    params = random_params(plain)
    np.testing.assert_array_equal(apply(model, params, TOKENS), apply(plain, params, TOKENS))


@pytest.mark.thorough
def test_layers_drop_different_elements():
    # Each feed-forward branch adds a dropped-out 1 to a residual stream of zeros: 0, 2 or 4 after two layers, but
    # never 2 if both drew the same mask. Their normalised values are read off by a head that is the identity.
    model = make_model(vocabulary_size=64, width=64, residual_dropout_rate=0.5)
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes_of(model))
    params["blocks"]["feed_forward"]["down"]["bias"] += 1.0
    params["final_norm"]["scale"] += 1.0
    params["head"]["kernel"] += np.eye(64, dtype=np.float32)
    tokens = np.zeros((1, 4), np.int32)
    logits = np.asarray(apply(model, params, tokens, deterministic=False, dropout_key=make_key(0)))
    assert [len(np.unique(row.round(3))) for row in logits[0]] == [3, 3, 3, 3]


@pytest.fixture(scope="module")
def deep_params():
    """Of a model with 8 layers, as initialised."""
    return initial_params(make_model(num_layers=8, width=32), make_key(0))


@pytest.mark.thorough
def test_initial_loss_is_that_of_guessing(deep_params):
    logits = apply(make_model(num_layers=8, width=32), deep_params, TOKENS)
    assert abs(float(mean_loss(logits)) - np.log(VOCABULARY)) < 0.02


def test_initial_weights_have_the_spread_of_gpt2(deep_params):
    blocks = deep_params["blocks"]
    residual = 0.02 / np.sqrt(2 * 8)
    for kernel, stddev in (
        (deep_params["tokens"]["embedding"], 0.02),
        (deep_params["positions"], 0.02),
        (deep_params["head"]["kernel"], 0.02),
        (blocks["attention"]["qkv"]["kernel"], 0.02),
        (blocks["attention"]["out"]["kernel"], residual),
        (blocks["feed_forward"]["up"]["kernel"], 0.02),
        (blocks["feed_forward"]["down"]["kernel"], residual),
    ):
        kernel = np.asarray(kernel)
        assert abs(kernel.std() / stddev - 1.0) < 5.0 / np.sqrt(2 * kernel.size)
        assert abs(kernel.mean()) < 5.0 * stddev / np.sqrt(kernel.size)
    for path, leaf in jax.tree_util.tree_leaves_with_path(deep_params):
        if path[-1].key in ("bias", "scale"):
            np.testing.assert_array_equal(leaf, float(path[-1].key == "scale"))


def test_layers_begin_with_different_weights(deep_params):
    kernels = np.asarray(deep_params["blocks"]["attention"]["qkv"]["kernel"]).reshape(8, -1)
    correlations = np.corrcoef(kernels) - np.eye(8)
    assert np.abs(correlations).max() < 5.0 / np.sqrt(kernels.shape[1])


@pytest.mark.parametrize(("variant", "count"), [("vanilla", 7), ("synthesizer", 8), ("prefix", 7 + 8 + 7)])
def test_without_biases_there_is_no_bias_leaf(variant, count):
    def biases(model):
        return [path for path, _ in jax.tree_util.tree_leaves_with_path(shapes_of(model)) if path[-1].key == "bias"]

    assert biases(make_model(**VARIANTS[variant], use_bias=False)) == []
    assert len(biases(make_model(**VARIANTS[variant]))) == count


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("variant", "tied"), [("vanilla", False), ("vanilla", True), ("synthesizer", True), ("along", True)]
)
def test_rounded_matmul_operands_give_logits_and_gradients_near_the_exact_ones(variant, tied):
    settings = VARIANTS[variant] | {"tie_embeddings": tied}
    exact_model, model = (make_model(**settings, matmul_dtype=dtype) for dtype in (None, "bfloat16"))
    params = random_params(exact_model)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), shapes_of(model)) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), shapes_of(exact_model)
    )
    found, expected = jax.device_get([logits_and_gradients(each, params) for each in (model, exact_model)])
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, leaf), exact in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        name = jax.tree_util.keystr(path)
        assert leaf.dtype == jnp.float32, name
        assert np.isfinite(leaf).all(), name
        error = np.linalg.norm(leaf - exact) / np.linalg.norm(exact)
        assert 1e-4 < error < (0.03 if variant == "vanilla" else 0.05), name


def test_a_cache_with_stacked_parameters_is_refused():
    model = make_model()
    with pytest.raises(ValueError, match=re.escape("apply the model to decoding_params(params)")):
        apply(model, random_params(model), TOKENS, cache=model.empty_cache(BATCH))


def test_a_sequence_longer_than_the_context_is_refused():
    with pytest.raises(ValueError, match=re.escape("a sequence of 11 tokens exceeds the context of 10")):
        make_model().apply({}, np.zeros((1, CONTEXT + 1), np.int32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "model.num_layers must be at least 1, got 0"),
        ({"num_heads": 0}, "model.num_heads must be at least 1, got 0"),
        ({"width": -8}, "model.width must be at least 1, got -8"),
        ({"context_length": 0}, "model.context_length must be at least 1, got 0"),
        ({"feed_forward_width": 0}, "model.feed_forward_width must be at least 1, got 0"),
        ({"kind": PerceiverConfig, "num_layers": 1}, "model.num_layers must be at least 2 for a perceiver, got 1"),
        (
            {"kind": PerceiverConfig, "num_latents": 0},
            "model.num_latents must be between 1 and model.context_length, 128, got 0",
        ),
        (
            {"kind": PerceiverConfig, "num_latents": 65, "context_length": 64},
            "model.num_latents must be between 1 and model.context_length, 64, got 65",
        ),
        (
            {"kind": PerceiverConfig, "latent_placement": "allong"},
            "model.latent_placement must be one of prefix, along, got 'allong'; did you mean along?",
        ),
        (
            {"kind": SynthesizerConfig, "compute": TransformerCompute(attention="xla")},
            "model.compute.attention must be auto or vjp for a synthesizer, got xla",
        ),
        ({"num_heads": 3}, "model.num_heads must divide model.width, got 3 heads for width 128"),
        ({"embedding_dropout_rate": 1.0}, "model.embedding_dropout_rate must be in [0, 1), got 1.0"),
        ({"attention_dropout_rate": -0.1}, "model.attention_dropout_rate must be in [0, 1), got -0.1"),
        ({"residual_dropout_rate": float("nan")}, "model.residual_dropout_rate must be in [0, 1), got nan"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_config_that_cannot_be_is_refused_with_its_value(changes, message):
    changes = dict(changes)
    kind = changes.pop("kind", GPTConfig)
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(**changes)


def test_configs_are_values():
    config = GPTConfig(width=64)
    assert config == GPTConfig(width=64)
    assert hash(config) == hash(GPTConfig(width=64))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 32


@pytest.mark.sweep(1)
@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_the_hidden_states_through_the_output_layer(tied):
    model = make_model(tie_embeddings=tied)
    params = random_params(model)
    hidden = jax.jit(functools.partial(model.apply, return_hidden=True))({"params": params}, TOKENS)
    w, b = model.output_layer(params)
    assert b is None
    assert hidden.shape == (BATCH, CONTEXT, WIDTH)
    np.testing.assert_allclose(np.asarray(hidden) @ w, apply(model, params, TOKENS), atol=1e-5)


@pytest.mark.thorough
def test_implementations_of_attention_give_the_same_gradients_and_an_impossible_one_is_refused():
    def gradients(implementation):
        model = make_model(attention=implementation)
        return jax.jit(jax.grad(lambda p: jnp.square(model.apply({"params": p}, TOKENS)).mean()))(random_params(model))

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), gradients("vjp"), gradients("xla"))
    with pytest.raises(ValueError, match="implementation='cudnn'"):
        gradients("cudnn")
