"""The operations that the cases count are those of their matrix products."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from benchmarks import attention, bert_finetune, cross_entropy, gpt_names, lstm_lm, text_cnn, vit
from jaxnlp.models import parameter_shapes
from jaxnlp.models.text_cnn import TextCNN
from jaxnlp.models.vit import ViT
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.ops.attention import dot_product_attention
from jaxnlp.ops.losses import linear_cross_entropy
from tests.processors import sized


def of_products(jaxpr):
    """Multiplications and additions of all matrix products in a jaxpr and those within it."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            summed = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * summed * equation.outvars[0].aval.size
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(of_products(inner) for inner in jaxprs_in_params(equation.params))
    return total


def of_function(function, *arguments):
    return of_products(jax.make_jaxpr(function)(*arguments).jaxpr)


def of_model(model, *arguments):
    params = parameter_shapes(model, *arguments)
    return of_function(lambda params: model.apply({"params": params}, *arguments), params)


def test_a_product_in_a_loop_is_counted_each_time():
    a, b = jnp.zeros((2, 3)), jnp.zeros((3, 5))
    assert of_function(jnp.dot, a, b) == 2 * 2 * 3 * 5
    assert of_function(jax.jit(lambda a: jax.lax.scan(lambda c, _: (c, c @ b), a, length=7)), a) == 7 * 60


def gpt_names_forward():
    config = dataclasses.replace(gpt_names.CONFIG, compute=TransformerCompute(attention="xla"))
    return gpt_names.flop(), of_model(config.build(sized(gpt_names.VOCABULARY)), gpt_names.batch()["tokens"])


def bert_finetune_forward():
    config = dataclasses.replace(bert_finetune.CONFIG, compute=TransformerCompute(attention="xla"))
    model, batch = config.build(bert_finetune.processor()), bert_finetune.task_batch()
    return bert_finetune.flop(), of_model(model, *(batch[name] for name in config.reads))


def lstm_lm_forward():
    return lstm_lm.flop(), of_model(lstm_lm.CONFIG.build(sized(lstm_lm.VOCABULARY)), lstm_lm.batch()["tokens"])


def text_cnn_forward():
    tokens = text_cnn.batch()["tokens"]
    model = TextCNN(text_cnn.CONFIG, text_cnn.VOCABULARY, text_cnn.CLASSES)
    return text_cnn.flop(), of_model(model, tokens, np.ones_like(tokens, bool))


def vit_forward():
    config = dataclasses.replace(vit.CONFIG, compute=TransformerCompute(attention="xla"))
    model = ViT(config, vit.SIZE, vit.MEAN, vit.STDDEV, vit.CLASSES)
    return vit.flop(), of_model(model, vit.batch()["images"])


def cross_entropy_forward():
    (case,) = cross_entropy.cases()
    x = jnp.zeros((cross_entropy.TOKENS, cross_entropy.WIDTH))
    w = jnp.zeros((cross_entropy.WIDTH, cross_entropy.VOCABULARY))
    targets = jnp.zeros(cross_entropy.TOKENS, jnp.int32)
    return case.flop, of_function(lambda x, w: linear_cross_entropy(x, w, None, targets), x, w)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "counted",
    [
        gpt_names_forward,
        bert_finetune_forward,
        lstm_lm_forward,
        text_cnn_forward,
        vit_forward,
        cross_entropy_forward,
    ],
    ids=lambda f: f.__name__,
)
def test_a_step_is_a_forward_pass_and_twice_as_much_backward(counted):
    step, forward = counted()
    # Row means are products too here, and the heads of a classifier are not counted.
    assert step == pytest.approx(3 * forward, rel=0.02)


@pytest.mark.parametrize("backward", [False, True])
def test_attention_counts_all_scores(backward):
    shape = (attention.TOKENS // 128, 128, attention.HEADS, attention.HEAD_WIDTH)
    q = jnp.zeros(shape, jnp.bfloat16)
    forward = of_function(lambda q: dot_product_attention(q, q, q, causal=True, implementation="xla"), q)
    assert attention.flop(128, backward=backward) == forward * (3 if backward else 1)
