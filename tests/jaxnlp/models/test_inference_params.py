import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from jaxnlp.models import parameter_shapes
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.inference_params import inference_params
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import OUTPUT_ROWS, TRANSPOSED
from jaxnlp.ops.devices import compile_for
from tests.jaxnlp.models.gpt_helpers import TOKENS, VARIANTS, VOCABULARY, WIDTH, apply, make_model, random_params
from tests.processors import sized, translating

ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, feed_forward_width=8, max_positions=12)


def names_of(params, kind):
    return {path[:-1] for path in flatten_dict(params) if path[-1] == kind}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_model_is_the_same_function_and_dense_layers_of_blocks_have_transposed_kernels(variant):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    found = inference_params(model, params)
    assert {name for _, name, *_ in names_of(found, TRANSPOSED)} == {"attention", "feed_forward"}
    kept = {"head", "down_project", "up_project"} | ({"block_0", "block_1"} if variant == "synthesizer" else set())
    assert {path[0] for path in names_of(found, "kernel")} <= kept
    np.testing.assert_allclose(apply(model, found, TOKENS), apply(model, params, TOKENS), rtol=1e-5, atol=1e-5)
    block = found["block_1"]["feed_forward"]["up"]
    np.testing.assert_array_equal(block[TRANSPOSED], params["blocks"]["feed_forward"]["up"]["kernel"][1].T)


@pytest.mark.thorough
def test_rounded_operands_have_rounded_kernels_and_the_model_is_the_same_function():
    config = BertPretrainingConfig(encoder=ENCODER, compute=TransformerCompute(matmul_dtype="bfloat16"))
    model, inputs = config.build(sized(5)), [np.ones(one.shape, one.dtype) for one in config.inputs(sized(5))]
    params = jax.jit(model.init)(jax.random.key(0), *inputs)["params"]
    found = inference_params(model, params)
    kernel = params["encoder"]["blocks"]["feed_forward"]["up"]["kernel"][0]
    rounded = found["encoder"]["block_0"]["feed_forward"]["up"][TRANSPOSED]
    np.testing.assert_array_equal(rounded, kernel.T.astype(jnp.bfloat16))
    outputs = [jax.jit(model.apply)({"params": params}, *inputs) for params in (found, params)]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), *outputs)


def test_a_model_that_generates_rounds_its_kernels_once_if_it_rounds_operands():
    """No array is bound to a device: the first step of a search would be compiled without, and the next one with it."""
    model = make_model(matmul_dtype="bfloat16")
    params = jax.device_put(random_params(model), jax.devices()[0])
    assert all(leaf.committed for leaf in jax.tree.leaves(params))
    found = inference_params(model, params)
    assert not any(leaf.committed for leaf in jax.tree.leaves(found))
    kernel = params["blocks"]["feed_forward"]["up"]["kernel"][1]
    np.testing.assert_array_equal(found["block_1"]["feed_forward"]["up"][TRANSPOSED], kernel.T.astype(jnp.bfloat16))
    assert found[OUTPUT_ROWS].dtype == jnp.bfloat16
    np.testing.assert_allclose(apply(model, found, TOKENS), apply(model, params, TOKENS), rtol=1e-4, atol=1e-4)


def test_other_devices_keep_kernels_as_they_were_trained():
    model = make_model()
    params = random_params(model)
    with compile_for("gpu"):
        found = inference_params(model, params)
    assert not names_of(found, TRANSPOSED)
    jax.tree.map(np.testing.assert_array_equal, found["block_1"], jax.tree.map(lambda x: x[1], params["blocks"]))


def relative_error(found, expected):
    return np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected)


@pytest.fixture
def bfloat16_instructions(monkeypatch):
    """The CPU has them, whatever this machine's can do."""
    monkeypatch.setattr("jaxnlp.ops.matrix_products.cpu_multiplies_bfloat16", lambda: True)


@pytest.mark.thorough
@pytest.mark.parametrize("variant", VARIANTS)
def test_in_8_and_in_16_bits_logits_are_near(variant, bfloat16_instructions):
    model = make_model(**VARIANTS[variant])
    params = random_params(model)
    expected = np.asarray(apply(make_model(**VARIANTS[variant], matmul_dtype=None), params, TOKENS))
    in_8, in_16 = (inference_params(model, params, weights) for weights in ("int8", "bfloat16"))
    assert in_8["block_1"]["feed_forward"]["up"][TRANSPOSED].values.dtype == np.int8
    assert in_16["block_1"]["feed_forward"]["up"][TRANSPOSED].dtype == jnp.bfloat16
    assert in_8[OUTPUT_ROWS].values.shape == in_16[OUTPUT_ROWS].shape == (VOCABULARY, WIDTH)
    errors = [relative_error(apply(model, found, TOKENS), expected) for found in (in_16, in_8)]
    assert 1e-5 < errors[0] < 0.02
    assert 1e-4 < errors[1] < 0.05


@pytest.mark.thorough
def test_a_translator_in_8_bits_scores_targets_nearly_as_before():
    model = EncoderDecoderConfig(num_layers=2, num_heads=2, width=8, context_length=8).build(translating(11))
    source, inputs = (np.random.default_rng(seed).integers(0, 11, (2, 5)).astype(np.int32) for seed in (0, 1))
    params = jax.tree.map(
        lambda x: np.random.default_rng(x.size).normal(size=x.shape).astype(np.float32),
        parameter_shapes(model, source, inputs),
    )
    score = jax.jit(lambda params: model.apply({"params": params}, source, inputs))
    assert 1e-4 < relative_error(score(inference_params(model, params, "int8")), np.asarray(score(params))) < 0.1


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        (RecurrentLMConfig(embedding_width=8, widths=(8,)), "int8"),
        (RecurrentLMConfig(embedding_width=8, widths=(8,)), "bfloat16"),
        (BertPretrainingConfig(encoder=ENCODER), "int8"),
    ],
    ids=repr,
)
def test_models_that_would_not_be_faster_are_refused(config, weights):
    model = config.build(sized(5))
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), parameter_shapes(model, *config.inputs(sized(5))))
    with pytest.raises(ValueError, match=f"{weights} .* leave it out for a {type(model).__name__}"):
        inference_params(model, params, weights)


@pytest.mark.parametrize("weights", ["float16", "bf16", "int4", None])
def test_other_precisions_are_refused_with_the_known_ones(weights):
    model = make_model()
    with pytest.raises(ValueError, match=f"weights must be one of float32, bfloat16, int8, got {weights!r}"):
        inference_params(model, random_params(model), weights)


def test_16_bits_are_refused_on_a_cpu_without_instructions_for_them(monkeypatch):
    monkeypatch.setattr("jaxnlp.ops.matrix_products.cpu_multiplies_bfloat16", lambda: False)
    model = make_model()
    with pytest.raises(ValueError, match="this CPU, which has no instructions for it: leave it out"):
        inference_params(model, random_params(model), "bfloat16")
