import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from jaxnlp.ops.positions import RotaryScaling, ranks, rotary, sinusoidal_positions

BATCH, POSITIONS, HEADS, WIDTH = 2, 5, 3, 8
X = np.random.default_rng(0).normal(size=(BATCH, POSITIONS, HEADS, WIDTH))
PLACES = np.array([0, 1, 2, 40, 1000])


def test_each_pair_of_features_is_a_point_that_turns_at_its_own_rate():
    found = np.asarray(sinusoidal_positions(50, 6))
    for t in (0, 1, 17, 49):
        for i in range(3):
            angle = t / 10_000.0 ** (2 * i / 6)
            np.testing.assert_allclose(found[t, 2 * i : 2 * i + 2], [math.sin(angle), math.cos(angle)], atol=1e-5)


def test_all_sines_may_come_before_all_cosines_as_in_marian():
    expected = MarianSinusoidalPositionalEmbedding(50, 6).create_weight()
    found = np.asarray(sinusoidal_positions(50, 6, sines_first=True))
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    pairs = np.asarray(sinusoidal_positions(50, 6))
    np.testing.assert_array_equal(found, np.concatenate([pairs[:, ::2], pairs[:, 1::2]], axis=1))


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="must be even, got 7"):
        sinusoidal_positions(3, 7)


def rates(base=10_000.0):
    return base ** (-2.0 * np.arange(WIDTH // 2) / WIDTH)


@pytest.mark.thorough
@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_rotary_multiplies_each_pair_as_a_complex_number(base):
    turned = (X[..., : WIDTH // 2] + 1j * X[..., WIDTH // 2 :]) * np.exp(1j * np.outer(PLACES, rates(base)))[:, None]
    with jax.enable_x64(True):
        found = rotary(jnp.asarray(X), jnp.asarray(PLACES), base=base)
    np.testing.assert_allclose(found, np.concatenate([turned.real, turned.imag], axis=-1), atol=1e-12)


def test_rotary_equals_that_of_llama():
    angles = torch.tensor(np.outer(PLACES, rates()), dtype=torch.float32).repeat(1, 2)[None]
    q = torch.tensor(X, dtype=torch.float32).transpose(1, 2)
    expected, _ = apply_rotary_pos_emb(q, q, angles.cos(), angles.sin())
    found = rotary(jnp.asarray(X, jnp.float32), jnp.asarray(PLACES))
    np.testing.assert_allclose(found, expected.transpose(1, 2), atol=2e-4)  # angles of 1,000 in float32


def test_scores_of_rotated_queries_and_keys_depend_on_distances_only():
    with jax.enable_x64(True):
        q, k = jnp.asarray(X[0]), jnp.asarray(X[1])

        def scores(places):
            turned_q, turned_k = (rotary(x[None], jnp.asarray(places))[0] for x in (q, k))
            return np.einsum("thk,shk->hts", turned_q, turned_k)

        np.testing.assert_allclose(scores(PLACES + 37), scores(PLACES), atol=1e-12)
        assert np.abs(scores(2 * PLACES) - scores(PLACES)).max() > 0.1


def test_rotary_keeps_lengths_and_leaves_position_0_unchanged():
    with jax.enable_x64(True):
        found = np.asarray(rotary(jnp.asarray(X), jnp.asarray(PLACES)))
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), np.linalg.norm(X, axis=-1), rtol=1e-12)
    np.testing.assert_array_equal(found[:, 0], X[:, 0])
    assert np.abs(found[:, 1:] - X[:, 1:]).max(axis=(0, 2, 3)).min() > 0.1


def test_the_gradient_of_rotary_is_the_rotation_back():
    with jax.enable_x64(True):
        turned, pull = jax.vjp(lambda x: rotary(x, jnp.asarray(PLACES)), jnp.asarray(X))
        np.testing.assert_allclose(pull(turned)[0], X, atol=1e-12)
        np.testing.assert_allclose(rotary(turned, jnp.asarray(-PLACES)), X, atol=1e-12)


def test_each_example_may_have_positions_of_its_own():
    places = np.stack([PLACES, PLACES[::-1]])
    x = jnp.asarray(X, jnp.float32)
    found = rotary(x, jnp.asarray(places))
    for row in range(BATCH):
        np.testing.assert_array_equal(found[row], rotary(x[row : row + 1], jnp.asarray(places[row]))[0])


def test_rotary_of_bfloat16_is_bfloat16_and_rounded_once():
    x = jnp.asarray(X, jnp.bfloat16)
    found = rotary(x, jnp.asarray(PLACES))
    exact = rotary(x.astype(jnp.float32), jnp.asarray(PLACES))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("shape", "places", "message"),
    [
        ((2, 5, 3, 7), (5,), "the head width must be even, got 7"),
        ((2, 5, 3, 8), (4,), "x [B, T, H, K], positions [T] or [B, T], got x (2, 5, 3, 8), positions (4,)"),
        ((2, 5, 3, 8), (1, 5), "positions (1, 5)"),
        ((5, 3, 8), (5,), "x (5, 3, 8)"),
    ],
)
def test_shapes_that_rotary_cannot_turn_are_named(shape, places, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        rotary(jnp.zeros(shape), jnp.zeros(places, jnp.int32))


@pytest.mark.parametrize("length", [None, 32])
def test_scaled_rates_are_those_of_transformers(length):
    kinds = {None: "linear", 32: "llama3"}
    settings = {"rope_type": kinds[length], "rope_theta": 50.0, "factor": 8.0}
    settings |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": length}
    config = transformers.LlamaConfig(hidden_size=64, num_attention_heads=2, rope_parameters=settings)
    expected, _ = ROPE_INIT_FUNCTIONS[kinds[length]](config)
    rates = 50.0 ** (-np.arange(0, 32, 2) / 32.0)
    found = np.asarray(RotaryScaling(8.0, original_length=length).scaled(jnp.asarray(rates, jnp.float32)))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)
    assert len({*np.round(rates / found, 3)}) > 3 or length is None  # some rates are kept, and some lie between


def test_ranks_count_the_counted_tokens_of_each_text():
    generator = np.random.default_rng(0)
    counted = generator.random((3, 20)) < 0.7
    texts = np.sort(generator.integers(0, 4, (3, 20)), axis=1)
    expected = [
        [sum(c for c, own in zip(row[: t + 1], text, strict=False) if own == text[t]) * row[t] for t in range(20)]
        for row, text in zip(counted.tolist(), texts.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(ranks(jnp.asarray(counted), jnp.asarray(texts)), expected)
    np.testing.assert_array_equal(ranks(jnp.asarray(counted)), counted * np.cumsum(counted, axis=1))
