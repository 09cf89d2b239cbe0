import functools
import re

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.nn.compute import Compute
from jaxnlp.nn.synthesizer import SynthesizerAttention
from jaxnlp.typing import BATCH_AXIS
from tests.jaxnlp.nn.attention_helpers import apply_with_weights

BATCH, POSITIONS, WIDTH, HEADS, CONTEXT = 2, 5, 8, 2, 7
X = np.random.default_rng(0).normal(size=(BATCH, POSITIONS, WIDTH)).astype(np.float32)


class Theirs(torch.nn.Module):
    """CS224N's form, with its names, written from its equations."""

    def __init__(self, use_bias):
        super().__init__()
        self.w1 = torch.nn.Linear(WIDTH, WIDTH, bias=use_bias)
        self.value = torch.nn.Linear(WIDTH, WIDTH, bias=use_bias)
        self.proj = torch.nn.Linear(WIDTH, WIDTH, bias=use_bias)
        self.w2 = torch.nn.Parameter(torch.empty(WIDTH // HEADS, CONTEXT))
        self.b2 = torch.nn.Parameter(torch.empty(CONTEXT)) if use_bias else None

    def forward(self, x):
        batch, positions, width = x.shape

        def heads(y):
            return y.view(batch, positions, HEADS, width // HEADS).transpose(1, 2)

        scores = torch.relu(heads(self.w1(x))) @ self.w2[:, :positions]
        if self.b2 is not None:
            scores = scores + self.b2[:positions]
        future = torch.tensor(~np.tri(positions, dtype=bool))
        weights = torch.softmax(scores.masked_fill(future, -1e10), dim=-1)
        return self.proj((weights @ heads(self.value(x))).transpose(1, 2).reshape(batch, positions, width))


def heads_apart(*parts):
    """Arrays [..., D] as one, [..., n, H, K]."""
    return np.stack([part.reshape(*part.shape[:-1], HEADS, WIDTH // HEADS) for part in parts], axis=-3)


def from_theirs(named):
    """Our parameters of theirs, or of their gradients."""
    params = {
        "zv": {"kernel": heads_apart(named["w1.weight"].T, named["value.weight"].T)},
        "kernel": named["w2"],
        "out": {"kernel": named["proj.weight"].T},
    }
    if "b2" in named:
        params["zv"]["bias"] = heads_apart(named["w1.bias"], named["value.bias"])
        params |= {"bias": named["b2"], "out": params["out"] | {"bias": named["proj.bias"]}}
    return params


def make_theirs(*, use_bias=True):
    theirs = Theirs(use_bias)
    torch.manual_seed(1)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return theirs


def random_params():
    return from_theirs({name: value.detach().numpy() for name, value in make_theirs().named_parameters()})


def make_module(**changes):
    return SynthesizerAttention(HEADS, CONTEXT, **changes)


@functools.partial(jax.jit, static_argnums=0, static_argnames="deterministic")
def apply(module, params, x, *, deterministic=True, dropout_key=None, **cache):
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    return module.apply({"params": params}, x, deterministic=deterministic, rngs=rngs, **cache)


def empty_cache():
    return (np.full((BATCH, HEADS, CONTEXT, WIDTH // HEADS), 1e3, np.float32),)


@pytest.mark.parametrize("use_bias", [True, False])
def test_values_and_gradients_equal_those_of_the_assignments_form(use_bias):
    theirs = make_theirs(use_bias=use_bias)
    leaf = torch.tensor(X, requires_grad=True)
    expected = theirs(leaf)
    upstream = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)
    expected.backward(torch.tensor(upstream))
    named = dict(theirs.named_parameters())
    module = make_module(use_bias=use_bias)

    @jax.jit
    def ours(params, x):
        y, vjp = jax.vjp(lambda params, x: apply(module, params, x)[0], params, x)
        return y, *vjp(upstream)

    y, gradients, x_gradient = ours(from_theirs({name: value.detach().numpy() for name, value in named.items()}), X)
    np.testing.assert_allclose(y, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(x_gradient, leaf.grad, atol=2e-5)
    wanted = from_theirs({name: value.grad.numpy() for name, value in named.items()})
    assert jax.tree.structure(gradients) == jax.tree.structure(wanted)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-5, rtol=1e-5), gradients, wanted)


def test_later_positions_do_not_change_earlier_ones():
    changed = X.copy()
    changed[:, 3:] += 1.0
    before, after = (np.asarray(apply(make_module(), random_params(), x)[0]) for x in (X, changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert np.abs(before[:, 3:] - after[:, 3:]).min() > 1e-4


@pytest.mark.parametrize("sizes", [(1,) * POSITIONS, (3, 2)], ids=str)
def test_reading_in_parts_with_a_cache_of_values_equals_reading_at_once(sizes):
    module, params = make_module(), random_params()
    whole, no_cache = apply(module, params, X)
    assert no_cache is None
    cache, parts, filled = empty_cache(), [], 0
    for size in sizes:
        part = X[:, filled : filled + size]
        part, cache = apply(module, params, part, cache=cache, cached_positions=np.int32(filled))
        parts.append(part)
        filled += size
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-5)
    assert [x.shape for x in cache] == [(BATCH, HEADS, CONTEXT, WIDTH // HEADS)]


@pytest.mark.parametrize("shape", [(1, HEADS, CONTEXT, 4), (BATCH, HEADS, CONTEXT, 3)], ids=str)
def test_a_cache_of_another_batch_or_head_width_is_refused(shape):
    cache = (np.zeros(shape, np.float32),)
    with pytest.raises(AssertionError, match="has shape"):
        apply(make_module(), random_params(), X, cache=cache, cached_positions=0)


def test_weights_asked_for_mix_the_values_to_the_output():
    params = random_params()
    y, weights = jax.device_get(apply_with_weights(make_module(), params, X))
    assert weights.shape == (BATCH, HEADS, POSITIONS, POSITIONS)
    zv = params["zv"]
    values = np.einsum("btd,dhk->bthk", X, zv["kernel"][:, 1]) + zv["bias"][1]
    mixed = np.einsum("bhts,bshk->bthk", weights, values).reshape(X.shape)
    np.testing.assert_allclose(mixed @ params["out"]["kernel"] + params["out"]["bias"], y, atol=1e-5)


def test_begins_with_nearly_equal_weights_and_the_stated_spread():
    module = SynthesizerAttention(2, 200, output_stddev=0.005)
    params = jax.jit(lambda key: module.init(key, np.zeros((1, 1, 128), np.float32), deterministic=True))(
        jax.random.key(0)
    )["params"]
    assert jax.tree.map(np.shape, params) == {
        "zv": {"kernel": (128, 2, 2, 64), "bias": (2, 2, 64)},
        "kernel": (64, 200),
        "bias": (200,),
        "out": {"kernel": (128, 128), "bias": (128,)},
    }
    for kernel, stddev in ((params["zv"]["kernel"], 0.02), (params["out"]["kernel"], 0.005)):
        assert abs(np.asarray(kernel).std() / stddev - 1.0) < 5.0 / np.sqrt(2 * kernel.size)
    kernel = np.asarray(params["kernel"])
    assert 0.00099 < kernel.max() < 0.001
    assert -0.001 <= kernel.min() < -0.00099
    assert abs(kernel.mean()) < 5.0 * kernel.std() / np.sqrt(kernel.size)
    for bias in (params["zv"]["bias"], params["bias"], params["out"]["bias"]):
        np.testing.assert_array_equal(bias, 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("rates", [{"attention_dropout_rate": 0.5}, {"dropout_rate": 0.5}], ids=str)
def test_dropout_needs_a_key_in_training_and_does_nothing_otherwise(rates):
    module, params = make_module(**rates), random_params()
    np.testing.assert_array_equal(apply(module, params, X)[0], apply(make_module(), params, X)[0])
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        apply(module, params, X, deterministic=False)
    first, again, other = (
        apply(module, params, X, deterministic=False, dropout_key=jax.random.key(seed))[0] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.thorough
def test_shards_of_a_batch_drop_what_the_whole_batch_drops():
    module, params = make_module(attention_dropout_rate=0.3, dropout_rate=0.3), random_params()
    x = np.random.default_rng(3).normal(size=(4, POSITIONS, WIDTH)).astype(np.float32)

    def run(x):
        return apply(module, params, x, deterministic=False, dropout_key=jax.random.key(4))[0]

    shards = jax.jit(jax.vmap(run, axis_name=BATCH_AXIS))(x.reshape(2, 2, POSITIONS, WIDTH))
    np.testing.assert_allclose(np.asarray(shards).reshape(x.shape), run(x), atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("dtypes", [{"dtype": "bfloat16"}, {"matmul_dtype": "bfloat16"}], ids=str)
def test_short_types_keep_float32_parameters_and_stay_near_float32(dtypes):
    module, params = make_module(compute=Compute(**dtypes)), random_params()
    x = X.astype(jnp.bfloat16)
    shapes = jax.eval_shape(lambda key: module.init(key, x, deterministic=True)["params"], jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    y, _ = apply(module, params, x)
    assert y.dtype == dtypes.get("dtype", "float32")
    exact, _ = apply(make_module(), params, np.asarray(x, np.float32))
    error = np.abs(np.asarray(y, np.float32) - np.asarray(exact)).max()
    assert 1e-5 < error < 0.1


@pytest.mark.parametrize(
    ("heads", "shape", "message"),
    [
        (HEADS, (POSITIONS, WIDTH), "expected x [B, T, D], got x (5, 8)"),
        (3, (1, POSITIONS, WIDTH), "num_heads must divide the width, got 3 heads for width 8"),
        (HEADS, (1, CONTEXT + 1, WIDTH), "a sequence of 8 positions exceeds the synthesizer's 7"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_numbers(heads, shape, message):
    module = SynthesizerAttention(heads, CONTEXT)
    x = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=re.escape(message)):
        jax.eval_shape(lambda: module.init(jax.random.key(0), x, deterministic=True))
