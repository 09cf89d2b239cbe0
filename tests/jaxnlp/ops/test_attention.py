import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.ops.attention import attend
from jaxnlp.ops.dropout import keep_mask

BATCH, QUERIES, KEYS, HEADS, WIDTH = 3, 5, 7, 2, 4

STATIC = ("causal", "scale", "dropout_rate")
compiled_attend = jax.jit(attend, static_argnames=STATIC)


@functools.partial(jax.jit, static_argnames=STATIC)
def values_and_gradients(q, k, v, upstream, **settings):
    y, vjp = jax.vjp(lambda q, k, v: attend(q, k, v, **settings), q, k, v)
    return y, vjp(upstream)


def random_inputs(*, queries=QUERIES, keys=KEYS, batch=BATCH):
    generator = np.random.default_rng(0)
    shapes = [(batch, length, HEADS, WIDTH) for length in (queries, keys, keys)]
    return [generator.normal(size=shape).astype(np.float32) for shape in shapes]


def random_upstream(like):
    return np.random.default_rng(2).normal(size=like.shape).astype(np.float32)


def random_mask(shape=(BATCH, HEADS, QUERIES, KEYS)):
    mask = np.random.default_rng(1).random(shape) < 0.6
    mask[..., 0] = True  # every query sees something
    return mask


