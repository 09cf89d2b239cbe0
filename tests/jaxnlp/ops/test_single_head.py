import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxnlp.ops import masks
from jaxnlp.ops.attention import dot_product_attention
from jaxnlp.ops.single_head import SelfAttentionGradients, self_attention, self_attention_gradients

pytestmark = pytest.mark.sweep

BATCH, POSITIONS, WIDTH, KEY_WIDTH, VALUE_WIDTH = 3, 5, 6, 4, 2

compiled_attention = jax.jit(self_attention, static_argnames="causal")
compiled_gradients = jax.jit(self_attention_gradients, static_argnames="causal")


@functools.partial(jax.jit, static_argnames="causal")
def values_and_gradients(inputs, upstream, **settings):
    y, vjp = jax.vjp(lambda *inputs: self_attention(*inputs, **settings), *inputs)
    return y, vjp(upstream)


def random_inputs(dtype=np.float32, *, batch=BATCH, positions=POSITIONS, value_width=VALUE_WIDTH):
    generator = np.random.default_rng(0)
    shapes = [(batch, positions, WIDTH), (WIDTH, KEY_WIDTH), (WIDTH, KEY_WIDTH), (WIDTH, value_width)]
    return [generator.normal(size=shape).astype(dtype) for shape in shapes]


def random_upstream(dtype=np.float32):
    return np.random.default_rng(2).normal(size=(BATCH, POSITIONS, VALUE_WIDTH)).astype(dtype)


def random_mask(shape=(BATCH, POSITIONS, POSITIONS)):
    mask = np.random.default_rng(1).random(shape) < 0.5
    mask[..., 0] = True  # every query sees something
    return mask


def mask_with_a_row_that_sees_nothing():
    mask = random_mask()
    mask[1, 2] = False
    return mask


def additive(mask, forbidden=-np.inf):
    return np.where(mask, np.float32(0.0), np.float32(forbidden))


def attention_by_loops(x, w_q, w_k, w_v, mask):
    """One query at a time, in float64."""
    x, w_q, w_k, w_v = (a.astype(np.float64) for a in (x, w_q, w_k, w_v))
    mask = np.broadcast_to(mask, (len(x), x.shape[1], x.shape[1]))
    y = np.zeros((*x.shape[:2], w_v.shape[1]))
    for b, t in np.ndindex(*x.shape[:2]):
        seen = np.flatnonzero(mask[b, t])
        if len(seen):
            scores = np.array([(x[b, t] @ w_q) @ (x[b, s] @ w_k) / np.sqrt(w_q.shape[1]) for s in seen])
            unnormalised = np.exp(scores - scores.max())
            y[b, t] = unnormalised @ (x[b, seen] @ w_v) / unnormalised.sum()
    return y


