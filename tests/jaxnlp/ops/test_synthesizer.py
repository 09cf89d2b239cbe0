import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.dropout_masks import keep_mask
from jaxnlp.ops.synthesizer import synthesize, synthesizer_weights

# As many features as positions: values of the unit matrix give the weights themselves.
BATCH, POSITIONS, HEADS, COLUMNS = 2, 5, 3, 8
WIDTH = POSITIONS

STATIC = ("causal", "dropout_rate")


@functools.partial(jax.jit, static_argnames=STATIC)
def compiled_synthesizer(z, v, parameters, **settings):
    return synthesize(z, v, **parameters, **settings)


@functools.partial(jax.jit, static_argnames=STATIC)
def compiled_weights(z, parameters, **settings):
    return synthesizer_weights(z, POSITIONS, **parameters, **settings)


@functools.partial(jax.jit, static_argnames=STATIC)
def values_and_gradients(z, v, parameters, upstream, **settings):
    y, vjp = jax.vjp(lambda z, v, parameters: synthesize(z, v, **parameters, **settings), z, v, parameters)
    return y, vjp(upstream)


def random_inputs(*, batch=BATCH, positions=POSITIONS):
    generator = np.random.default_rng(0)
    z, v = generator.normal(size=(2, batch, positions, HEADS, WIDTH)).astype(np.float32)
    shapes = {"w_b": (WIDTH, COLUMNS), "b_2": (COLUMNS,)}
    return z, v, {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def synthesize_by_loops(z, v, parameters, causal):
    """One query at a time, in float64."""
    z, v, parameters = jax.tree.map(lambda a: a.astype(np.float64), (z, v, parameters))
    y = np.zeros(z.shape)
    for b, t, h in np.ndindex(*z.shape[:3]):
        hidden = np.maximum(z[b, t, h], 0.0)
        seen = range(t + 1 if causal else z.shape[1])
        scores = np.array([hidden @ parameters["w_b"][:, s] + parameters["b_2"][s] for s in seen])
        unnormalised = np.exp(scores - scores.max())
        y[b, t, h] = sum(a * v[b, s, h] for s, a in zip(seen, unnormalised, strict=True)) / unnormalised.sum()
    return y


def unit_values(batch=BATCH):
    """Values [B, T, H, K] with which the result [B, T, H, S] is the weights."""
    return np.broadcast_to(np.eye(POSITIONS, dtype=np.float32)[None, :, None], (batch, POSITIONS, HEADS, WIDTH))


def test_queries_may_begin_later_than_the_values():
    z, v, parameters = random_inputs()
    whole = np.asarray(compiled_synthesizer(z, v, parameters))
    rest = compiled_synthesizer(z[:, 2:], v, parameters, first_query=2)
    np.testing.assert_allclose(rest, whole[:, 2:], atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("positions", [POSITIONS, COLUMNS, 1])
def test_equals_a_loop_over_queries(positions, causal):
    inputs = random_inputs(positions=positions)
    found = compiled_synthesizer(*inputs, causal=causal)
    assert (found.shape, found.dtype) == ((BATCH, positions, HEADS, WIDTH), np.float32)
    np.testing.assert_allclose(found, synthesize_by_loops(*inputs, causal), atol=5e-6)


def test_is_causal_by_default():
    inputs = random_inputs()
    np.testing.assert_array_equal(compiled_synthesizer(*inputs), compiled_synthesizer(*inputs, causal=True))


def test_future_tokens_do_not_change_past_outputs():
    z, v, parameters = random_inputs()
    later = np.arange(POSITIONS)[None, :, None, None] >= 3
    changed_z, changed_v = (np.where(later, a + np.float32(1.0), a) for a in (z, v))
    before, after = (np.asarray(compiled_synthesizer(*a, parameters)) for a in ((z, v), (changed_z, changed_v)))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert np.abs(before[:, 3:] - after[:, 3:]).max(axis=(0, 2, 3)).min() > 1e-3


def test_weights_depend_on_the_query_only():
    z, _, parameters = random_inputs()
    others = np.where(np.arange(POSITIONS)[None, :, None, None] == 2, z, z + np.float32(1.0))
    before, after = (np.asarray(compiled_synthesizer(a, unit_values(), parameters, causal=False)) for a in (z, others))
    np.testing.assert_array_equal(before[:, 2], after[:, 2])
    assert not np.allclose(before, after)


@pytest.mark.parametrize("causal", [True, False])
def test_weights_of_each_query_sum_to_one(causal):
    z, v, parameters = random_inputs()
    found = compiled_synthesizer(z, np.ones_like(v), parameters, causal=causal)
    np.testing.assert_allclose(found, np.ones_like(v), rtol=1e-6)
    weights = np.asarray(compiled_synthesizer(z, unit_values(), parameters, causal=causal)).swapaxes(1, 2)
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((BATCH, HEADS, POSITIONS)), rtol=1e-6)
    expected = np.tri(POSITIONS, dtype=bool) if causal else np.ones((POSITIONS, POSITIONS), bool)
    np.testing.assert_array_equal(weights > 0.0, np.broadcast_to(expected, weights.shape))


def test_columns_beyond_the_sequence_have_neither_effect_nor_gradient():
    z, v, parameters = random_inputs()
    upstream = np.ones_like(v)
    noisy = {name: a.copy() for name, a in parameters.items()}
    noisy["w_b"][:, POSITIONS:], noisy["b_2"][POSITIONS:] = 1e6, np.nan
    y, (dz, _, gradients) = values_and_gradients(z, v, noisy, upstream)
    expected, (expected_dz, _, _) = values_and_gradients(z, v, parameters, upstream)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(dz, expected_dz)
    gradients = jax.device_get(gradients)
    np.testing.assert_array_equal(gradients["w_b"][:, POSITIONS:], 0.0)
    np.testing.assert_array_equal(gradients["b_2"][POSITIONS:], 0.0)


@pytest.mark.parametrize("causal", [True, False])
def test_gradients_equal_differences_of_the_loop(causal, assert_gradients_of):
    inputs = random_inputs()
    upstream = np.random.default_rng(1).normal(size=inputs[0].shape).astype(np.float32)
    _, gradients = values_and_gradients(*inputs, upstream, causal=causal)
    assert_gradients_of(functools.partial(synthesize_by_loops, causal=causal), inputs, gradients, upstream)


def test_reading_in_parts_with_cached_values_equals_reading_at_once():
    z, v, parameters = random_inputs()
    whole = compiled_synthesizer(z, v, parameters)
    noise = np.full((BATCH, COLUMNS - POSITIONS, HEADS, WIDTH), 1e3, np.float32)  # room after the newest position
    values = np.concatenate([v, noise], axis=1)
    masks = np.tri(POSITIONS, COLUMNS, dtype=bool)[None, None]
    parts = [
        compiled_synthesizer(z[:, t : t + 1], values, parameters, attention_mask=masks[:, :, t : t + 1], causal=False)
        for t in range(POSITIONS)
    ]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_a_mask_hides_what_causality_leaves_and_a_row_that_sees_nothing_is_zero(causal):
    z, _, parameters = random_inputs()
    mask = np.random.default_rng(3).random((BATCH, HEADS, POSITIONS, POSITIONS)) < 0.6
    mask[0, 0, 2] = False
    weights = np.asarray(compiled_weights(z, parameters, attention_mask=mask, causal=causal))
    sees = mask & np.tri(POSITIONS, dtype=bool) if causal else mask
    np.testing.assert_array_equal(weights > 0.0, sees)
    np.testing.assert_allclose(weights.sum(axis=-1), sees.any(axis=-1), atol=1e-6)
    mixed = compiled_synthesizer(z, unit_values(), parameters, attention_mask=mask, causal=causal)
    np.testing.assert_allclose(weights, np.swapaxes(mixed, 1, 2), atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_weights_to_look_at_are_those_that_mix(causal):
    z, _, parameters = random_inputs()
    weights = compiled_weights(z, parameters, causal=causal)
    assert (weights.shape, weights.dtype) == ((BATCH, HEADS, POSITIONS, POSITIONS), np.float32)
    mixed = compiled_synthesizer(z, unit_values(), parameters, causal=causal)
    np.testing.assert_allclose(weights, np.swapaxes(mixed, 1, 2), atol=1e-6)


def test_no_second_bias_is_one_of_zeros():
    z, v, parameters = random_inputs()
    zeros = parameters | {"b_2": np.zeros_like(parameters["b_2"])}
    found = compiled_synthesizer(z, v, parameters | {"b_2": None})
    # Two programs, whose sums a CPU may take in another order.
    np.testing.assert_allclose(found, compiled_synthesizer(z, v, zeros), atol=1e-6)
    assert not np.allclose(found, compiled_synthesizer(z, v, parameters))


def test_dropout_zeroes_and_scales_the_weights_as_the_mask_of_its_key_says():
    z, _, parameters = random_inputs()
    weights = np.asarray(compiled_synthesizer(z, unit_values(), parameters))
    mask = jax.jit(lambda key: keep_mask(key, (BATCH, HEADS, POSITIONS, POSITIONS), 0.4))
    for seed in (0, 1):
        key = jax.random.key(seed)
        found = compiled_synthesizer(z, unit_values(), parameters, dropout_rate=0.4, dropout_key=key)
        kept = np.asarray(mask(key)).swapaxes(1, 2)
        np.testing.assert_allclose(found, np.where(kept, weights / 0.6, 0.0), rtol=1e-5)


def test_dropout_uses_one_mask_forward_and_backward():
    z, v, parameters = random_inputs()
    upstream = np.random.default_rng(1).normal(size=v.shape).astype(np.float32)
    settings = {"dropout_rate": 0.4, "dropout_key": jax.random.key(3)}
    y, (_, gradient, _) = values_and_gradients(z, v, parameters, upstream, **settings)
    assert not np.allclose(y, compiled_synthesizer(z, v, parameters))
    # Linear in the values: the gradient is the transposed map.
    np.testing.assert_allclose(np.vdot(upstream, y), np.vdot(gradient, v), rtol=1e-5)


def test_dropout_draws_what_the_whole_batch_draws_for_the_same_rows():
    z, v, parameters = random_inputs(batch=4)
    settings = {"dropout_rate": 0.5, "dropout_key": jax.random.key(5)}
    whole = np.asarray(compiled_synthesizer(z, v, parameters, **settings))
    found = compiled_synthesizer(z[2:], v[2:], parameters, first_row=2, **settings)
    np.testing.assert_allclose(found, whole[2:], atol=1e-6)
    assert not np.allclose(compiled_synthesizer(z[2:], v[2:], parameters, **settings), whole[2:])


def test_without_a_key_or_a_rate_nothing_is_dropped():
    inputs = random_inputs()
    expected = compiled_synthesizer(*inputs)
    np.testing.assert_array_equal(compiled_synthesizer(*inputs, dropout_rate=0.5), expected)
    np.testing.assert_array_equal(compiled_synthesizer(*inputs, dropout_key=jax.random.key(0)), expected)


def test_large_scores_pick_the_best_key_and_keep_gradients_finite():
    z, v, parameters = random_inputs()
    z = np.float32(1e4) * z
    y, gradients = values_and_gradients(z, v, parameters, np.ones_like(v))
    np.testing.assert_allclose(y, synthesize_by_loops(z, v, parameters, True), atol=1e-4)
    for gradient in jax.tree.leaves(gradients):
        assert np.isfinite(gradient).all()


def test_bfloat16_stays_bfloat16_and_near_float32():
    halves = jax.tree.map(lambda a: (a / 2.0).astype(jnp.bfloat16), random_inputs())
    y, gradients = values_and_gradients(*halves, np.ones_like(halves[1]))
    assert {a.dtype for a in jax.tree.leaves((y, gradients))} == {jnp.dtype(jnp.bfloat16)}
    exact = synthesize_by_loops(*jax.tree.map(np.asarray, halves), True)
    np.testing.assert_allclose(np.asarray(y, np.float32), exact, atol=0.03)


@pytest.mark.thorough
def test_jit_and_vmap_change_nothing():
    z, v, parameters = random_inputs()
    expected = compiled_synthesizer(z, v, parameters)
    np.testing.assert_allclose(synthesize(z, v, **parameters), expected, atol=5e-6)
    mapped = jax.jit(jax.vmap(lambda z, v: synthesize(z, v, **parameters)))
    np.testing.assert_allclose(np.asarray(mapped(z[:, None], v[:, None]))[:, 0], expected, atol=5e-6)


def test_too_long_a_sequence_is_refused_with_both_numbers():
    message = f"a sequence of {COLUMNS + 1} positions exceeds the synthesizer's {COLUMNS}"
    with pytest.raises(ValueError, match=re.escape(message)):
        compiled_synthesizer(*random_inputs(positions=COLUMNS + 1))


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("z", (BATCH, POSITIONS, WIDTH), "z [B, T, H, K] and v [B, S, H, K]"),
        ("v", (BATCH + 1, POSITIONS, HEADS, WIDTH), "z [B, T, H, K] and v [B, S, H, K]"),
        ("v", (BATCH, POSITIONS, HEADS, WIDTH + 1), "z [B, T, H, K] and v [B, S, H, K]"),
        ("w_b", (WIDTH + 1, COLUMNS), "z [B, T, H, K], w_b [K, C] and b_2 [C] or None"),
        ("w_b", (WIDTH,), "z [B, T, H, K], w_b [K, C] and b_2 [C] or None"),
        ("b_2", (COLUMNS + 1,), "z [B, T, H, K], w_b [K, C] and b_2 [C] or None"),
    ],
)
def test_shapes_that_do_not_fit_are_named(name, shape, expected):
    z, v, parameters = random_inputs()
    arrays = {"z": z, "v": v} | parameters | {name: np.zeros(shape, np.float32)}
    with pytest.raises(ValueError, match=rf"^expected {re.escape(expected)}, got .*\b{name} {re.escape(str(shape))}"):
        synthesize(**arrays)


def test_integers_and_rates_outside_their_interval_are_refused():
    z, v, parameters = random_inputs()
    with pytest.raises(ValueError, match="expected float arrays, got z int32, w_b float32"):
        synthesize(z.astype(np.int32), v, **parameters)
    with pytest.raises(ValueError, match=re.escape("dropout rate must be in [0, 1), got 1.0")):
        synthesize(z, v, **parameters, dropout_rate=1.0)
