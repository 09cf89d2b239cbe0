import dataclasses

import chex
import jax
import numpy as np
import pytest

from jaxnlp.convert.encoder_decoder_weights import from_huggingface, has_head, to_huggingface
from jaxnlp.convert.encoder_decoders import families
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models import parameter_shapes
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from tests.processors import translating

T5, MT5 = families()["t5"], families()["mt5"]
CONFIG = EncoderDecoderConfig(
    num_layers=2, num_heads=2, width=4, head_width=3, feed_forward_width=6, embeddings="shared", **T5.fixed
)


def params_of(config):
    shapes = parameter_shapes(config.build(translating(5)), *config.inputs(translating(5)))
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda x: draw.normal(size=x.shape).astype(np.float32), shapes)


@pytest.mark.parametrize("embeddings", ["shared", "shared_inputs"])
@pytest.mark.parametrize("gated", [False, True])
def test_parameters_become_tensors_and_these_become_the_same_bits(gated, embeddings):
    config = dataclasses.replace(CONFIG, gated=gated, embeddings=embeddings)
    params = params_of(config)
    tensors = to_huggingface(params, config, T5)
    assert ("lm_head.weight" in tensors) == has_head(tensors, T5, tied=True) == (embeddings == "shared_inputs")
    assert sum("wi_0" in name for name in tensors) == (4 if gated else 0)
    chex.assert_trees_all_equal(from_huggingface(tensors, config, 5, T5), params)


def test_keys_and_values_are_side_by_side_and_matrices_are_transposed():
    params = params_of(CONFIG)
    tensors = to_huggingface(params, CONFIG, T5)
    values = np.asarray(params["decoder"]["blocks"]["cross_attention"]["kv"]["kernel"])[1, :, 1]
    found = tensors["decoder.block.1.layer.1.EncDecAttention.v.weight"]
    np.testing.assert_array_equal(found, values.reshape(4, 6).T)
    down = tensors["encoder.block.0.layer.1.DenseReluDense.wo.weight"]
    np.testing.assert_array_equal(down, params["encoder"]["blocks"]["feed_forward"]["down"]["kernel"][0].T)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("changes", "family", "message"),
    [
        ({"use_bias": True}, T5, r"Transformers' T5 does not support model\.use_bias = True"),
        ({"embeddings": "separate"}, T5, r"does not support model\.embeddings = separate"),
        ({"activation": "gelu", "gated": True}, T5, r"model\.activation = gelu and model\.gated = True"),
        ({"scale_logits": True}, MT5, r"Transformers' mT5 does not support model\.scale_logits = True"),
    ],
)
def test_models_that_the_family_does_not_have_are_refused_with_what_and_why(changes, family, message):
    config = dataclasses.replace(CONFIG, **changes)
    with pytest.raises(WeightsError, match=message):
        to_huggingface(params_of(config), config, family)


def test_parameters_that_do_not_fit_the_config_are_named():
    deeper = dataclasses.replace(CONFIG, num_layers=3)
    with pytest.raises(WeightsError, match=r"no parameter encoder/blocks/attention/qkv/kernel/2 that fits the config"):
        to_huggingface(params_of(CONFIG), deeper, T5)


def test_other_checkpoints_are_refused():
    with pytest.raises(WeightsError, match=r"not a T5 checkpoint: none of its 1 tensors is called encoder\.final"):
        from_huggingface({"x": np.zeros(1, np.float32)}, CONFIG, 5, T5)
