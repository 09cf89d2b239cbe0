"""Gradients of attention: their values, their memory, and that they can be transformed."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxnlp.ops.attention import MAX_QUERY_BLOCKS, QUERY_BLOCK, dot_product_attention
from jaxnlp.ops.dropout_masks import keep_mask
from tests.jaxnlp.ops.attention_helpers import (
    BATCH,
    BY_AUTODIFF,
    BY_HAND,
    HEADS,
    IMPLEMENTATIONS,
    SEVERAL_BLOCKS,
    WIDTH,
    compiled_attend,
    random_inputs,
    random_mask,
    random_upstream,
    values_and_gradients,
)

pytestmark = pytest.mark.sweep

LARGE_BLOCKS = MAX_QUERY_BLOCKS * QUERY_BLOCK + 3


def case(name, *, mask=None, causal=False, scale=None, dropout_rate=0.0, optimized=False, **sizes):
    """`mask` has a letter for each whole axis and 1 for those of one element."""
    settings = {"causal": causal, "scale": scale, "dropout_rate": dropout_rate}
    return pytest.param(sizes, mask, settings, id=name, marks=[pytest.mark.optimized] if optimized else [])


def arguments_of(sizes, mask, settings):
    """Inputs in float64 and keywords, to be called where float64 is enabled; some rows see nothing."""
    inputs = random_inputs(**sizes, dtype=np.float64)
    keywords = dict(settings)
    if mask is not None:
        whole = dict(zip("BHTS", (*inputs[0].shape[::2], *(x.shape[1] for x in inputs[:2])), strict=True))
        shape = [1 if axis == "1" else whole[axis] for axis in mask]
        keywords["attention_mask"] = np.random.default_rng(1).random(shape) < 0.6
        assert keywords["attention_mask"].any()
    if settings["dropout_rate"] > 0.0:
        keywords["dropout_key"] = jax.random.key(7)
    return inputs, keywords


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("sizes", "mask", "settings"),
    [
        case("one_query", queries=1, mask="BHTS"),
        case("one_key", keys=1, mask="BHTS"),
        case("one_of_each", queries=1, keys=1),
        case("more_keys", scale=-1.7),
        case("more_queries", queries=7, keys=4),
        case("mask", mask="BHTS"),
        case("mask_of_all_examples", mask="11TS", dropout_rate=0.3),
        case("mask_of_all_queries", mask="B11S", scale=0.3),
        case("mask_of_all_keys", mask="B1T1"),
        case("mask_of_all_examples_and_queries", mask="1H1S"),
        case("causal", causal=True),
        case("causal_and_more_keys", causal=True, keys=9),
        case("causal_and_more_queries", causal=True, queries=9, keys=4),
        case("causal_and_mask", causal=True, mask="BHTS", dropout_rate=0.4, optimized=True),
        case("causal_and_mask_of_all_keys", causal=True, mask="B1T1"),
        case("dropout", dropout_rate=0.4),
        case("grouped_keys", heads=6, key_heads=2, causal=True, mask="BHTS", optimized=True),
        case("one_key_head", heads=4, key_heads=1, dropout_rate=0.2),
        case("blocks", causal=True, queries=SEVERAL_BLOCKS, keys=SEVERAL_BLOCKS, scale=0.3, optimized=True),
        case("whole_blocks", causal=True, queries=2 * QUERY_BLOCK, keys=2 * QUERY_BLOCK),
        case("blocks_and_more_keys", causal=True, queries=SEVERAL_BLOCKS, keys=SEVERAL_BLOCKS + 90, mask="BHTS"),
        case("blocks_and_more_queries", causal=True, queries=SEVERAL_BLOCKS, keys=50, mask="11TS", dropout_rate=0.1),
        case("blocks_and_padding", causal=True, queries=QUERY_BLOCK + 1, keys=QUERY_BLOCK + 1, mask="B11S"),
        case("blocks_and_one_key", causal=True, queries=SEVERAL_BLOCKS, keys=1, mask="B1T1"),
        case("blocks_and_one_key_head", causal=True, queries=100, keys=100, key_heads=1, dropout_rate=0.3),
        case("most_blocks", causal=True, queries=LARGE_BLOCKS, keys=LARGE_BLOCKS, batch=1, heads=1, dropout_rate=0.2),
    ],
)
def test_hand_derived_gradient_equals_autodiff(sizes, mask, settings):
    with jax.enable_x64(True):
        inputs, keywords = arguments_of(sizes, mask, settings)
        upstream = random_upstream(inputs[0])
        found, expected = (
            jax.tree.leaves(values_and_gradients(*inputs, upstream, **keywords, implementation=implementation))
            for implementation in IMPLEMENTATIONS
        )
    for ours, autodiff, like in zip(found, expected, [inputs[0], *inputs], strict=True):
        assert (ours.shape, ours.dtype) == (like.shape, np.float64)
        # The scores of a single key have no gradient but that of rounding.
        np.testing.assert_allclose(ours, autodiff, rtol=0.0, atol=1e-10 * max(np.abs(autodiff).max(), 1e-4))


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("sizes", "mask", "settings"),
    [
        case("mask", mask="BHTS", scale=0.7),
        case("causal", causal=True),
        case("grouped_keys_and_dropout", causal=True, heads=4, dropout_rate=0.4, key_heads=2, mask="B11S"),
        case("blocks", causal=True, queries=QUERY_BLOCK + 6, keys=QUERY_BLOCK + 9, batch=1, dropout_rate=0.2),
    ],
)
def test_gradient_equals_finite_differences(sizes, mask, settings):
    with jax.enable_x64(True):
        inputs, keywords = arguments_of(sizes, mask, settings)
        function = jax.jit(functools.partial(dot_product_attention, **keywords, implementation=BY_HAND))
        check_grads(function, inputs, order=1, modes=["rev"], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize(("mode", "dropout_rate"), [("fwd", 0.4), ("rev", 0.0)])
def test_autodiff_gives_forward_mode_and_second_derivatives(mode, dropout_rate):
    with jax.enable_x64(True):
        inputs = random_inputs(batch=1, dtype=np.float64)
        settings = {"causal": True, "dropout_rate": dropout_rate, "dropout_key": jax.random.key(7)}
        function = jax.jit(functools.partial(dot_product_attention, **settings, implementation=BY_AUTODIFF))
        check_grads(function, inputs, order=2, modes=[mode], atol=1e-6, rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "derivative",
    [lambda function, q: jax.jacfwd(function)(q), lambda function, q: jax.linearize(function, q)[1](q)],
    ids=["jacfwd", "linearize"],
)
def test_forward_mode_of_the_gradient_by_hand_is_refused_in_the_words_of_the_docstring(derivative):
    q, k, v = random_inputs()
    with pytest.raises(TypeError, match=re.escape("can't apply forward-mode autodiff (jvp)")):
        derivative(lambda q: dot_product_attention(q, k, v, implementation=BY_HAND), q)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_dropout_uses_one_mask_forward_and_backward(implementation):
    inputs, mask, key, rate = random_inputs(), random_mask(), jax.random.key(7), 0.4
    upstream = random_upstream(inputs[0])

    def written_out(q, k, v):
        scores = jnp.einsum("bthk,bshk->bhts", q, k) * WIDTH**-0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
        kept = keep_mask(key, mask.shape, rate, first_row=4)
        return jnp.einsum("bhts,bshk->bthk", jnp.where(kept, weights / (1.0 - rate), 0.0), v)

    @jax.jit
    def by_autodiff(q, k, v):
        y, vjp = jax.vjp(written_out, q, k, v)
        return y, vjp(upstream)

    ours = values_and_gradients(
        *inputs,
        upstream,
        attention_mask=mask,
        dropout_rate=rate,
        dropout_key=key,
        first_row=4,
        implementation=implementation,
    )
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


@pytest.mark.optimized
def test_other_programs_read_the_values_of_a_compiled_call_that_is_differentiated_from_outside():
    inputs = random_inputs()
    y, vjp = jax.vjp(compiled_attend, *inputs)
    upstream = np.cos(compiled_attend(*inputs))
    np.testing.assert_allclose(jax.jit(jnp.cos)(y), upstream, atol=1e-6)
    for gradient, expected in zip(vjp(upstream), values_and_gradients(*inputs, upstream)[1], strict=True):
        np.testing.assert_allclose(jax.jit(jnp.negative)(gradient), -expected, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("transformation", ["checkpoint", "vmap_of_grad", "grad_of_vmap", "scan"])
def test_transformations_give_the_gradients_of_each_call(implementation, transformation):
    steps, length = 3, QUERY_BLOCK + 2
    generator = np.random.default_rng(0)
    stacked = [generator.normal(size=(steps, 2, length, HEADS, WIDTH)).astype(np.float32) for _ in range(3)]
    masks = random_mask((steps, 2, 1, length, length))
    keys = jax.random.split(jax.random.key(0), steps)

    def loss(inputs, mask, key):
        settings = {"attention_mask": mask, "causal": True, "dropout_rate": 0.3, "dropout_key": key}
        return jnp.sin(dot_product_attention(*inputs, **settings, implementation=implementation)).sum()

    def scanned(inputs):
        return jax.lax.scan(lambda total, step: (total + loss(*step), None), jnp.float32(0), (inputs, masks, keys))[0]

    def of_each_call(gradient):
        calls = [gradient([x[step] for x in stacked], masks[step], keys[step]) for step in range(steps)]
        return jax.tree.map(lambda *parts: np.stack(parts), *calls)

    found = {
        "checkpoint": lambda: of_each_call(jax.jit(jax.grad(jax.checkpoint(loss)))),
        "vmap_of_grad": lambda: jax.jit(jax.vmap(jax.grad(loss)))(stacked, masks, keys),
        "grad_of_vmap": lambda: jax.jit(jax.grad(lambda x: jax.vmap(loss)(x, masks, keys).sum()))(stacked),
        "scan": lambda: jax.jit(jax.grad(scanned))(stacked),
    }[transformation]()
    for gradient, expected in zip(found, of_each_call(jax.jit(jax.grad(loss))), strict=True):
        np.testing.assert_allclose(gradient, expected, atol=2e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("transformation", "mapped"),
    [
        *itertools.product(["vmap", "vmap_of_grad", "grad_of_vmap"], ["q", "v", "mask", "key"]),
        ("vmap", "k"),  # the gradients are with respect to k
    ],
)
def test_transformations_that_are_not_jitted_give_the_same(implementation, mapped, transformation):
    """Each operation is then a program of its own, and only one input has the mapped axis."""
    steps = 3
    shared = dict(zip("qkv", random_inputs(), strict=True)) | {"mask": random_mask(), "key": jax.random.key(0)}
    stacked = {
        "mask": np.stack([np.roll(shared["mask"], step, axis=0) for step in range(steps)]),
        "key": jax.random.split(jax.random.key(1), steps),
    }.get(mapped)
    if stacked is None:
        stacked = np.stack([np.float32(step + 1.0) * shared[mapped] for step in range(steps)])

    def values(q, k, v, mask, key):
        settings = {"attention_mask": mask, "dropout_rate": 0.3, "dropout_key": key}
        return dot_product_attention(q, k, v, **settings, implementation=implementation)

    def loss(k, varied):
        return jnp.sin(values(**(shared | {"k": k} | {mapped: varied}))).sum()

    axes = {name: 0 if name == mapped else None for name in shared}
    by_name = {
        "vmap": lambda: jax.vmap(lambda *each: values(*each), in_axes=tuple(axes.values()))(
            *(shared | {mapped: stacked}).values()
        ),
        "vmap_of_grad": lambda: jax.vmap(jax.grad(loss), in_axes=(None, 0))(shared["k"], stacked),
        "grad_of_vmap": lambda: jax.grad(lambda k: jax.vmap(loss, in_axes=(None, 0))(k, stacked).sum())(shared["k"]),
    }
    each = [shared | {mapped: stacked[step]} for step in range(steps)]
    gradient = jax.jit(jax.grad(loss))
    expected = {
        "vmap": lambda: np.stack([jax.jit(values)(**one) for one in each]),
        "vmap_of_grad": lambda: np.stack([gradient(shared["k"], stacked[step]) for step in range(steps)]),
        "grad_of_vmap": lambda: sum(gradient(shared["k"], stacked[step]) for step in range(steps)),
    }
    np.testing.assert_allclose(by_name[transformation](), expected[transformation](), atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_second_derivatives_that_are_not_jitted_are_those_of_the_jitted_function(implementation):
    q, k, v = (x[:1, :3, :1] for x in random_inputs())

    def loss(q):
        return jnp.sin(dot_product_attention(q, k, v, implementation=implementation)).sum()

    second = jax.jacrev(jax.grad(loss))
    np.testing.assert_allclose(second(q), jax.jit(second)(q), atol=1e-5)
    if implementation == BY_AUTODIFF:
        np.testing.assert_allclose(jax.jacfwd(jax.grad(loss))(q), jax.jit(second)(q), atol=1e-5)


def kept_for_the_backward_pass(inputs, **settings):
    """Shapes and dtypes of the arrays that are, but for those no larger than an input."""
    _, vjp = jax.eval_shape(
        lambda *inputs: jax.vjp(functools.partial(dot_product_attention, **settings), *inputs), *inputs
    )
    largest = max(x.size for x in inputs)
    return [(x.shape, x.dtype) for x in jax.tree.leaves(vjp) if x.size > largest]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dropout_rate", [0.0, 0.4])
@pytest.mark.parametrize("masked", [False, True])
def test_backward_pass_finds_one_array_of_weights_and_nothing_else_of_its_size(dtype, dropout_rate, masked):
    length = 32
    inputs = [jnp.asarray(x, dtype) for x in random_inputs(queries=length, keys=length)]
    settings = {
        "attention_mask": random_mask((BATCH, HEADS, length, length)) if masked else None,
        "causal": masked,
        "dropout_rate": dropout_rate,
        "dropout_key": jax.random.key(0),
    }
    kept = kept_for_the_backward_pass(inputs, **settings)
    assert kept == [((BATCH, HEADS, length, length), jnp.dtype(dtype))]
    assert len(kept_for_the_backward_pass(inputs, **settings, implementation=BY_AUTODIFF)) > 1


def test_causal_attention_keeps_no_weights_of_keys_after_a_blocks_last_query():
    length = 4 * QUERY_BLOCK
    kept = kept_for_the_backward_pass(random_inputs(queries=length, keys=length, batch=1), causal=True)
    assert [shape for shape, _ in kept] == [(1, HEADS, QUERY_BLOCK, QUERY_BLOCK * block) for block in (1, 2, 3, 4)]


def test_number_of_blocks_is_bounded():
    length = 3 * LARGE_BLOCKS
    kept = kept_for_the_backward_pass(random_inputs(queries=length, keys=length, batch=1, heads=1), causal=True)
    shapes = [shape for shape, _ in kept]
    assert len(shapes) == MAX_QUERY_BLOCKS
    assert sum(shape[2] for shape in shapes) == shapes[-1][3] == length
