"""Functions in fewer kinds of operations compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.tasks.export.plain_operations import plain


@jax.custom_vjp
def doubled(x):
    return 2.0 * x


doubled.defvjp(lambda x: (2.0 * x, None), lambda _, dy: (2.0 * dy,))


def from_the_end(x):
    return jax.lax.scan(lambda carry, row: (carry * 0.5 + row, carry), jnp.zeros(2), x, reverse=True)


CASES = {
    "scan": (from_the_end, np.arange(6.0, dtype=np.float32).reshape(3, 2)),
    "pad": (lambda x: jnp.pad(x, [(1, 0), (0, 2)], constant_values=7.0), np.ones((2, 2), np.float32)),
    "stack": (lambda x: jax.lax.stack([x, x + 1.0], axis=1), np.ones((2, 3), np.float32)),
    "rem": (lambda x: jax.lax.rem(x, jnp.full_like(x, 3)), np.array([-7, -1, 0, 5, 9], np.int32)),
    "custom_vjp_call": (doubled, np.ones(2, np.float32)),
    "custom_jvp_call": (jax.nn.relu, np.array([-1.0, 2.0], np.float32)),
    "jit": (jax.jit(lambda x: jnp.sort(x) + 1.0), np.array([3.0, 1.0], np.float32)),
    "remat2": (jax.checkpoint(lambda x: jnp.sin(x) * x), np.array([3.0, 1.0], np.float32)),
}


def kinds_of(jaxpr):
    for eqn in jaxpr.eqns:
        yield f"{eqn.primitive.name}{' from the end' if eqn.params.get('reverse') else ''}"
        for inner in eqn.params.values():
            if hasattr(inner, "eqns"):  # a jaxpr, with constants or without
                yield from kinds_of(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize("kind", CASES)
def test_the_results_are_equal_and_the_operation_is_gone(kind):
    function, x = CASES[kind]
    traced = jax.make_jaxpr(function)(x)
    gone = "scan from the end" if kind == "scan" else kind
    assert gone in {*kinds_of(traced.jaxpr)}
    again = jax.make_jaxpr(lambda x: plain(traced, x))(x)
    assert gone not in {*kinds_of(again.jaxpr)}
    for found, expected in zip(plain(traced, x), jax.tree.leaves(function(x)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_other_paddings_are_refused():
    traced = jax.make_jaxpr(lambda x: jax.lax.pad(x, 0.0, [(0, 0, 1)]))(np.ones(2, np.float32))
    with pytest.raises(ValueError, match="it is not a concatenation"):
        plain(traced, np.ones(2, np.float32))
