import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.nn.attention import CrossAttention
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.perceiver import DownProject, UpProject, latent_positions
from jaxnlp.typing import BATCH_AXIS
from tests.jaxnlp.nn.block_helpers import BATCH, HEADS, HIDDEN, WIDTH, layers

pytestmark = pytest.mark.sweep

LATENTS = 4
SHORT, LONG = 3, 7  # fewer positions than latents, and more


def random_inputs(positions, *, seed=0, batch=BATCH):
    return np.random.default_rng(seed).normal(size=(batch, positions, WIDTH)).astype(np.float32)


class Theirs(torch.nn.Module):
    """A block of CS224N's form: cross-attention under a mask that is lower-triangular by index, then an MLP."""

    def __init__(self, normalise_queries):
        super().__init__()
        self.memory_norm, self.mlp_norm = (torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.query_norm = torch.nn.LayerNorm(WIDTH) if normalise_queries else torch.nn.Identity()
        self.query, self.key, self.value, self.proj = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, WIDTH)
        self.latents = torch.nn.Parameter(torch.empty(1, LATENTS, WIDTH))

    def forward(self, x, memory):
        queries, memory = self.query_norm(x), self.memory_norm(memory)

        def heads(y):
            return y.view(*y.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)

        q, k, v = heads(self.query(queries)), heads(self.key(memory)), heads(self.value(memory))
        scores = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        visible = torch.tril(torch.ones(x.shape[1], memory.shape[1]))
        weights = torch.softmax(scores.masked_fill(visible == 0, -1e10), dim=-1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(memory.shape[0], x.shape[1], WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


def make_theirs(*, normalise_queries=True):
    theirs = Theirs(normalise_queries)
    torch.manual_seed(1)
    for name, parameter in theirs.named_parameters():
        torch.nn.init.normal_(parameter, mean=float(name.endswith("norm.weight")), std=0.5)
    return theirs


def from_theirs(named, *, down):
    """Our parameters of theirs, or of their gradients."""

    def norm(name):
        return {"scale": named[f"{name}.weight"], "bias": named[f"{name}.bias"]}

    def dense(*names):
        return {
            "kernel": np.concatenate([named[f"{name}.weight"].T for name in names], axis=1),
            "bias": np.concatenate([named[f"{name}.bias"] for name in names]),
        }

    def heads(layer, *parts):
        return {name: value.reshape(*value.shape[:-1], *parts, HEADS, WIDTH // HEADS) for name, value in layer.items()}

    params = {
        "memory_norm": norm("memory_norm"),
        "attention": {"q": heads(dense("query")), "kv": heads(dense("key", "value"), 2), "out": dense("proj")},
        "feed_forward_norm": norm("mlp_norm"),
        "feed_forward": {"up": dense("up"), "down": dense("down")},
    }
    if "query_norm.weight" in named:
        params["query_norm"] = norm("query_norm")
    return params | ({"latents": named["latents"]} if down else {})


def random_params(*, down, normalise_queries=None):
    theirs = make_theirs(normalise_queries=down if normalise_queries is None else normalise_queries)
    return from_theirs({name: value.detach().numpy() for name, value in theirs.named_parameters()}, down=down)


def make_down(**changes):
    latents = changes.pop("num_latents", LATENTS)
    return DownProject(*layers(CrossAttention, **changes), num_latents=latents)


def make_up(**changes):
    queries = changes.pop("normalise_queries", False)
    return UpProject(*layers(CrossAttention, **changes), normalise_queries=queries)


@functools.partial(jax.jit, static_argnums=(0, 4))
def apply(module, params, x, memory, positions, dropout_key=None):
    """Into the latents where there is no memory, else out of it."""
    arguments = (x, positions) if memory is None else (x, memory, positions)
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    return module.apply({"params": params}, *arguments, deterministic=dropout_key is None, rngs=rngs)


def assert_near(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=3e-5, rtol=1e-5), found, expected)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("positions", [SHORT, LATENTS, LONG])
def test_way_into_the_latents_equals_the_assignments_in_values_and_gradients(positions):
    theirs, x = make_theirs(), random_inputs(positions)
    leaf = torch.tensor(x, requires_grad=True)
    # Ours leaves out the latents that a short sequence does not reach: their gradient is zero.
    reached = latent_positions("prefix", LATENTS, LONG, positions)
    expected = theirs(theirs.latents, leaf)[:, : len(reached)]
    upstream = random_inputs(len(reached), seed=2)
    expected.backward(torch.tensor(upstream))
    named = dict(theirs.named_parameters())

    @jax.jit
    def ours(params, x):
        y, vjp = jax.vjp(lambda params, x: apply(make_down(), params, x, None, reached), params, x)
        return y, *vjp(upstream)

    y, gradients, x_gradient = ours(random_params(down=True), x)
    assert y.shape == (BATCH, min(positions, LATENTS), WIDTH)
    assert_near(y, expected.detach().numpy())
    assert_near(x_gradient, leaf.grad.numpy())
    assert_near(gradients, from_theirs({name: value.grad.numpy() for name, value in named.items()}, down=True))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("normalise_queries", [False, True])  # the assignment's queries are not
@pytest.mark.parametrize("positions", [SHORT, LONG])
def test_way_out_of_the_latents_equals_the_assignments_in_values_and_gradients(positions, normalise_queries):
    theirs = make_theirs(normalise_queries=normalise_queries)
    x, latents = random_inputs(positions), random_inputs(LATENTS, seed=3)
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, latents)]
    expected = theirs(*leaves)
    upstream = random_inputs(positions, seed=2)
    expected.backward(torch.tensor(upstream))
    named = {name: value for name, value in theirs.named_parameters() if name != "latents"}

    @jax.jit
    def ours(params, x, latents):
        apply_up = functools.partial(apply, make_up(normalise_queries=normalise_queries))
        y, vjp = jax.vjp(lambda params, x, z: apply_up(params, x, z, tuple(range(LATENTS))), params, x, latents)
        return y, *vjp(upstream)

    y, gradients, *input_gradients = ours(random_params(down=False, normalise_queries=normalise_queries), x, latents)
    assert_near(y, expected.detach().numpy())
    assert_near(input_gradients, [leaf.grad.numpy() for leaf in leaves])
    assert_near(gradients, from_theirs({name: value.grad.numpy() for name, value in named.items()}, down=False))


@pytest.mark.thorough
@pytest.mark.parametrize("placement", ["prefix", "along"])
def test_a_latent_sees_the_inputs_up_to_its_position_and_no_others(placement):
    ends = latent_positions(placement, LATENTS, 10, LONG)
    params, x = random_params(down=True), random_inputs(LONG)
    before = np.asarray(apply(make_down(), params, x, None, ends))
    for s in range(LONG):
        changed = x.copy()
        changed[:, s] += random_inputs(1, seed=10 + s)[:, 0]
        after = np.asarray(apply(make_down(), params, changed, None, ends))
        for m, end in enumerate(ends):
            if s <= end:
                assert np.abs(after[:, m] - before[:, m]).max(axis=-1).min() > 1e-4, (s, m)
            else:
                np.testing.assert_array_equal(after[:, m], before[:, m])


@pytest.mark.parametrize("first", [0, 2])
def test_an_output_sees_its_own_input_and_the_memory_up_to_its_position(first):
    positions = (1, 4, 6, 9, 0, 3)  # of latents and inputs, in no order
    params, x, memory = random_params(down=False), random_inputs(5), random_inputs(len(positions), seed=3)
    read = jax.jit(
        lambda x, memory: make_up().apply({"params": params}, x, memory, positions, first, deterministic=True)
    )
    before = np.asarray(read(x, memory))
    for s, position in enumerate(positions):
        changed = memory.copy()
        changed[:, s] += random_inputs(1, seed=10 + s)[:, 0]
        differs = (np.asarray(read(x, changed)) != before).any(axis=(0, 2))
        np.testing.assert_array_equal(differs, first + np.arange(5) >= position)
    for t in range(5):
        changed = x.copy()
        changed[:, t] += random_inputs(1, seed=10 + t)[:, 0]
        differs = (np.asarray(read(changed, memory)) != before).any(axis=(0, 2))
        np.testing.assert_array_equal(differs, np.arange(5) == t)


def test_examples_of_a_batch_do_not_see_each_other():
    x, changed = random_inputs(LONG), random_inputs(LONG)
    changed[1] = random_inputs(LONG, seed=9)[1]
    params = random_params(down=True)
    before, after = (np.asarray(apply(make_down(), params, a, None, (0, 1, 2))) for a in (x, changed))
    np.testing.assert_array_equal(before[0], after[0])
    assert not np.allclose(before[1], after[1])


def test_latents_of_the_prefix_are_at_the_first_positions():
    assert latent_positions("prefix", 4, 9, 9) == (0, 1, 2, 3)
    assert latent_positions("prefix", 4, 9, 3) == (0, 1, 2)


@pytest.mark.parametrize(("latents", "context"), [(1, 1), (1, 9), (3, 10), (4, 10), (7, 9), (9, 9), (32, 128)])
def test_latents_along_the_context_end_stretches_as_equal_as_can_be(latents, context):
    ends = latent_positions("along", latents, context, context)
    stretches = np.diff([-1, *ends])
    assert len(ends) == latents
    assert ends[-1] == context - 1
    assert stretches.min() >= 1
    assert stretches.max() - stretches.min() <= 1
    for positions in range(1, context + 1):
        reached = latent_positions("along", latents, context, positions)
        assert reached == (tuple(end for end in ends if end < positions) or ends[:1])


def test_weights_asked_for_mix_the_values_to_what_attention_adds():
    params, x, latents = random_params(down=False), random_inputs(LONG), random_inputs(LATENTS, seed=3)
    params["feed_forward"]["down"] = jax.tree.map(np.zeros_like, params["feed_forward"]["down"])
    apply_up = jax.jit(
        lambda params: make_up().apply(
            {"params": params}, x, latents, (1, 3, 4, 6), deterministic=True, mutable=["intermediates"]
        )
    )
    y, found = apply_up(params)
    (weights,) = jax.tree.leaves(found["intermediates"])
    assert weights.shape == (BATCH, HEADS, LONG, LATENTS)
    # Position 0 is before all latents: nothing is mixed, and only the bias is added.
    np.testing.assert_allclose(weights.sum(axis=-1)[0, 0], [0, 1, 1, 1, 1, 1, 1], atol=1e-6)
    normed = (latents - latents.mean(-1, keepdims=True)) / np.sqrt(latents.var(-1, keepdims=True) + 1e-5)
    normed = normed * params["memory_norm"]["scale"] + params["memory_norm"]["bias"]
    attention = params["attention"]
    values = np.einsum("bsd,dhk->bshk", normed, attention["kv"]["kernel"][:, 1]) + attention["kv"]["bias"][1]
    mixed = np.einsum("bhts,bshk->bthk", weights, values).reshape(x.shape)
    added = mixed @ attention["out"]["kernel"] + attention["out"]["bias"]
    np.testing.assert_allclose(x + added, y, atol=2e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("rates", [{"attention_dropout_rate": 0.5}, {"residual_dropout_rate": 0.5}], ids=str)
def test_dropout_is_a_function_of_its_key(rates):
    params, x = random_params(down=True), random_inputs(LONG)
    module = make_down(**rates)
    first, again, other = (apply(module, params, x, None, (0, 1, 2, 3), jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    without = apply(make_down(**rates), params, x, None, (0, 1, 2, 3))
    np.testing.assert_array_equal(without, apply(make_down(), params, x, None, (0, 1, 2, 3)))
    assert not np.allclose(first, without)


@pytest.mark.thorough
def test_shards_of_a_batch_drop_what_the_whole_batch_drops():
    params, x = random_params(down=True), random_inputs(LONG, batch=4)
    module = make_down(attention_dropout_rate=0.3, residual_dropout_rate=0.3)

    def run(x):
        return apply(module, params, x, None, (0, 1, 2, 3), jax.random.key(4))

    shards = jax.jit(jax.vmap(run, axis_name=BATCH_AXIS))(x.reshape(2, 2, LONG, WIDTH))
    np.testing.assert_allclose(shards.reshape(4, LATENTS, WIDTH), run(x), atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("dtypes", [{"dtype": "bfloat16"}, {"matmul_dtype": "bfloat16"}], ids=str)
def test_short_types_keep_float32_parameters_and_stay_near_float32(dtypes):
    module, params = make_down(compute=TransformerCompute(**dtypes)), random_params(down=True)
    x = jnp.asarray(random_inputs(LONG), dtypes.get("dtype", "float32"))
    shapes = jax.eval_shape(lambda key: module.init(key, x, (0, 1), deterministic=True)["params"], jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    y = apply(module, params, x, None, (0, 1, 2, 3))
    assert y.dtype == x.dtype
    exact = apply(make_down(), params, np.asarray(x, np.float32), None, (0, 1, 2, 3))
    assert 1e-5 < np.abs(y.astype(np.float32) - exact).max() < 0.1


@pytest.mark.thorough
def test_latents_begin_within_pytorchs_xavier_bound_and_writers_have_their_own_spread():
    module = make_down(num_latents=32, feed_forward_width=128, residual_stddev=0.004)
    x = np.zeros((1, 1, 64), np.float32)
    params = jax.jit(lambda key: module.init(key, x, (0,), deterministic=True))(jax.random.key(0))["params"]
    theirs = torch.nn.init.xavier_uniform_(torch.empty(1, 32, 64)).numpy()
    latents = np.asarray(params["latents"])
    bound = np.sqrt(6.0 / (33 * 64))
    for found in (theirs, latents):
        assert 0.99 * bound < np.abs(found).max() <= bound
    assert latents.shape == theirs.shape
    assert abs(latents.mean()) < 5.0 * bound / np.sqrt(3 * latents.size)
    attention, feed_forward = params["attention"], params["feed_forward"]
    for layer, stddev in (
        (attention["q"], 0.02),
        (attention["kv"], 0.02),
        (attention["out"], 0.004),
        (feed_forward["up"], 0.02),
        (feed_forward["down"], 0.004),
    ):
        kernel = np.asarray(layer["kernel"])
        assert abs(kernel.std() / stddev - 1.0) < 5.0 / np.sqrt(2 * kernel.size)


def test_without_biases_there_is_no_bias_leaf():
    module = make_down(use_bias=False)
    params = jax.eval_shape(
        lambda key: module.init(key, random_inputs(2), (0, 1), deterministic=True)["params"], jax.random.key(0)
    )
    assert not [path for path, _ in jax.tree_util.tree_leaves_with_path(params) if path[-1].key == "bias"]


def test_heads_that_do_not_divide_the_width_are_named():
    with pytest.raises(ValueError, match=re.escape("num_heads must divide the width, got 3 heads for width 8")):
        apply(make_down(num_heads=3), random_params(down=True), random_inputs(LONG), None, (0,))
