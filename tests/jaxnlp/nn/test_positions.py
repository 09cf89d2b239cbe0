import functools

import jax
import numpy as np
import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from jaxnlp.nn.attention import RelativeBias, RelativeVectors, Rotary, SelfAttention
from tests.jaxnlp.nn.attention_helpers import (
    BATCH,
    HEADS,
    POSITIONS,
    WIDTH,
    X,
    apply,
    apply_with_weights,
    grouped_params,
    random_params,
)


def positioned(params, positions):
    """Parameters of a module with these positions, its tables of ordinary size."""
    generator = np.random.default_rng(6)
    return params | {
        name: generator.normal(size=shape).astype(np.float32) for name, shape in TABLES.get(positions, {}).items()
    }


BUCKETS = {"num_buckets": 6, "max_distance": 5}
BIAS, VECTORS = RelativeBias(**BUCKETS), RelativeVectors(5)
POSITIONED = (Rotary(), BIAS, VECTORS)


TABLES = {
    BIAS: {"relative_bias": (6, HEADS)},
    VECTORS: {"relative_keys": (11, WIDTH // HEADS), "relative_values": (11, WIDTH // HEADS)},
}


@pytest.mark.parametrize("causal", [True, False])
def test_rotary_positions_multiply_queries_and_keys_as_complex_numbers(causal):
    params = random_params()
    ours, _ = apply(SelfAttention(HEADS, causal=causal, positions=Rotary()), params, X)

    q, k, v = np.moveaxis(np.einsum("btd,dphk->btphk", X, params["qkv"]["kernel"]) + params["qkv"]["bias"], 2, 0)
    half = WIDTH // HEADS // 2
    turns = np.exp(1j * np.arange(POSITIONS)[:, None] * 10_000.0 ** (-np.arange(half) / half))[None, :, None]
    q, k = ((x[..., :half] + 1j * x[..., half:]) * turns for x in (q, k))
    scores = np.einsum("bthi,bshi->bhts", q, k.conj()).real / (2 * half) ** 0.5
    scores = np.where(np.tri(POSITIONS, dtype=bool) | (not causal), scores, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    mixed = np.einsum("bhts,bshk->bthk", weights, v).reshape(X.shape)
    np.testing.assert_allclose(ours, mixed @ params["out"]["kernel"] + params["out"]["bias"], atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_relative_positions_give_values_and_gradients_of_t5(causal):
    params = positioned(random_params(use_bias=False), BIAS)
    config = T5Config(
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        num_heads=HEADS,
        relative_attention_num_buckets=BUCKETS["num_buckets"],
        relative_attention_max_distance=BUCKETS["max_distance"],
        is_decoder=causal,
        dropout_rate=0.0,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    scale = (WIDTH // HEADS) ** -0.5  # T5 does not scale its scores
    q, k, v = np.moveaxis(params["qkv"]["kernel"].reshape(WIDTH, 3, WIDTH), 1, 0)
    weights = {"q": scale * q.T, "k": k.T, "v": v.T, "o": params["out"]["kernel"].T}
    state = {f"{name}.weight": torch.tensor(weight) for name, weight in weights.items()}
    theirs.load_state_dict(state | {"relative_attention_bias.weight": torch.tensor(params["relative_bias"])})
    leaf = torch.tensor(X, requires_grad=True)
    hidden = np.where(np.tri(POSITIONS, dtype=bool) | (not causal), 0.0, np.finfo(np.float32).min)
    expected = theirs(leaf, mask=torch.tensor(hidden[None, None], dtype=torch.float32))[0]
    upstream = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)
    expected.backward(torch.tensor(upstream))

    module = SelfAttention(HEADS, causal=causal, use_bias=False, positions=BIAS)

    @jax.jit
    def ours(params, x):
        y, vjp = jax.vjp(lambda params, x: apply(module, params, x)[0], params, x)
        return y, *vjp(upstream)

    y, gradient, x_gradient = ours(params, X)
    np.testing.assert_allclose(y, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(x_gradient, leaf.grad, atol=2e-5)
    np.testing.assert_allclose(gradient["relative_bias"], theirs.relative_attention_bias.weight.grad, atol=2e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_relative_vectors_are_added_to_keys_and_values(causal):
    tables = {name: table[:5] for name, table in positioned({}, VECTORS).items()}
    params = random_params() | tables
    ours, _ = apply(SelfAttention(HEADS, causal=causal, positions=RelativeVectors(2)), params, X)

    q, k, v = np.moveaxis(np.einsum("btd,dphk->btphk", X, params["qkv"]["kernel"]) + params["qkv"]["bias"], 2, 0)
    mixed = np.zeros_like(q)
    for t in range(POSITIONS):
        seen = np.arange(t + 1 if causal else POSITIONS)
        index = np.clip(seen - t, -2, 2) + 2
        keys = k[:, seen] + params["relative_keys"][index][:, None]
        values = v[:, seen] + params["relative_values"][index][:, None]
        scores = np.einsum("bhk,bshk->bhs", q[:, t], keys) / (WIDTH // HEADS) ** 0.5
        weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
        mixed[:, t] = np.einsum("bhs,bshk->bhk", weights, values)
    expected = mixed.reshape(X.shape) @ params["out"]["kernel"] + params["out"]["bias"]
    np.testing.assert_allclose(ours, expected, atol=2e-5)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("num_key_heads", [None, 1], ids=["all_heads", "grouped_heads"])
@pytest.mark.parametrize("positions", [None, *POSITIONED], ids=repr)
@pytest.mark.parametrize("sizes", [(1,) * POSITIONS, (3, 1, 2)], ids=str)
def test_positions_of_cached_parts_are_those_of_the_whole_sequence(positions, num_key_heads, sizes):
    params = positioned(random_params() if num_key_heads is None else grouped_params()[0], positions)
    module = SelfAttention(HEADS, num_key_heads=num_key_heads, positions=positions)
    whole, _ = apply(module, params, X)
    if positions is not None:
        without = SelfAttention(HEADS, num_key_heads=num_key_heads)
        assert np.abs(np.asarray(whole) - np.asarray(apply(without, params, X)[0])).max() > 1e-2
    cache = (np.zeros((BATCH, num_key_heads or HEADS, POSITIONS + 2, WIDTH // HEADS), np.float32),) * 2
    parts, filled = [], 0
    for size in sizes:
        part = X[:, filled : filled + size]
        part, cache = apply(module, params, part, cache=cache, cached_positions=np.int32(filled))
        parts.append(part)
        filled += size
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-6)


@pytest.mark.parametrize("positions", POSITIONED, ids=repr)
def test_weights_shown_know_positions(positions):
    params = positioned(random_params(), positions)
    module = SelfAttention(HEADS, positions=positions)
    y, weights = apply_with_weights(module, params, X)
    np.testing.assert_allclose(y, apply(module, params, X)[0], atol=1e-6)
    _, plain = apply_with_weights(SelfAttention(HEADS), random_params(), X)
    assert np.abs(np.asarray(weights) - np.asarray(plain)).max() > 1e-2


@pytest.mark.parametrize("positions", [None, *POSITIONED], ids=repr)
def test_only_relative_positions_have_parameters(positions):
    module = SelfAttention(HEADS, positions=positions)
    init = functools.partial(module.init, jax.random.key(0), X, deterministic=True)
    shapes = jax.tree.map(np.shape, jax.eval_shape(init)["params"])
    tables = {name: shape for name, shape in shapes.items() if name not in ("out", "qkv")}
    assert tables == TABLES.get(positions, {})


@pytest.mark.thorough
def test_positions_do_not_change_the_initial_values_of_other_parameters():
    @functools.partial(jax.jit, static_argnums=0)
    def initial(positions):
        return SelfAttention(HEADS, positions=positions).init(jax.random.key(0), X, deterministic=True)["params"]

    plain = initial(None)
    for found in map(initial, TABLES):
        for name, layer in plain.items():
            jax.tree.map(np.testing.assert_array_equal, layer, found[name])
