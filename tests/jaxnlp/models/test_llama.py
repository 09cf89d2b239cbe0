"""What is a Llama's own; what it shares with other decoders is tested in test_decoder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models.llama import LlamaConfig
from jaxnlp.nn.attention import Rotary
from jaxnlp.ops.positions import RotaryScaling
from tests.jaxnlp.models.gpt_helpers import (
    HEADS,
    LAYERS,
    TOKENS,
    VOCABULARY,
    WIDTH,
    initial_params,
    make_key,
    make_model,
    shapes_of,
)
from tests.random_parameters import random_parameters

SHAPE = {"num_layers": 1, "num_heads": 4, "width": 8}


@pytest.mark.parametrize(
    ("changes", "kernels", "others"),
    [
        ({}, 3 * HEADS * 4, 0),
        ({"num_key_heads": 1, "head_width": 6}, 2 * 6 + 2 * 6, 0),
        ({"qkv_bias": True, "head_norm": True, "head_width": 6}, 3 * HEADS * 6, 3 * HEADS * 6 + 2 * 6),
        ({"gated": False}, 3 * HEADS * 4, -WIDTH * 5),
    ],
    ids=str,
)
def test_number_of_parameters_follows_the_formula(changes, kernels, others):
    shapes = shapes_of(make_model(kind=LlamaConfig, feed_forward_width=5, **changes))
    out = HEADS * changes.get("head_width", 4) * WIDTH
    block = WIDTH * kernels + others + out + 3 * WIDTH * 5 + 2 * WIDTH
    assert sum(x.size for x in jax.tree.leaves(shapes)) == LAYERS * block + WIDTH + 2 * VOCABULARY * WIDTH


@pytest.mark.thorough
def test_branches_that_are_zero_at_first_leave_the_embeddings_alone():
    model = make_model(kind=LlamaConfig, zero_outputs=True, gated=False, activation="relu_squared")
    params = initial_params(model, make_key(0))
    hidden = model.apply({"params": params}, TOKENS, return_hidden=True)
    embedded = params["tokens"]["embedding"][TOKENS]
    mean_square = jnp.mean(jnp.square(embedded), axis=-1, keepdims=True)
    np.testing.assert_allclose(hidden, embedded * jax.lax.rsqrt(mean_square + model.config.epsilon), atol=1e-5)


def test_logits_have_a_limit_with_and_without_a_cache():
    plain, limited = (make_model(kind=LlamaConfig, num_layers=1, logit_cap=cap) for cap in (None, 0.5))
    params = random_parameters(plain, TOKENS)
    expected = 0.5 * np.tanh(plain.apply({"params": params}, TOKENS) / 0.5)
    assert np.abs(expected).max() > 0.4
    np.testing.assert_allclose(limited.apply({"params": params}, TOKENS), expected, atol=1e-5)
    decoding = {"params": limited.decoding_params(params)}
    logits, _ = limited.apply(decoding, TOKENS, cache=limited.empty_cache(len(TOKENS)))
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_tokens_before_the_window_do_not_change_a_local_layer():
    model = make_model(kind=LlamaConfig, num_layers=1, local_layers=(0,), local_window=3)
    params = initial_params(model, make_key(0))
    others = np.where(np.arange(TOKENS.shape[1]) == 2, (TOKENS + 1) % VOCABULARY, TOKENS)
    before, after = (jax.jit(model.apply)({"params": params}, tokens) for tokens in (TOKENS, others))
    changed = np.abs(after - before).max(axis=(0, 2)) > 0
    np.testing.assert_array_equal(changed, [2 <= position <= 4 for position in range(TOKENS.shape[1])])


def test_positions_rotate_queries_and_keys_by_the_settings():
    assert LlamaConfig(rotary_base=5.0).positions == Rotary(5.0)
    assert LlamaConfig(rotary_factor=2.0).positions == Rotary(10_000.0, RotaryScaling(2.0))
    changed = LlamaConfig(rotary_factor=2.0, rotary_original_length=8, rotary_most_turns=3.0)
    assert changed.positions == Rotary(10_000.0, RotaryScaling(2.0, 1.0, 3.0, 8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_bias": True}, r"model\.use_bias must be False for a Llama, got True"),
        ({"num_key_heads": 3}, r"num_key_heads must divide model\.num_heads, got 3 key heads for 4 heads"),
        ({"head_width": 3}, "head_width must be even for rotary positions, got 3"),
        ({"local_window": 8}, r"local_window .*a decoder with local layers"),
        ({"local_layers": (1,)}, r"local_layers must be below model\.num_layers, 1, got \(1,\)"),
        ({"rotary_original_length": 8}, r"rotary_original_length .*model\.rotary_factor other than 1"),
        ({"rotary_factor": 2.0, "rotary_most_turns": 8.0}, r"rotary_most_turns .*model\.rotary_original_length"),
        (
            {"rotary_factor": 2.0, "rotary_original_length": 8, "rotary_fewest_turns": 4.0},
            r"rotary_fewest_turns must be below model\.rotary_most_turns, 4\.0, got 4\.0",
        ),
    ],
    ids=str,
)
def test_shapes_that_are_not_possible_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        LlamaConfig(**SHAPE, **changes)
