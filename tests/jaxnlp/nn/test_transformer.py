import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.nn.attention import CrossAttention, RelativeBias, RelativeVectors, Rotary
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.transformer import TransformerBlock, stack, unstacked
from jaxnlp.ops import masks
from tests.jaxnlp.nn.block_helpers import BATCH, HEADS, HIDDEN, POSITIONS, WIDTH, layers, make_block

X = np.random.default_rng(0).normal(size=(BATCH, POSITIONS, WIDTH)).astype(np.float32)


def random_params():
    generator = np.random.default_rng(1)

    def dense(rows, columns):
        return {"kernel": 0.5 * generator.normal(size=(rows, columns)), "bias": generator.normal(size=columns)}

    def norm():
        return {"scale": 1.0 + 0.2 * generator.normal(size=WIDTH), "bias": generator.normal(size=WIDTH)}

    def heads(layer, parts):
        return {name: value.reshape(*value.shape[:-1], parts, HEADS, -1) for name, value in layer.items()}

    params = {
        "attention_norm": norm(),
        "attention": {"qkv": heads(dense(WIDTH, 3 * WIDTH), 3), "out": dense(WIDTH, WIDTH)},
        "feed_forward_norm": norm(),
        "feed_forward": {"up": dense(WIDTH, HIDDEN), "down": dense(HIDDEN, WIDTH)},
    }
    return jax.tree.map(np.float32, params)


@functools.partial(jax.jit, static_argnums=0)
def apply(block, params, x, cache=None, cached_positions=0, dropout_key=None, **memory):
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    read = {"deterministic": dropout_key is None, "cache": cache, "cached_positions": cached_positions} | memory
    return block.apply({"params": params}, x, rngs=rngs, **read)


def test_equals_a_pre_norm_block_of_pytorch():
    params = random_params()
    theirs = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, HIDDEN, dropout=0.0, activation=torch.nn.GELU("tanh"), norm_first=True, batch_first=True
    )
    attention, feed_forward = params["attention"], params["feed_forward"]
    weights = {
        "self_attn.in_proj_weight": attention["qkv"]["kernel"].reshape(WIDTH, -1).T,
        "self_attn.in_proj_bias": attention["qkv"]["bias"].reshape(-1),
        "self_attn.out_proj.weight": attention["out"]["kernel"].T,
        "self_attn.out_proj.bias": attention["out"]["bias"],
        "linear1.weight": feed_forward["up"]["kernel"].T,
        "linear1.bias": feed_forward["up"]["bias"],
        "linear2.weight": feed_forward["down"]["kernel"].T,
        "linear2.bias": feed_forward["down"]["bias"],
        "norm1.weight": params["attention_norm"]["scale"],
        "norm1.bias": params["attention_norm"]["bias"],
        "norm2.weight": params["feed_forward_norm"]["scale"],
        "norm2.bias": params["feed_forward_norm"]["bias"],
    }
    theirs.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    leaf = torch.tensor(X, requires_grad=True)
    expected = theirs(leaf, src_mask=torch.tensor(~np.tri(POSITIONS, dtype=bool)))
    upstream = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)
    expected.backward(torch.tensor(upstream))

    @jax.jit
    def ours(params, x):
        y, vjp = jax.vjp(lambda params, x: apply(make_block(), params, x)[0], params, x)
        return y, *vjp(upstream)

    y, params_gradient, x_gradient = ours(params, X)
    np.testing.assert_allclose(y, expected.detach(), atol=2e-5)
    np.testing.assert_allclose(x_gradient, leaf.grad, atol=2e-5)
    np.testing.assert_allclose(params_gradient["attention_norm"]["scale"], theirs.norm1.weight.grad, atol=5e-5)
    np.testing.assert_allclose(
        params_gradient["feed_forward"]["down"]["kernel"].T, theirs.linear2.weight.grad, atol=5e-5
    )


def test_branches_that_write_nothing_do_not_change_the_input():
    params = random_params()
    for branch, layer in (("attention", "out"), ("feed_forward", "down")):
        params[branch][layer] = jax.tree.map(np.zeros_like, params[branch][layer])
    np.testing.assert_array_equal(apply(make_block(), params, X)[0], X)


@pytest.mark.parametrize(("kept", "silenced"), [("attention", "feed_forward"), ("feed_forward", "attention")])
def test_dropout_acts_on_each_branch_and_not_on_the_residual_stream(kept, silenced):
    params = random_params()
    last = {"attention": "out", "feed_forward": "down"}[silenced]
    params[silenced][last] = jax.tree.map(np.zeros_like, params[silenced][last])
    branch = np.asarray(apply(make_block(), params, X)[0]) - X
    block = make_block(residual_dropout_rate=0.5)
    dropped = np.asarray(apply(block, params, X, dropout_key=jax.random.key(0))[0])
    untouched = dropped == X
    assert 0.2 < untouched.mean() < 0.8, kept
    np.testing.assert_allclose(dropped, np.where(untouched, X, X + 2.0 * branch), atol=1e-5)