def attend_by_loops(q, k, v, mask, scale):
    """One query at a time, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    y = np.zeros(q.shape)
    for b, t, h in np.ndindex(*q.shape[:3]):
        seen = np.flatnonzero(mask[b, h, t])
        if len(seen):
            scores = np.array([q[b, t, h] @ k[b, s, h] * scale for s in seen])
            unnormalised = np.exp(scores - scores.max())
            y[b, t, h] = unnormalised @ v[b, seen, h] / unnormalised.sum()
    return y


@pytest.mark.parametrize("scale", [None, 0.3])
def test_equals_a_loop_over_queries(scale):
    q, k, v = random_inputs()
    mask = random_mask()
    found = compiled_attend(q, k, v, attention_mask=mask, scale=scale)
    np.testing.assert_allclose(found, attend_by_loops(q, k, v, mask, scale or WIDTH**-0.5), atol=1e-6)


@pytest.mark.parametrize("kind", ["all", "mask", "causal"])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (5, 7), (7, 5)])
def test_values_and_gradients_equal_those_of_pytorch(kind, queries, keys):
    inputs = random_inputs(queries=queries, keys=keys)
    upstream = random_upstream(inputs[0])
    mask = random_mask((BATCH, HEADS, queries, keys)) if kind == "mask" else None

    ours, gradients = values_and_gradients(*inputs, upstream, attention_mask=mask, causal=kind == "causal")
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in leaves),
        attn_mask=None if mask is None else torch.tensor(mask),
        is_causal=kind == "causal",
    ).transpose(1, 2)
    theirs.backward(torch.tensor(upstream))

    np.testing.assert_allclose(ours, theirs.detach(), atol=2e-6)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, atol=5e-6)


def test_causal_narrows_a_mask_that_is_given_with_it():
    q, k, v = random_inputs()
    mask = random_mask()
    both = mask & np.tri(QUERIES, KEYS, dtype=bool)
    assert (both != mask).any()
    found = compiled_attend(q, k, v, attention_mask=mask, causal=True)
    np.testing.assert_allclose(found, attend_by_loops(q, k, v, both, WIDTH**-0.5), atol=1e-6)


def test_later_keys_and_values_do_not_change_earlier_queries_when_causal():
    q, k, v = random_inputs(queries=KEYS)
    changed_k, changed_v = k.copy(), v.copy()
    changed_k[:, 4:] += 1.0
    changed_v[:, 4:] += 1.0
    before = np.asarray(compiled_attend(q, k, v, causal=True))
    after = np.asarray(compiled_attend(q, changed_k, changed_v, causal=True))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(before[:, 4:] - after[:, 4:]).min() > 1e-4


def test_masked_keys_do_not_change_the_result():
    q, k, v = random_inputs()
    visible = np.array([True, True, False, True, False, False, True])
    mask = np.broadcast_to(visible, (1, 1, QUERIES, KEYS))
    noisy_k, noisy_v = (np.where(visible[:, None, None], x, np.float32(1e6)) for x in (k, v))
    np.testing.assert_array_equal(
        compiled_attend(q, k, v, attention_mask=mask), compiled_attend(q, noisy_k, noisy_v, attention_mask=mask)
    )


def test_order_of_keys_does_not_matter():
    q, k, v = random_inputs()
    order = np.random.default_rng(3).permutation(KEYS)
    np.testing.assert_allclose(compiled_attend(q, k, v), compiled_attend(q, k[:, order], v[:, order]), atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (BATCH, 1), (1, HEADS)])
def test_mask_of_one_example_or_head_serves_all(shape):
    q, k, v = random_inputs()
    mask = random_mask((*shape, QUERIES, KEYS))
    whole = np.broadcast_to(mask, (BATCH, HEADS, QUERIES, KEYS))
    found = compiled_attend(q, k, v, attention_mask=mask)
    np.testing.assert_allclose(found, attend_by_loops(q, k, v, whole, WIDTH**-0.5), atol=1e-6)


def test_fully_masked_row_is_zero_and_its_gradients_too():
    q, k, v = random_inputs()
    mask = random_mask()
    mask[1, :, 2] = False
    upstream = np.zeros_like(q)
    upstream[1, 2] = 1.0
    y, gradients = values_and_gradients(q, k, v, upstream, attention_mask=mask)
    np.testing.assert_array_equal(y[1, 2], 0.0)
    assert np.abs(y[1, 1]).min() > 0.0
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0.0)


def test_large_scores_pick_the_best_key_and_keep_gradients_finite():
    q, k, v = random_inputs()
    q, mask = np.float32(1e4) * q, random_mask()
    mask[0, 0, 0] = False
    assert np.abs(np.einsum("bthk,bshk->bhts", q, k)).max() > 1e4
    y, gradients = values_and_gradients(q, k, v, np.ones_like(q), attention_mask=mask)
    np.testing.assert_allclose(y, attend_by_loops(q, k, v, mask, WIDTH**-0.5), atol=1e-3)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def test_a_single_key_gives_its_value():
    q, k, v = random_inputs(queries=1, keys=1)
    np.testing.assert_array_equal(compiled_attend(q, k, v, causal=True), v)


def test_bfloat16_stays_bfloat16_and_near_float32():
    halves = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs()]
    found = compiled_attend(*halves)
    assert found.dtype == jnp.bfloat16
    everything = np.ones((BATCH, HEADS, QUERIES, KEYS), bool)
    exact = attend_by_loops(*map(np.asarray, halves), everything, WIDTH**-0.5)
    np.testing.assert_allclose(found.astype(np.float32), exact, atol=0.03)


def test_bfloat16_softmax_is_taken_in_float32():
    # The normaliser of 257 equal scores is 257, which bfloat16 rounds to 256; 1 / 257 it can represent.
    zeros = jnp.zeros((1, 257, 1, 1), jnp.bfloat16)
    found = compiled_attend(zeros[:, :1], zeros, zeros.at[0, 0].set(1.0))
    np.testing.assert_allclose(np.float64(found[0, 0, 0, 0]), 1 / 257, rtol=1e-4)


def test_dropout_uses_one_mask_forward_and_backward():
    inputs, mask, key, rate = random_inputs(), random_mask(), jax.random.key(7), 0.4
    upstream = random_upstream(inputs[0])

    def written_out(q, k, v):
        scores = jnp.einsum("bthk,bshk->bhts", q, k) * WIDTH**-0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
        kept = keep_mask(key, mask.shape, rate)
        return jnp.einsum("bhts,bshk->bthk", jnp.where(kept, weights / (1.0 - rate), 0.0), v)

    @jax.jit
    def by_autodiff(q, k, v):
        y, vjp = jax.vjp(written_out, q, k, v)
        return y, vjp(upstream)

    ours = values_and_gradients(*inputs, upstream, attention_mask=mask, dropout_rate=rate, dropout_key=key)
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(by_autodiff(*inputs)), strict=True):
        np.testing.assert_allclose(found, expected, atol=5e-6)


def test_dropout_is_linear_in_the_values_and_its_gradient_is_the_transposed_map():
    q, k, v = random_inputs()
    upstream = random_upstream(q)
    y, (_, _, gradient) = values_and_gradients(
        q, k, v, upstream, dropout_rate=0.4, dropout_key=jax.random.key(3), attention_mask=random_mask()
    )
    assert not np.allclose(y, compiled_attend(q, k, v, attention_mask=random_mask()))
    np.testing.assert_allclose(np.vdot(upstream, y), np.vdot(gradient, v), rtol=1e-5)


def test_dropout_draws_what_the_whole_batch_draws_for_the_same_rows():
    inputs = random_inputs(batch=4)
    settings = {"dropout_rate": 0.5, "dropout_key": jax.random.key(5)}
    whole = compiled_attend(*inputs, **settings)
    half = [x[2:] for x in inputs]
    np.testing.assert_allclose(compiled_attend(*half, first_row=2, **settings), whole[2:], atol=1e-6)
    assert not np.allclose(compiled_attend(*half, first_row=0, **settings), whole[2:])


def test_without_a_key_nothing_is_dropped():
    inputs = random_inputs()
    np.testing.assert_array_equal(compiled_attend(*inputs, dropout_rate=0.5), compiled_attend(*inputs))


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((2, 3, 2, 4), (2, 5, 2, 4), (2, 6, 2, 4)),
        ((2, 3, 2, 4), (3, 5, 2, 4), (3, 5, 2, 4)),
        ((2, 3, 2, 4), (2, 5, 1, 4), (2, 5, 1, 4)),
        ((2, 3, 2, 4), (2, 5, 2, 8), (2, 5, 2, 8)),
    ],
    ids=["values", "batch", "heads", "width"],
)
def test_shapes_that_do_not_fit_are_named(q, k, v):
    message = f"expected q [B, T, H, K] and k, v [B, S, H, K], got q {q}, k {k}, v {v}"
    with pytest.raises(ValueError, match=re.escape(message)):
        attend(*(np.zeros(shape, np.float32) for shape in (q, k, v)))
