import dataclasses

import chex
import jax
import numpy as np
import pytest

from jaxnlp.convert.decoder_weights import from_huggingface, to_huggingface
from jaxnlp.convert.decoders import families
from jaxnlp.convert.shapes import settings_of
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models import parameter_shapes
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from tests.processors import sized

GPT2 = families()["gpt2"]
CONFIG = GPTConfig(num_layers=2, num_heads=2, width=4, context_length=6, feed_forward_width=6)


def params_of(config):
    shapes = parameter_shapes(config.build(sized(5)), *config.inputs(sized(5)))
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda x: draw.normal(size=x.shape).astype(np.float32), shapes)


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_become_tensors_and_these_become_the_same_bits(tied):
    config = dataclasses.replace(CONFIG, tie_embeddings=tied)
    params = params_of(config)
    tensors = to_huggingface(params, config, GPT2)
    assert ("lm_head.weight" in tensors) == (not tied)
    assert all(name.startswith(("transformer.", "lm_head.")) for name in tensors)
    chex.assert_trees_all_equal(from_huggingface(tensors, config, 5, GPT2), params)


def test_queries_keys_and_values_are_side_by_side_and_matrices_are_not_transposed():
    params = params_of(CONFIG)
    tensors = to_huggingface(params, CONFIG, GPT2)
    packed = tensors["transformer.h.1.attn.c_attn.weight"]
    keys = np.asarray(params["blocks"]["attention"]["qkv"]["kernel"])[1, :, 1]
    np.testing.assert_array_equal(packed[:, 4:8], keys.reshape(4, 4))
    up = tensors["transformer.h.0.mlp.c_fc.weight"]
    np.testing.assert_array_equal(up, params["blocks"]["feed_forward"]["up"]["kernel"][0])


def test_models_that_the_family_does_not_have_are_refused_with_what_and_why():
    without = dataclasses.replace(CONFIG, use_bias=False)
    with pytest.raises(WeightsError, match=r"Transformers' GPT-2 does not support model\.use_bias = False"):
        to_huggingface(params_of(without), without, GPT2)
    other = SynthesizerConfig(**vars(CONFIG))
    with pytest.raises(WeightsError, match=r"Transformers' GPT-2 does not support a SynthesizerConfig"):
        to_huggingface(params_of(other), other, GPT2)


def test_settings_that_the_family_does_not_have_are_refused_by_name():
    for name, value in {"gated": False, "logit_cap": 15.0}.items():
        config = LlamaConfig(num_heads=2, width=4, **{name: value})
        for family in ("llama", "mistral", "qwen2", "qwen3"):
            with pytest.raises(WeightsError, match=rf"Transformers' \w+ does not support .*model\.{name} = {value}"):
                to_huggingface({}, config, families()[family])
    with pytest.raises(WeightsError, match=r"Transformers' GPT-2 does not support model\.activation = silu"):
        settings_of(GPT2, vars(dataclasses.replace(CONFIG, activation="silu")))


def test_parameters_that_do_not_fit_the_config_are_named():
    deeper = dataclasses.replace(CONFIG, num_layers=3)
    with pytest.raises(WeightsError, match=r"no parameter blocks/attention/qkv/kernel/2 that fits the config"):
        to_huggingface(params_of(CONFIG), deeper, GPT2)


def test_other_checkpoints_are_refused():
    with pytest.raises(WeightsError, match=r"not a GPT-2 checkpoint: none of its 1 tensors is called wte.weight"):
        from_huggingface({"x": np.zeros(1, np.float32)}, CONFIG, 5, GPT2)