@pytest.mark.thorough
def test_weights_that_write_to_the_residual_stream_have_their_own_spread():
    block = make_block(residual_stddev=0.004, feed_forward_width=128)
    x = np.zeros((1, 1, 64), np.float32)
    params = jax.jit(lambda key: block.init(key, x, deterministic=True))(jax.random.key(0))["params"]
    attention, feed_forward = params["attention"], params["feed_forward"]
    for layer, stddev in (
        (attention["qkv"], 0.02),
        (attention["out"], 0.004),
        (feed_forward["up"], 0.02),
        (feed_forward["down"], 0.004),
    ):
        kernel = np.asarray(layer["kernel"])
        assert abs(kernel.std() / stddev - 1.0) < 5.0 / np.sqrt(2 * kernel.size)


def test_without_biases_there_is_no_bias_leaf():
    block = make_block(use_bias=False)
    params = jax.eval_shape(lambda key: block.init(key, X, deterministic=True)["params"], jax.random.key(0))
    assert not [path for path, _ in jax.tree_util.tree_leaves_with_path(params) if path[-1].key == "bias"]


def test_reading_in_parts_with_a_cache_equals_reading_at_once():
    block, params = make_block(), random_params()
    cache = (np.zeros((BATCH, HEADS, POSITIONS + 1, WIDTH // HEADS), np.float32),) * 2
    first, cache = apply(block, params, X[:, :4], cache, np.int32(0))
    second, cache = apply(block, params, X[:, 4:], cache, np.int32(4))
    whole, no_cache = apply(block, params, X)
    assert no_cache is None
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-5)


@pytest.mark.thorough
def test_equals_pytorchs_post_norm_layer_with_padding():
    batch, positions, width, heads, hidden = 3, 7, 16, 4, 32
    theirs = torch.nn.TransformerEncoderLayer(
        width, heads, hidden, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    )
    x = np.random.default_rng(0).normal(size=(batch, positions, width)).astype(np.float32)
    lengths = np.array([7, 4, 1], np.int32)

    def array(tensor, transpose=False):
        found = tensor.detach().numpy()
        return jnp.asarray(found.T if transpose else found)

    params = {
        "attention": {
            "qkv": {
                "kernel": array(theirs.self_attn.in_proj_weight, True).reshape(width, 3, heads, -1),
                "bias": array(theirs.self_attn.in_proj_bias).reshape(3, heads, -1),
            },
            "out": {
                "kernel": array(theirs.self_attn.out_proj.weight, True),
                "bias": array(theirs.self_attn.out_proj.bias),
            },
        },
        "attention_norm": {"scale": array(theirs.norm1.weight), "bias": array(theirs.norm1.bias)},
        "feed_forward": {
            "up": {"kernel": array(theirs.linear1.weight, True), "bias": array(theirs.linear1.bias)},
            "down": {"kernel": array(theirs.linear2.weight, True), "bias": array(theirs.linear2.bias)},
        },
        "feed_forward_norm": {"scale": array(theirs.norm2.weight), "bias": array(theirs.norm2.bias)},
    }
    block = make_block(
        num_heads=heads, feed_forward_width=hidden, causal=False, order="post", epsilon=1e-12, activation="gelu"
    )
    mask = masks.padding(jnp.asarray(lengths), positions)
    ours, _ = apply(block, params, x, attention_mask=mask)
    padded = torch.arange(positions)[None] >= torch.from_numpy(lengths)[:, None]
    theirs.train()  # PyTorch's fast path for inference leaves padded positions as zeros
    expected = theirs(torch.from_numpy(x), src_key_padding_mask=padded).detach().numpy()
    np.testing.assert_allclose(ours, expected, atol=2e-5)


MEMORY = np.random.default_rng(4).normal(size=(BATCH, 4, WIDTH)).astype(np.float32)


def cross_params(block):
    """Of a block with cross-attention, all of ordinary size."""
    generator = np.random.default_rng(5)
    shapes = jax.eval_shape(
        lambda key: block.init(key, X, deterministic=True, memory=MEMORY)["params"], jax.random.key(0)
    )
    return jax.tree.map(lambda leaf: np.float32(0.5 * generator.normal(size=leaf.shape)), shapes)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_block_with_cross_attention_equals_a_decoder_layer_of_pytorch(order):
    block = make_block(cross=True, order=order, activation="relu")
    params = cross_params(block)
    theirs = torch.nn.TransformerDecoderLayer(
        WIDTH, HEADS, HIDDEN, dropout=0.0, activation="relu", norm_first=order == "pre", batch_first=True
    )
    own, cross, feed_forward = params["attention"], params["cross_attention"], params["feed_forward"]

    def projection(layers, name):
        parts = [layer[name].reshape(WIDTH, -1).T if name == "kernel" else layer[name].reshape(-1) for layer in layers]
        return np.concatenate(parts)

    weights = {
        "linear1.weight": feed_forward["up"]["kernel"].T,
        "linear1.bias": feed_forward["up"]["bias"],
        "linear2.weight": feed_forward["down"]["kernel"].T,
        "linear2.bias": feed_forward["down"]["bias"],
    }
    for name, parts, out in (
        ("self_attn", [own["qkv"]], own["out"]),
        ("multihead_attn", [cross["q"], cross["kv"]], cross["out"]),
    ):
        weights |= {
            f"{name}.in_proj_weight": projection(parts, "kernel"),
            f"{name}.in_proj_bias": projection(parts, "bias"),
            f"{name}.out_proj.weight": out["kernel"].T,
            f"{name}.out_proj.bias": out["bias"],
        }
    for number, name in enumerate(("attention_norm", "cross_attention_norm", "feed_forward_norm"), 1):
        weights |= {f"norm{number}.weight": params[name]["scale"], f"norm{number}.bias": params[name]["bias"]}
    theirs.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    visible = np.array([[True] * 4, [True, True, False, False]])
    expected = theirs(
        torch.tensor(X),
        torch.tensor(MEMORY),
        tgt_mask=torch.tensor(~np.tri(POSITIONS, dtype=bool)),
        memory_key_padding_mask=torch.tensor(~visible),
    )
    found, _ = apply(block, params, X, memory=MEMORY, memory_mask=visible[:, None, None])
    np.testing.assert_allclose(found, expected.detach(), atol=2e-5)


@pytest.mark.thorough
def test_a_cache_holds_the_keys_and_values_of_the_memory():
    block = make_block(cross=True)
    params = cross_params(block)
    whole, _ = apply(block, params, X, memory=MEMORY)
    remembered = CrossAttention(HEADS).keys_and_values(params["cross_attention"], MEMORY)
    cache = (np.zeros((BATCH, HEADS, POSITIONS, WIDTH // HEADS), np.float32),) * 2 + remembered
    first, cache = apply(block, params, X[:, :4], cache, np.int32(0))
    second, cache = apply(block, params, X[:, 4:], cache, np.int32(4))
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-5)
    np.testing.assert_array_equal(cache[2], remembered[0])


class Stack(nn.Module):
    """A module of nothing but a stack."""

    compute: TransformerCompute = TransformerCompute()
    caches: bool = False

    @nn.compact
    def __call__(self, x):
        block = functools.partial(make_block, compute=self.compute, residual_dropout_rate=0.3)
        caches = (None,) * 3 if self.caches else None
        read = {"deterministic": False, "caches": caches, "return_layers": not self.caches}
        return stack(block, 3, self.compute, x, **read)


@pytest.mark.thorough
def test_a_stack_is_the_same_function_looped_over_unrolled_recomputed_and_of_separate_parameters():
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    params = jax.jit(Stack().init)(rngs, X)["params"]

    def result_of(module, params):
        return jax.device_get(jax.jit(module.apply)({"params": params}, X, rngs=rngs))

    expected = result_of(Stack(), params)
    assert expected.layers.shape == (3, *X.shape)
    np.testing.assert_array_equal(expected.layers[-1], expected.hidden)
    for options in ({"scan_layers": True}, {"remat": True}, {"scan_layers": True, "remat": True}):
        found = result_of(Stack(TransformerCompute(**options)), params)
        np.testing.assert_allclose(found.hidden, expected.hidden, atol=1e-6)
        np.testing.assert_allclose(found.layers, expected.layers, atol=1e-6)
    separate = unstacked(params)
    assert sorted(separate) == ["block_0", "block_1", "block_2"]
    assert result_of(Stack(caches=True), separate).hidden.shape == X.shape


@pytest.mark.thorough
def test_each_block_of_a_stack_may_be_given_its_own_arguments():
    """Looped over, and with separate parameters: as blocks that are called one after the other."""
    near = masks.local(POSITIONS, POSITIONS, before=1, after=1)
    block = functools.partial(make_block, causal=False, positions=Rotary())

    def of_layer(layer):
        base = jnp.where(layer == 1, 50.0, 10_000.0)
        return {"attention_mask": near | (layer != 1), "rotary_base": base, "normalised": layer == 0}

    class Different(nn.Module):
        @nn.compact
        def __call__(self, x):
            return stack(block, 2, TransformerCompute(scan_layers=True), x, deterministic=True, layer_inputs=of_layer)

    single, params = block(), random_params()

    def one(x, mask, base, normalised):
        given = {"attention_mask": np.array(mask), "rotary_base": np.float32(base), "normalised": np.array(normalised)}
        return np.asarray(apply(single, params, x, **given)[0])

    everything = np.ones_like(near)
    x = one(X, everything, 10_000.0, True)
    expected = one(x, near, 50.0, False)
    for other in (one(x, everything, 50.0, False), one(x, near, 10_000.0, False), one(x, near, 50.0, True)):
        assert np.abs(other - expected).max() > 1e-2
    both = {"blocks": jax.tree.map(lambda leaf: np.stack([leaf, leaf]), params)}
    for held in (both, unstacked(both)):
        found = jax.jit(Different().apply)({"params": held}, X).hidden
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.thorough
def test_a_loop_over_blocks_initialises_the_parameters_of_unrolled_blocks(monkeypatch):
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}

    def initialised():
        init = jax.jit(lambda rngs: Stack().init(rngs, X)["params"])
        return jax.device_get(init(rngs)), str(init.trace(rngs).jaxpr)

    looped, program = initialised()
    scan = nn.scan
    monkeypatch.setattr(nn, "scan", lambda *body, **options: scan(*body, **options | {"unroll": options["length"]}))
    unrolled, longer = initialised()
    assert ("unroll=1\n" in program, "unroll=3\n" in program) == (True, False)
    assert "unroll=3\n" in longer
    jax.tree.map(np.testing.assert_array_equal, looped, unrolled)


@pytest.mark.thorough
@pytest.mark.parametrize("positions", [Rotary(), RelativeBias(6, 5), RelativeVectors(5)], ids=repr)
def test_a_block_reads_in_parts_with_any_positions(positions):
    block, params = make_block(positions=positions), random_params()
    tables = {
        RelativeBias: {"relative_bias": (6, HEADS)},
        RelativeVectors: {"relative_keys": (11, WIDTH // HEADS), "relative_values": (11, WIDTH // HEADS)},
    }
    for name, shape in tables.get(type(positions), {}).items():
        params["attention"] |= {name: np.random.default_rng(3).normal(size=shape).astype(np.float32)}
    cache = (np.zeros((BATCH, HEADS, POSITIONS + 1, WIDTH // HEADS), np.float32),) * 2
    first, cache = apply(block, params, X[:, :4], cache, np.int32(0))
    second, _ = apply(block, params, X[:, 4:], cache, np.int32(4))
    whole, _ = apply(block, params, X)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-5)
    assert np.abs(whole - apply(make_block(), params, X)[0]).max() > 1e-2


class Average(nn.Module):
    """A mixer of one's own: the mean over the positions so far."""

    @nn.compact
    def __call__(self, x, *, deterministic, attention_mask=None, cache=None, cached_positions=0):
        return jnp.cumsum(x, axis=1) / jnp.arange(1.0, x.shape[1] + 1.0)[None, :, None], cache


def test_any_module_can_mix_positions():
    _, feed_forward, norm = layers()
    block = TransformerBlock(Average, feed_forward, norm)
    params = {name: value for name, value in random_params().items() if name != "attention"}
    params["feed_forward"]["down"] = jax.tree.map(np.zeros_like, params["feed_forward"]["down"])
    normed = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    normed = normed * params["attention_norm"]["scale"] + params["attention_norm"]["bias"]
    means = np.cumsum(normed, axis=1) / np.arange(1, POSITIONS + 1)[None, :, None]
    np.testing.assert_allclose(apply(block, params, X)[0], X + means, atol=1e-5)


CACHE = (np.zeros((BATCH, HEADS, POSITIONS, WIDTH // HEADS), np.float32),) * 2


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, {"memory": MEMORY}, "this block reads no memory"),
        ({}, {"memory_mask": np.ones((1, 1, 1, 4), bool)}, "this block reads no memory"),
        ({"cross": True}, {}, "this block reads a memory"),
        ({"cross": True}, {"memory": MEMORY, "cache": CACHE * 2}, "got both"),
        ({"order": "rms"}, {}, "order must be pre or post, got 'rms'"),
    ],
)
def test_arguments_that_a_block_lacks_or_would_ignore_are_refused(settings, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        apply(make_block(**settings), {}, X, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"caches": (None,) * 2}, "expected caches of 3 layers, got 2"),
        ({"caches": (None,) * 4}, "expected caches of 3 layers, got 4"),
        ({"caches": (None,) * 3, "return_layers": True}, "return_layers cannot be combined with caches"),
    ],
)
def test_a_stack_refuses_caches_of_other_blocks_and_layers_with_caches(arguments, message):
    with pytest.raises(ValueError, match=message):
        stack(make_block, 3, TransformerCompute(), X, deterministic=True, **arguments)
