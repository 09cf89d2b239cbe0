import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops import scores
from jaxnlp.ops.input_feeding import DecoderState, Memory, decode
from jaxnlp.ops.lstm import lstm_cell

BATCH, TARGET, SOURCE, WIDTH, ENCODER = 3, 4, 5, 6, 7
generator = np.random.default_rng(0)


def random(*shape):
    return generator.normal(size=shape).astype(np.float32)


MASK = np.arange(SOURCE)[None] < np.array([5, 3, 1])[:, None]
ARGUMENTS = {
    "x": random(BATCH, TARGET, 4 * WIDTH),
    "keys": random(BATCH, SOURCE, WIDTH),
    "values": random(BATCH, SOURCE, ENCODER),
    "state": DecoderState(*(random(BATCH, WIDTH) for _ in range(3))),
    "w_h": random(2 * WIDTH, 4 * WIDTH),
    "w_o": random(ENCODER + WIDTH, WIDTH),
    "dropout": random(BATCH, TARGET, WIDTH),
    "score_params": {"w_q": random(WIDTH, WIDTH), "v": random(WIDTH)},
}


def ours(score, arguments, **options):
    rest = {name: value for name, value in arguments.items() if name not in ("x", "keys", "values", "state")}
    if score != "additive":
        rest["score_params"] = None
    memory = Memory(arguments["keys"], arguments["values"], MASK)
    return decode(arguments["x"], memory, arguments["state"], score=score, **rest, **options)


compiled = jax.jit(ours, static_argnums=0, static_argnames="matmul_dtype")


def step_by_step(score, arguments):
    """The definition, in a loop that autodiff goes through."""
    h, c, o = arguments["state"]
    found = []
    for position in range(TARGET):
        h, c = lstm_cell(arguments["x"][:, position] + jnp.concatenate([o, h], axis=1) @ arguments["w_h"], c)
        query, keys = h[:, None], arguments["keys"]
        if score == "additive":
            compared = scores.additive(query, keys, w_k=jnp.eye(WIDTH), **arguments["score_params"])
        else:
            compared = scores.dot(query, keys)
        weights = jax.nn.softmax(jnp.where(MASK, compared[:, 0], -jnp.inf), axis=1)
        a = (weights[:, :, None] * arguments["values"]).sum(axis=1)
        o = arguments["dropout"][:, position] * jnp.tanh(jnp.concatenate([a, h], axis=1) @ arguments["w_o"])
        found.append((o, weights))
    o_all, weights = (jnp.stack(parts, axis=1) for parts in zip(*found, strict=True))
    return o_all, weights, DecoderState(h, c, o)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("score", ["multiplicative", "additive"])
def test_values_and_gradients_are_those_of_autodiff_through_the_definition(score):
    shapes = jax.eval_shape(lambda: tuple(ours(score, ARGUMENTS)))
    upstream = jax.tree.map(lambda leaf: random(*leaf.shape), shapes)

    @functools.partial(jax.jit, static_argnums=0)
    def both(function, arguments):
        found, pull = jax.vjp(lambda arguments: tuple(function(score, arguments)), arguments)
        return found, pull(upstream)[0]

    leaves = (jax.tree.leaves(both(function, ARGUMENTS)) for function in (ours, step_by_step))
    for found, expected in zip(*leaves, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_products_may_be_rounded_and_sums_are_not():
    exact = np.asarray(compiled("multiplicative", ARGUMENTS).o)
    rounded = np.asarray(compiled("multiplicative", ARGUMENTS, matmul_dtype="bfloat16").o)
    assert rounded.dtype == exact.dtype
    assert 0 < np.abs(rounded - exact).max() < 0.2


def test_the_state_is_the_one_after_the_first_positions():
    first = {name: ARGUMENTS[name][:, :2] for name in ("x", "dropout")}
    whole = compiled("multiplicative", ARGUMENTS, count=2)
    short = compiled("multiplicative", ARGUMENTS | first)
    np.testing.assert_allclose(jax.tree.leaves(whole.state), jax.tree.leaves(short.state), rtol=1e-5)


def test_arrays_that_do_not_fit_are_refused_with_their_shapes():
    with pytest.raises(ValueError, match=re.escape("w_h (12, 4)")):
        ours("multiplicative", ARGUMENTS | {"w_h": random(12, 4)})
    with pytest.raises(ValueError, match="score must be one of multiplicative, dot, additive, got 'cosine'"):
        ours("cosine", ARGUMENTS)
