"""On Nvidia GPUs and TPUs the models' attention is in kernels, and no array of all queries and keys is in memory."""

import collections

import jax
import jax.numpy as jnp
import pytest

from jaxnlp.models import parameter_shapes
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from jaxnlp.models.gpt import GPT, GPTConfig
from jaxnlp.models.tagger import Tagger, TaggerConfig
from jaxnlp.models.word_encoder import WordEncoderCompute
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.ops.devices import compile_for

BATCH, LENGTH, SOURCE_LENGTH, VOCABULARY = 2, 37, 41, 11
COMPUTE = TransformerCompute(dtype="bfloat16", scan_layers=True)
SMALL = {"num_layers": 2, "num_heads": 2, "width": 32, "attention_dropout_rate": 0.1}
KERNELS = ("flash_forward", "flash_backward_keys", "flash_backward_queries")


def shapes(length, dtype=jnp.int32):
    return jax.ShapeDtypeStruct((BATCH, length), dtype)


TOKENS, MASK = shapes(LENGTH), shapes(LENGTH, jnp.bool_)
CHARACTERS = jax.ShapeDtypeStruct((BATCH, LENGTH, 5), jnp.int32)
MODELS = {
    "gpt": (GPT(GPTConfig(context_length=64, compute=COMPUTE, **SMALL), VOCABULARY), (TOKENS,), 1),
    "bert": (Bert(BertConfig(max_positions=64, **SMALL), VOCABULARY, COMPUTE), (TOKENS, TOKENS, MASK), 1),
    "translator": (
        EncoderDecoder(EncoderDecoderConfig(compute=COMPUTE, **SMALL), VOCABULARY, VOCABULARY),
        (shapes(SOURCE_LENGTH), TOKENS, shapes(SOURCE_LENGTH, jnp.bool_)),
        3,
    ),
    "tagger": (
        Tagger(
            TaggerConfig(
                bert=True,
                encoder=BertConfig(max_positions=64, **SMALL),
                recurrent_widths=(),
                compute=WordEncoderCompute(dtype="bfloat16", scan_layers=True),
            ),
            *(VOCABULARY,) * 3,
            (("", VOCABULARY),),
        ),
        (TOKENS, CHARACTERS, MASK, shapes(SOURCE_LENGTH), shapes(SOURCE_LENGTH, jnp.bool_), TOKENS),
        1,
    ),
}
"""A model, its inputs, and its calls of attention in a layer."""


def equations(jaxpr):
    """Those of a program and of its parts, except of kernels."""
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name != "pallas_call":
            for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
                part = getattr(part, "jaxpr", part)
                if hasattr(part, "eqns"):
                    yield from equations(part)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("name", MODELS)
def test_attention_of_a_training_step_is_in_kernels(name, platform, monkeypatch):
    model, inputs, calls = MODELS[name]
    params = parameter_shapes(model, *inputs)

    def loss(params, inputs, dropout_key):
        output = model.apply({"params": params}, *inputs, deterministic=False, rngs={"dropout": dropout_key})
        return sum(x.astype(jnp.float32).sum() for x in jax.tree.leaves(output))

    if platform == "gpu":
        monkeypatch.setattr("jaxnlp.ops.attention_kernels.cuda_capability", lambda: (9, 0))
    with compile_for(platform):
        jaxpr = jax.make_jaxpr(jax.grad(loss))(params, inputs, jax.random.key(0))
    found = list(equations(jaxpr.jaxpr))
    kernels = collections.Counter(
        equation.params["name"].removesuffix("_causal")
        for equation in found
        if equation.primitive.name == "pallas_call"
    )
    assert kernels == dict.fromkeys(KERNELS, calls)
    lengths = {LENGTH, SOURCE_LENGTH}
    shapes = {variable.aval.shape for equation in found for variable in equation.outvars}
    assert len(shapes) > 20
    assert not {shape for shape in shapes if len(shape) > 1 and set(shape[-2:]) <= lengths}