def written_out(x, w_q, w_k, w_v, mask, shifts=None):
    """The output, each array of the way there shifted by the zeros of `shifts`: their gradients are that array's."""
    shifts = {} if shifts is None else shifts
    q = x @ w_q + shifts.get("dq", 0.0)
    k = x @ w_k + shifts.get("dk", 0.0)
    v = x @ w_v + shifts.get("dv", 0.0)
    scores = q @ k.swapaxes(1, 2) / np.sqrt(w_q.shape[1]) + shifts.get("dscores", 0.0)
    unnormalised = jnp.where(mask, jnp.exp(scores), 0.0)
    # The smallest float of all for rows that see nothing.
    weights = unnormalised / jnp.maximum(unnormalised.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    return (weights + shifts.get("dweights", 0.0)) @ v


def gradients_by_autodiff(inputs, mask, upstream):
    """The gradient with respect to every array between the input and the output."""
    batch, positions = inputs[0].shape[:2]
    squares = (batch, positions, positions)
    keys, values = (batch, positions, inputs[1].shape[1]), (batch, positions, inputs[3].shape[1])
    shapes = {"dv": values, "dweights": squares, "dscores": squares, "dq": keys, "dk": keys}
    zeros = {name: np.zeros(shape) for name, shape in shapes.items()}

    def loss(inputs, shifts):
        return (written_out(*inputs, mask, shifts) * upstream).sum()

    (dx, dw_q, dw_k, dw_v), inner = jax.jit(jax.grad(loss, argnums=(0, 1)))(inputs, zeros)
    return SelfAttentionGradients(**inner, dx=dx, dw_q=dw_q, dw_k=dw_k, dw_v=dw_v)


def relative_error(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == np.float64
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize(("value_width", "causal"), [(VALUE_WIDTH, False), (KEY_WIDTH, True), (WIDTH + 1, True)])
def test_equals_a_loop_over_queries(value_width, causal):
    inputs, mask = random_inputs(value_width=value_width), random_mask()
    found = compiled_attention(*inputs, causal=causal, attention_mask=mask)
    assert (found.shape, found.dtype) == ((BATCH, POSITIONS, value_width), np.float32)
    visible = mask & np.tri(POSITIONS, dtype=bool) if causal else mask
    np.testing.assert_allclose(found, attention_by_loops(*inputs, visible), atol=3e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_equals_attention_of_one_head(causal):
    x, w_q, w_k, w_v = random_inputs(value_width=KEY_WIDTH)

    @jax.jit
    def expected(x):
        q, k, v = ((x @ w)[:, :, None] for w in (w_q, w_k, w_v))
        return dot_product_attention(q, k, v, causal=causal)[:, :, 0]

    np.testing.assert_allclose(compiled_attention(x, w_q, w_k, w_v, causal=causal), expected(x), atol=2e-6)


def test_is_causal_by_default():
    inputs = random_inputs()
    np.testing.assert_array_equal(compiled_attention(*inputs), compiled_attention(*inputs, causal=True))
    assert not np.allclose(compiled_attention(*inputs), compiled_attention(*inputs, causal=False))


def test_future_positions_do_not_change_past_outputs():
    x, *matrices = random_inputs()
    changed = x.copy()
    changed[:, 3:] += 1.0
    before, after = (np.asarray(compiled_attention(a, *matrices)) for a in (x, changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert np.abs(before[:, 3:] - after[:, 3:]).max(axis=(0, 2)).min() > 1e-3


def test_every_step_of_the_forward_pass_is_what_its_name_says():
    inputs, mask = random_inputs(), mask_with_a_row_that_sees_nothing()
    steps, _ = compiled_gradients(*inputs, random_upstream(), attention_mask=mask)
    visible = mask & np.tri(POSITIONS, dtype=bool)
    x, w_q, w_k, w_v = inputs
    for found, w in ((steps.q, w_q), (steps.k, w_k), (steps.v, w_v)):
        np.testing.assert_allclose(found, x @ w, atol=1e-5)
    scores = (x @ w_q) @ (x @ w_k).swapaxes(1, 2) / np.sqrt(KEY_WIDTH)
    np.testing.assert_allclose(steps.scores, np.where(visible, scores, -np.inf), atol=1e-5)
    steps = jax.device_get(steps)
    sums = np.ones((BATCH, POSITIONS))
    sums[1, 2] = 0.0
    np.testing.assert_allclose(steps.weights.sum(axis=-1), sums, atol=1e-6)
    np.testing.assert_array_equal(steps.weights > 0.0, visible)
    np.testing.assert_allclose(steps.y, attention_by_loops(*inputs, visible), atol=3e-6)
    np.testing.assert_array_equal(steps.y, compiled_attention(*inputs, attention_mask=mask))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", SelfAttentionGradients._fields)
@pytest.mark.parametrize("kind", ["causal", "mask", "both"])
def test_every_gradient_equals_autodiff(kind, name):
    found, expected = both_gradients(kind)
    assert relative_error(getattr(found, name), getattr(expected, name)) < 1e-10


@functools.cache
def both_gradients(kind):
    mask, causal = None if kind == "causal" else mask_with_a_row_that_sees_nothing(), kind != "mask"
    visible = np.ones((BATCH, POSITIONS, POSITIONS), bool) if mask is None else mask
    visible = visible & np.tri(POSITIONS, dtype=bool) if causal else visible
    with jax.enable_x64(True):
        inputs, upstream = random_inputs(np.float64), random_upstream(np.float64)
        _, found = compiled_gradients(*inputs, upstream, causal=causal, attention_mask=mask)
        return jax.device_get((found, gradients_by_autodiff(inputs, visible, upstream)))


def test_differentiation_finds_the_gradient_by_hand():
    with jax.enable_x64(True):
        inputs, upstream = random_inputs(np.float64), random_upstream(np.float64)
        _, found = values_and_gradients(inputs, upstream, attention_mask=mask_with_a_row_that_sees_nothing())
    _, expected = both_gradients("both")
    for name, gradient in zip(("dx", "dw_q", "dw_k", "dw_v"), found, strict=True):
        assert relative_error(gradient, getattr(expected, name)) < 1e-10


def test_gradients_of_first_and_second_order_equal_finite_differences():
    with jax.enable_x64(True):
        function = jax.jit(functools.partial(self_attention, attention_mask=mask_with_a_row_that_sees_nothing()))
        check_grads(function, random_inputs(np.float64), order=2, modes=["rev"], atol=1e-6, rtol=1e-6)


def test_gradients_of_the_matrices_are_summed_over_the_batch():
    x, *matrices = random_inputs()
    upstream = random_upstream()
    _, whole = compiled_gradients(x, *matrices, upstream)
    parts = [compiled_gradients(x[b : b + 1], *matrices, upstream[b : b + 1])[1] for b in range(BATCH)]
    parts = jax.device_get(parts)
    for name in ("dw_q", "dw_k", "dw_v"):
        np.testing.assert_allclose(getattr(whole, name), sum(getattr(part, name) for part in parts), atol=1e-5)
    for name in ("dv", "dweights", "dscores", "dq", "dk", "dx"):
        np.testing.assert_allclose(getattr(whole, name), np.concatenate([getattr(p, name) for p in parts]), atol=1e-5)


def test_additive_mask_of_the_future_equals_the_causal_flag():
    inputs = random_inputs()
    future = np.triu(np.full((1, POSITIONS, POSITIONS), -np.inf, np.float32), 1)
    np.testing.assert_array_equal(
        compiled_attention(*inputs, causal=False, attention_mask=future), compiled_attention(*inputs, causal=True)
    )


@pytest.mark.parametrize(
    "shape",
    [(BATCH, POSITIONS, POSITIONS), (1, POSITIONS, POSITIONS), (BATCH, 1, POSITIONS), (POSITIONS, POSITIONS)],
    ids=["each example", "all examples", "keys", "no batch axis"],
)
@pytest.mark.parametrize("causal", [True, False])
def test_additive_and_boolean_masks_agree(shape, causal):
    inputs, mask = random_inputs(), random_mask(shape)
    expected = compiled_attention(*inputs, causal=causal, attention_mask=mask)
    visible = mask & np.tri(POSITIONS, dtype=bool) if causal else mask
    np.testing.assert_allclose(expected, attention_by_loops(*inputs, visible), atol=3e-6)
    for forbidden in (-np.inf, np.finfo(np.float32).min):
        found = compiled_attention(*inputs, causal=causal, attention_mask=additive(mask, forbidden))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", [np.asarray, additive], ids=["boolean", "additive"])
def test_fully_masked_row_is_zero_and_its_gradients_too(form):
    inputs, mask = random_inputs(), form(mask_with_a_row_that_sees_nothing())
    upstream = np.zeros((BATCH, POSITIONS, VALUE_WIDTH), np.float32)
    upstream[1, 2] = 1.0
    y, gradients = jax.device_get(values_and_gradients(inputs, upstream, causal=False, attention_mask=mask))
    np.testing.assert_array_equal(y[1, 2], 0.0)
    assert np.abs(y).max(axis=(0, 2)).min() > 0.0
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0.0)


def test_nothing_but_fully_masked_rows_gives_zeros():
    inputs, upstream = random_inputs(), random_upstream()
    mask = np.full((1, POSITIONS, POSITIONS), -np.inf, np.float32)
    for array in jax.tree.leaves(values_and_gradients(inputs, upstream, attention_mask=mask)):
        np.testing.assert_array_equal(array, 0.0)


@pytest.mark.parametrize("causal", [True, False])
def test_a_single_position_gives_its_value_and_leaves_queries_and_keys_without_gradient(causal):
    x, w_q, w_k, w_v = inputs = random_inputs(positions=1)
    upstream = random_upstream()[:, :1]
    y, (dx, dw_q, dw_k, dw_v) = values_and_gradients(inputs, upstream, causal=causal)
    np.testing.assert_allclose(y, x @ w_v, atol=1e-6)
    np.testing.assert_array_equal(dw_q, np.zeros_like(w_q))
    np.testing.assert_array_equal(dw_k, np.zeros_like(w_k))
    np.testing.assert_allclose(dx, upstream @ w_v.T, atol=1e-6)
    np.testing.assert_allclose(dw_v, np.einsum("btd,btv->dv", x, upstream), atol=1e-6)


def test_large_scores_pick_the_best_key_and_keep_gradients_finite():
    x, w_q, w_k, w_v = random_inputs()
    inputs = (x, np.float32(1e4) * w_q, w_k, w_v)
    y, gradients = values_and_gradients(inputs, random_upstream())
    np.testing.assert_allclose(y, attention_by_loops(*inputs, np.tri(POSITIONS, dtype=bool)), atol=1e-4)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def test_bfloat16_stays_bfloat16_and_near_float32():
    inputs = [(a / 2.0).astype(jnp.bfloat16) for a in random_inputs()]
    y, gradients = values_and_gradients(inputs, random_upstream().astype(jnp.bfloat16))
    assert {a.dtype for a in (y, *gradients)} == {jnp.dtype(jnp.bfloat16)}
    exact = attention_by_loops(*map(np.asarray, inputs), np.tri(POSITIONS, dtype=bool))
    np.testing.assert_allclose(np.asarray(y, np.float32), exact, atol=0.05)


@pytest.mark.thorough
def test_jit_changes_nothing():
    inputs, mask = random_inputs(), random_mask()
    np.testing.assert_allclose(
        self_attention(*inputs, attention_mask=mask), compiled_attention(*inputs, attention_mask=mask), atol=1e-6
    )


def test_vmap_gives_the_values_of_the_parts_and_their_summed_gradients():
    x, *matrices = random_inputs(batch=4)
    halves = x.reshape(2, 2, POSITIONS, WIDTH)
    mask, upstream = random_mask((2, 2, POSITIONS, POSITIONS)), random_upstream()[None, :2]

    def mapped(x, *matrices):
        function = jax.vmap(lambda x, mask: self_attention(x, *matrices, attention_mask=mask))
        return function(x, mask)

    @jax.jit
    def mapped_values_and_gradients(*inputs):
        y, vjp = jax.vjp(mapped, *inputs)
        return y, vjp(np.concatenate([upstream, upstream]))

    y, (dx, *gradients) = mapped_values_and_gradients(halves, *matrices)
    parts = jax.device_get(
        [values_and_gradients((x, *matrices), upstream[0], attention_mask=m) for x, m in zip(halves, mask, strict=True)]
    )
    np.testing.assert_allclose(y, [y for y, _ in parts], atol=3e-6)
    np.testing.assert_allclose(dx, [gradients[0] for _, gradients in parts], atol=1e-5)
    for number, gradient in enumerate(gradients, start=1):
        np.testing.assert_allclose(gradient, sum(gradients[number] for _, gradients in parts), atol=1e-5)


def test_recomputation_in_the_backward_pass_changes_no_gradient():
    inputs, upstream, mask = random_inputs(), random_upstream(), random_mask()

    @jax.jit
    def recomputed(inputs):
        function = jax.checkpoint(lambda *inputs: self_attention(*inputs, attention_mask=mask))
        y, vjp = jax.vjp(function, *inputs)
        return y, vjp(upstream)

    found, expected = recomputed(inputs), values_and_gradients(inputs, upstream, attention_mask=mask)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_examples_do_not_mix():
    x, *matrices = random_inputs()
    whole = np.asarray(compiled_attention(x, *matrices))
    for b in range(BATCH):
        others = np.where(np.arange(BATCH)[:, None, None] == b, x, np.float32(7.0))
        np.testing.assert_array_equal(np.asarray(compiled_attention(others, *matrices))[b], whole[b])


def test_masks_of_the_library_serve():
    inputs, lengths = random_inputs(), np.array([5, 2, 3])
    mask = masks.padding(lengths, POSITIONS)[:, 0]
    visible = (np.arange(POSITIONS) < lengths[:, None])[:, None]
    found = compiled_attention(*inputs, causal=False, attention_mask=mask)
    np.testing.assert_allclose(found, attention_by_loops(*inputs, visible), atol=3e-6)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_shapes_that_do_not_fit_are_refused_with_all_of_them(place):
    inputs = random_inputs()
    inputs[place] = np.zeros((5, 7), np.float32)
    shapes = "x {}, w_q {}, w_k {}, w_v {}".format(*(x.shape for x in inputs))
    for function in (self_attention, functools.partial(self_attention_gradients, dy=random_upstream())):
        with pytest.raises(ValueError, match=re.escape(f"w_v [D, V], got {shapes}")):
            function(*inputs)


def test_a_gradient_of_another_shape_than_the_output_is_refused():
    with pytest.raises(ValueError, match=re.escape("expected dy of the output's shape (3, 5, 2), got (3, 5, 4)")):
        self_attention_gradients(*random_inputs(), np.zeros((BATCH, POSITIONS, KEY_WIDTH), np.float32))


def test_a_bias_by_distance_is_refused():
    distance = -0.5 * np.abs(np.arange(POSITIONS)[:, None] - np.arange(POSITIONS)).astype(np.float32)
    with pytest.raises(ValueError, match=r"pass a bias on the scores to ops\.attention\.dot_product_attention as bias"):
        self_attention(*random_inputs(), attention_mask=distance)


def test_integers_are_refused():
    x, *matrices = random_inputs()
    with pytest.raises(ValueError, match="expected float arrays, got x int32, w_q float32"):
        self_attention(x.astype(np.int32), *matrices)


def test_a_mask_of_more_axes_is_refused():
    mask = np.ones((BATCH, 1, POSITIONS, POSITIONS), bool)
    with pytest.raises(AssertionError, match="rank"):
        self_attention(*random_inputs(), attention_mask=mask)
