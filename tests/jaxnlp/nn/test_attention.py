import functools
import re

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.nn.attention import CrossAttention, RelativeBias, SelfAttention, relative_bias
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.typing import BATCH_AXIS
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


def flat(kernel):
    """[D, ...] as [D, F]."""
    return kernel.reshape(len(kernel), -1)


def padded_cache(*, capacity=POSITIONS, filler=0.0):
    return (np.full((BATCH, HEADS, capacity, WIDTH // HEADS), filler, np.float32),) * 2


@pytest.mark.parametrize("use_bias", [True, False])
def test_values_and_gradients_equal_those_of_pytorch(use_bias):
    params = random_params(use_bias=use_bias)
    theirs = torch.nn.MultiheadAttention(WIDTH, HEADS, bias=use_bias, batch_first=True)
    weights = {"in_proj_weight": flat(params["qkv"]["kernel"]).T, "out_proj.weight": params["out"]["kernel"].T}
    if use_bias:
        weights |= {"in_proj_bias": params["qkv"]["bias"].reshape(-1), "out_proj.bias": params["out"]["bias"]}
    theirs.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    leaf = torch.tensor(X, requires_grad=True)
    future = torch.tensor(~np.tri(POSITIONS, dtype=bool))
    expected = theirs(leaf, leaf, leaf, attn_mask=future, need_weights=False)[0]
    upstream = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)
    expected.backward(torch.tensor(upstream))

    module = SelfAttention(HEADS, use_bias=use_bias)

    @jax.jit
    def ours(params, x):
        y, vjp = jax.vjp(lambda params, x: apply(module, params, x)[0], params, x)
        return y, *vjp(upstream)

    y, params_gradient, x_gradient = jax.device_get(ours(params, X))
    np.testing.assert_allclose(y, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(x_gradient, leaf.grad, atol=1e-5)
    np.testing.assert_allclose(flat(params_gradient["qkv"]["kernel"]).T, theirs.in_proj_weight.grad, atol=2e-5)
    np.testing.assert_allclose(params_gradient["out"]["kernel"].T, theirs.out_proj.weight.grad, atol=2e-5)


def test_later_positions_do_not_change_earlier_ones():
    module, params = SelfAttention(HEADS), random_params()
    changed = X.copy()
    changed[:, 3:] += 1.0
    before, after = (np.asarray(apply(module, params, x)[0]) for x in (X, changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert np.abs(before[:, 3:] - after[:, 3:]).min() > 1e-4


@pytest.mark.parametrize("sizes", [(1,) * POSITIONS, (3, 1, 2), (POSITIONS,)], ids=str)
def test_reading_in_parts_with_a_cache_equals_reading_at_once(sizes):
    module, params = SelfAttention(HEADS), random_params()
    whole, _ = apply(module, params, X)
    cache, parts, filled = padded_cache(), [], 0
    for size in sizes:
        part = X[:, filled : filled + size]
        part, cache = apply(module, params, part, cache=cache, cached_positions=np.int32(filled))
        parts.append(part)
        filled += size
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-6)


def test_slots_after_the_filled_part_of_a_cache_are_not_seen():
    module, params = SelfAttention(HEADS), random_params()
    plain, noisy = padded_cache(), padded_cache(filler=1e6)
    y, (keys, values) = jax.device_get(apply(module, params, X[:, :4], cache=plain, cached_positions=0))
    noisy_y, (noisy_keys, noisy_values) = jax.device_get(
        apply(module, params, X[:, :4], cache=noisy, cached_positions=0)
    )
    np.testing.assert_array_equal(y, noisy_y)
    np.testing.assert_array_equal(keys[:, :, :4], noisy_keys[:, :, :4])
    np.testing.assert_array_equal(noisy_values[:, :, 4:], 1e6)
    assert keys.shape == values.shape == (BATCH, HEADS, POSITIONS, WIDTH // HEADS)


def test_without_a_cache_none_comes_back():
    assert apply(SelfAttention(HEADS), random_params(), X)[1] is None


def test_parameters_have_the_stated_shapes_and_spread():
    module = SelfAttention(4, output_stddev=0.005)
    params = jax.jit(lambda key: module.init(key, np.zeros((1, 1, 64), np.float32), deterministic=True))(
        jax.random.key(0)
    )["params"]
    shapes = jax.tree.map(np.shape, params)
    assert shapes == {
        "qkv": {"kernel": (64, 3, 4, 16), "bias": (3, 4, 16)},
        "out": {"kernel": (64, 64), "bias": (64,)},
    }
    for name, stddev in (("qkv", 0.02), ("out", 0.005)):
        kernel = np.asarray(params[name]["kernel"])
        assert abs(kernel.std() / stddev - 1.0) < 5.0 / np.sqrt(2 * kernel.size)
        np.testing.assert_array_equal(params[name]["bias"], 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("rates", [{"attention_dropout_rate": 0.5}, {"dropout_rate": 0.5}], ids=str)
def test_dropout_needs_a_key_in_training_and_does_nothing_otherwise(rates):
    params = random_params()
    module, plain = SelfAttention(HEADS, **rates), SelfAttention(HEADS)
    np.testing.assert_array_equal(apply(module, params, X)[0], apply(plain, params, X)[0])
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        apply(module, params, X, deterministic=False)
    first, second = (
        apply(module, params, X, deterministic=False, dropout_key=jax.random.key(seed))[0] for seed in (0, 1)
    )
    assert not np.allclose(first, second)


@pytest.mark.thorough
def test_shards_of_a_batch_drop_what_the_whole_batch_drops():
    module, params = SelfAttention(HEADS, attention_dropout_rate=0.3, dropout_rate=0.3), random_params()
    x = np.random.default_rng(3).normal(size=(8, POSITIONS, WIDTH)).astype(np.float32)

    def run(x):
        return apply(module, params, x, deterministic=False, dropout_key=jax.random.key(4))[0]

    shards = jax.jit(jax.vmap(run, axis_name=BATCH_AXIS))(x.reshape(4, 2, POSITIONS, WIDTH))
    np.testing.assert_allclose(np.asarray(shards).reshape(x.shape), run(x), atol=1e-6)


def test_bfloat16_computes_in_bfloat16_with_float32_parameters():
    module = SelfAttention(HEADS, compute=TransformerCompute(dtype="bfloat16"))
    x = X.astype(jnp.bfloat16)
    params = jax.eval_shape(lambda key: module.init(key, x, deterministic=True)["params"], jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    y, _ = apply(module, random_params(), x)
    assert y.dtype == jnp.bfloat16
    exact, _ = apply(SelfAttention(HEADS), random_params(), np.asarray(x, np.float32))
    np.testing.assert_allclose(np.asarray(y, np.float32), exact, atol=0.1)


def test_heads_that_do_not_divide_the_width_are_named():
    with pytest.raises(ValueError, match=re.escape("num_heads must divide the width, got 3 heads for width 8")):
        apply(SelfAttention(3), random_params(), X)


def load_theirs(params):
    """PyTorch's multi-head attention with the parameters of ours, of either kind."""
    theirs = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    projections = [params["qkv"]] if "qkv" in params else [params["q"], params["kv"]]
    weights = {
        "in_proj_weight": np.concatenate([flat(dense["kernel"]).T for dense in projections]),
        "in_proj_bias": np.concatenate([dense["bias"].reshape(-1) for dense in projections]),
        "out_proj.weight": params["out"]["kernel"].T,
        "out_proj.bias": params["out"]["bias"],
    }
    theirs.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return theirs


def test_weights_asked_for_are_those_of_pytorch():
    params = random_params()
    y, weights = apply_with_weights(SelfAttention(HEADS), params, X)
    np.testing.assert_allclose(y, apply(SelfAttention(HEADS), params, X)[0], atol=1e-6)
    leaf, future = torch.tensor(X), torch.tensor(~np.tri(POSITIONS, dtype=bool))
    _, expected = load_theirs(params)(leaf, leaf, leaf, attn_mask=future, average_attn_weights=False)
    np.testing.assert_allclose(weights, expected.detach(), atol=1e-6)


@pytest.mark.parametrize(
    "module", [SelfAttention(HEADS), CrossAttention(HEADS)], ids=lambda module: type(module).__name__
)
def test_weights_not_asked_for_are_not_computed(module, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("computed")

    monkeypatch.setattr("jaxnlp.nn.attention.attention_weights", refuse)
    inputs = (X,) if isinstance(module, SelfAttention) else (X, X)
    init = functools.partial(module.init, jax.random.key(0), *inputs, deterministic=True)
    params = jax.eval_shape(init)["params"]
    jax.eval_shape(lambda params: module.apply({"params": params}, *inputs, deterministic=True), params)
    with pytest.raises(AssertionError, match="computed"):
        jax.eval_shape(
            lambda params: module.apply({"params": params}, *inputs, deterministic=True, mutable=["intermediates"]),
            params,
        )


MEMORY = np.random.default_rng(4).normal(size=(BATCH, 4, WIDTH)).astype(np.float32)
VISIBLE = np.tri(POSITIONS, 4, dtype=bool)


def cross_params():
    qkv = random_params()["qkv"]
    q = {name: value[..., 0, :, :] for name, value in qkv.items()}
    kv = {name: value[..., 1:, :, :] for name, value in qkv.items()}
    return {"q": q, "kv": kv, "out": random_params()["out"]}


def test_cross_attention_gives_values_gradients_and_weights_of_pytorch():
    params = cross_params()
    theirs = load_theirs(params)
    leaves = [torch.tensor(a, requires_grad=True) for a in (X, MEMORY)]
    expected, expected_weights = theirs(
        leaves[0], leaves[1], leaves[1], attn_mask=torch.tensor(~VISIBLE), average_attn_weights=False
    )
    upstream = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)
    expected.backward(torch.tensor(upstream))

    @jax.jit
    def ours(params, x, memory):
        def read(params, x, memory):
            return CrossAttention(HEADS).apply(
                {"params": params},
                x,
                memory,
                deterministic=True,
                attention_mask=VISIBLE[None, None],
                mutable=["intermediates"],
            )

        y, vjp, found = jax.vjp(read, params, x, memory, has_aux=True)
        return y, found, *vjp(upstream)

    y, found, gradients, *input_gradients = jax.device_get(ours(params, X, MEMORY))
    np.testing.assert_allclose(y, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(found["intermediates"]["weights"][0], expected_weights.detach(), atol=1e-6)
    for found, leaf in zip(input_gradients, leaves, strict=True):
        np.testing.assert_allclose(found, leaf.grad, atol=1e-5)
    in_proj = np.concatenate([flat(gradients["q"]["kernel"]), flat(gradients["kv"]["kernel"])], axis=1)
    np.testing.assert_allclose(in_proj.T, theirs.in_proj_weight.grad, atol=2e-5)
    np.testing.assert_allclose(gradients["out"]["kernel"].T, theirs.out_proj.weight.grad, atol=2e-5)


def test_cross_attention_takes_the_same_queries_for_all_examples():
    module, params = CrossAttention(HEADS), cross_params()

    @jax.jit
    def read(x):
        return module.apply({"params": params}, x, MEMORY, deterministic=True)

    np.testing.assert_allclose(read(X[:1]), read(np.repeat(X[:1], BATCH, axis=0)), atol=1e-6)


def test_cross_attention_names_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match=re.escape("num_heads must divide the width, got 3 heads for width 8")):
        CrossAttention(3).apply({"params": cross_params()}, X, MEMORY, deterministic=True)


@pytest.mark.parametrize(
    ("x", "memory"),
    [
        ((BATCH, WIDTH), MEMORY.shape),
        (X.shape, (4, WIDTH)),
        ((BATCH + 1, POSITIONS, WIDTH), MEMORY.shape),
        (X.shape, (1, 4, WIDTH)),
        ((BATCH, POSITIONS, WIDTH + 2), MEMORY.shape),
    ],
    ids=["rank", "rank_of_memory", "batch", "batch_of_memory", "width"],
)
def test_cross_attention_names_shapes_that_do_not_fit(x, memory):
    message = f"expected x [B or 1, T, D] and memory [B, S, D], got x {x}, memory {memory}"
    inputs = [np.zeros(shape, np.float32) for shape in (x, memory)]
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossAttention(HEADS).apply({"params": cross_params()}, *inputs, deterministic=True)


def test_input_of_two_axes_is_refused():
    with pytest.raises(ValueError, match=re.escape("expected x [B, T, D], got x (6, 8)")):
        apply(SelfAttention(HEADS), random_params(), X[0])


def test_a_cache_with_a_mask_hides_what_the_mask_hides():
    module, params = SelfAttention(HEADS), random_params()
    visible = np.arange(POSITIONS) != 1
    whole, _ = apply(module, params, X, attention_mask=visible[None, None, None])
    first, cache = apply(
        module, params, X[:, :3], cache=padded_cache(), cached_positions=0, attention_mask=visible[None, None, None]
    )
    second, _ = apply(
        module, params, X[:, 3:], cache=cache, cached_positions=3, attention_mask=visible[None, None, None]
    )
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-6)
    assert np.abs(np.asarray(whole) - np.asarray(apply(module, params, X)[0])).max() > 1e-3


def test_a_cache_is_not_for_training_with_dropout():
    module = SelfAttention(HEADS, attention_dropout_rate=0.5)
    with pytest.raises(ValueError, match="dropout cannot be combined with a cache"):
        apply(module, random_params(), X, deterministic=False, cache=padded_cache(), cached_positions=0)


def test_a_cache_needs_causal_attention():
    with pytest.raises(ValueError, match=re.escape("a cache needs causal attention; set causal=True")):
        apply(SelfAttention(HEADS, causal=False), random_params(), X, cache=padded_cache(), cached_positions=0)


def test_query_heads_of_a_group_share_keys_and_values():
    params, repeated = grouped_params()
    module = SelfAttention(HEADS, num_key_heads=1)
    expected, _ = apply(SelfAttention(HEADS), repeated, X)
    np.testing.assert_allclose(apply(module, params, X)[0], expected, atol=1e-6)
    cache = (np.zeros((BATCH, 1, POSITIONS, WIDTH // HEADS), np.float32),) * 2
    cached, (keys, _) = apply(module, params, X, cache=cache, cached_positions=0)
    np.testing.assert_allclose(cached, expected, atol=1e-6)
    assert keys.shape == cache[0].shape
    shown, weights = apply_with_weights(module, params, X)
    np.testing.assert_allclose(shown, expected, atol=1e-6)
    assert weights.shape == (BATCH, HEADS, POSITIONS, POSITIONS)


def test_key_heads_that_do_not_divide_the_heads_are_named():
    message = "num_key_heads must divide num_heads, got 3 key heads for 2 heads"
    with pytest.raises(ValueError, match=re.escape(message)):
        apply(SelfAttention(HEADS, num_key_heads=3), random_params(), X)


def test_keys_and_values_of_a_memory_serve_each_step():
    module, params = CrossAttention(HEADS), cross_params()

    @jax.jit
    def read(params, x, memory):
        return module.apply({"params": params}, x, memory, deterministic=True)

    whole = np.asarray(read(params, X, MEMORY))
    keys_and_values = jax.jit(module.keys_and_values)(params, MEMORY)
    assert [array.shape for array in keys_and_values] == [(BATCH, HEADS, 4, WIDTH // HEADS)] * 2
    without_projection = {name: value for name, value in params.items() if name != "kv"}
    for t in range(POSITIONS):
        step = read(without_projection, X[:, t : t + 1], keys_and_values)
        np.testing.assert_allclose(step, whole[:, t : t + 1], atol=1e-6)


@pytest.mark.parametrize("shape", [(1, HEADS, 6, 4), (BATCH, 1, 6, 4), (BATCH, HEADS, 6, 3)], ids=str)
def test_a_cache_of_another_batch_or_of_other_heads_is_refused(shape):
    cache = (np.zeros(shape, np.float32),) * 2
    with pytest.raises(AssertionError, match="has shape"):
        apply(SelfAttention(HEADS), random_params(), X, cache=cache, cached_positions=0)


@pytest.mark.thorough
def test_a_bias_that_layers_share_acts_as_a_table_of_the_layer():
    buckets = RelativeBias(8, 6)
    table = np.random.default_rng(5).normal(size=(8, HEADS)).astype(np.float32)
    expected, _ = apply(SelfAttention(HEADS, positions=buckets), random_params() | {"relative_bias": table}, X)
    bias = relative_bias(jnp.asarray(table), buckets, 0, POSITIONS, POSITIONS, bidirectional=False)
    found = SelfAttention(HEADS).apply({"params": random_params()}, X, deterministic=True, bias=bias)[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - apply(SelfAttention(HEADS), random_params(), X)[0]).max() > 0.01
    with pytest.raises(ValueError, match="takes no bias"):
        SelfAttention(HEADS, positions=buckets).apply({"params": random_params()}, X, deterministic=True, bias=bias)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("key_heads", [HEADS, 1])
def test_queries_keys_and_values_may_have_no_biases_although_the_output_has(key_heads):
    module = SelfAttention(HEADS, num_key_heads=key_heads, qkv_bias=False)
    params = module.init(jax.random.key(0), X, deterministic=True)["params"]
    names = {"qkv"} if key_heads == HEADS else {"q", "kv"}
    assert {name: set(layer) for name, layer in params.items()} == {
        "out": {"kernel", "bias"},
        **{name: {"kernel"} for name in names},
    }
    zero = {name: params[name] | {"bias": jnp.zeros(params[name]["kernel"].shape[1:])} for name in names}
    biased = SelfAttention(HEADS, num_key_heads=key_heads)
    found, expected = (
        own.apply({"params": held}, X, deterministic=True)[0]
        for own, held in ((module, params), (biased, {**params, **zero}))
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.thorough
@pytest.mark.parametrize("module", [SelfAttention, CrossAttention])
def test_heads_may_have_another_width_and_scores_another_scale(module):
    memory = (X[:, :3],) if module is CrossAttention else ()

    def made(**options):
        own = module(HEADS, use_bias=False, **options)
        return own, own.init(jax.random.key(0), X, *memory, deterministic=True)["params"]

    wide, params = made(head_width=5, scale=1.0)
    assert params["out"]["kernel"].shape == (HEADS * 5, WIDTH)
    name = "q" if module is CrossAttention else "qkv"
    assert params[name]["kernel"].shape[-1] == 5
    params = jax.tree.map(lambda x: 30.0 * x, params)
    # Queries that are sqrt(K) times as large undo the scale of the scores.
    kernel = params[name]["kernel"]
    larger = 5**0.5 * kernel if name == "q" else jnp.concatenate([5**0.5 * kernel[:, :1], kernel[:, 1:]], axis=1)
    usual, _ = made(head_width=5)
    found, expected = (
        own.apply({"params": held}, X, *memory, deterministic=True)
        for own, held in ((wide, params), (usual, params | {name: {"kernel": larger}}))
    )
    found, expected = (y if module is CrossAttention else y[0] for y in (found, expected))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(found).max() > 0.1
