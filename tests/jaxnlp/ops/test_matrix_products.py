import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.matrix_products import (
    accumulator,
    added,
    column_sums,
    has_bfloat16,
    matmul,
    operand_dtype,
    product,
    scores_of_rows,
    transposed,
)

pytestmark = pytest.mark.sweep

ROWS, DEPTH, COLUMNS = 5, 300, 7
SHAPES = [(ROWS, DEPTH, COLUMNS), (1, 6, 5), (4, 6, 1), (4, 1, 5), (1, 1, 1), (17, 33, 65), (0, 3, 2), (3, 0, 2)]

compiled_matmul = jax.jit(matmul, static_argnums=2)


@functools.partial(jax.jit, static_argnums=3)
def value_and_gradients(x, w, upstream, dtype=None):
    y, vjp = jax.vjp(lambda x, w: matmul(x, w, dtype), x, w)
    return y, *vjp(upstream)


def random_arrays(rows=ROWS, depth=DEPTH, columns=COLUMNS, dtype=np.float32):
    """X, W and dY."""
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape).astype(dtype) for shape in ((rows, depth), (depth, columns), (rows, columns))]


def rounded(x, dtype=ml_dtypes.bfloat16):
    return x.astype(dtype).astype(np.float64)


def assert_near(found, expected, tolerance=1e-6):
    """As near as float32 sums are; operands rounded to bfloat16 move the result by thousandths."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(
        np.float64(found), expected, rtol=0.0, atol=tolerance * np.abs(expected).max(initial=1e-30)
    )


@pytest.mark.parametrize("dtype", [None, "float32", np.float32, jnp.dtype("float32")], ids=str)
def test_without_rounding_it_is_the_plain_product(dtype):
    x, w, upstream = random_arrays()
    y, dx, dw = value_and_gradients(x, w, upstream, dtype)
    np.testing.assert_array_equal(y, jax.jit(jnp.matmul)(x, w))
    assert_near(dx, np.float64(upstream) @ w.T)
    assert_near(dw, np.float64(x).T @ upstream)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_operands_of_all_three_products_are_rounded_and_sums_are_not(shape, dtype):
    arrays = random_arrays(*shape)
    found = value_and_gradients(*arrays, dtype)
    x, w, upstream = (rounded(array, dtype) for array in arrays)
    for array, expected in zip(found, (x @ w, upstream @ w.T, x.T @ upstream), strict=True):
        assert array.dtype == np.float32
        assert_near(array, expected)


def test_rounding_moves_the_result():
    x, w, upstream = random_arrays()
    for found, exact in zip(
        value_and_gradients(x, w, upstream, "bfloat16"), (x @ w, upstream @ w.T, x.T @ upstream), strict=True
    ):
        assert 1e-3 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 1e-2


def test_sums_of_many_bfloat16_products_are_taken_in_float32():
    # In bfloat16 a sum of ones ends at 256.
    ones = np.ones((2, 1000), np.float32)
    np.testing.assert_array_equal(compiled_matmul(ones, ones.T, "bfloat16"), np.full((2, 2), 1000.0))


def test_dtypes_of_result_and_gradients_are_those_of_the_arguments():
    x, w, upstream = random_arrays()
    short_x, short_upstream = (jnp.asarray(array, jnp.bfloat16) for array in (x, upstream))
    exact = [rounded(array) for array in (x, w, upstream)]
    expected = (exact[0] @ exact[1], exact[2] @ exact[1].T, exact[0].T @ exact[2])
    for dtype in (None, "bfloat16"):
        found = value_and_gradients(short_x, w, short_upstream, dtype)
        assert [array.dtype for array in found] == [jnp.bfloat16, jnp.bfloat16, np.float32]
        for array, wanted in zip(found, expected, strict=True):
            assert_near(array, wanted, 2.0**-8)
    widened = value_and_gradients(short_x, w, short_upstream, "float32")
    assert [array.dtype for array in widened] == [jnp.bfloat16, jnp.bfloat16, np.float32]
    assert_near(widened[2], exact[0].T @ exact[2])


def test_float64_is_kept_and_rounded_on_request():
    arrays = random_arrays(dtype=np.float64)
    x, w, upstream = (rounded(array) for array in arrays)
    with jax.enable_x64(True):
        plain, short = (value_and_gradients(*arrays, dtype) for dtype in (None, "bfloat16"))
    for found in (*plain, *short):
        assert found.dtype == np.float64
    assert_near(plain[0], arrays[0] @ arrays[1], 1e-14)
    for found, expected in zip(short, (x @ w, upstream @ w.T, x.T @ upstream), strict=True):
        assert_near(found, expected)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_transposed_weights_get_their_gradient_untransposed(dtype):
    x, w, upstream = random_arrays()
    table = np.ascontiguousarray(w.T)

    @jax.jit
    def tied(x, table):
        y, vjp = jax.vjp(lambda x, table: matmul(x, table.T, dtype), x, table)
        return y, *vjp(upstream)

    y, dx, dw = value_and_gradients(x, w, upstream, dtype)
    for found, expected in zip(tied(x, table), (y, dx, dw.T), strict=True):
        assert_near(found, expected)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_scores_of_rows_are_the_product_with_the_transposed_table_in_values_and_gradients(dtype):
    x, w, upstream = random_arrays()

    @jax.jit
    def scores(x, table):
        y, vjp = jax.vjp(lambda x, table: scores_of_rows(x, table, dtype), x, table)
        return y, *vjp(upstream)

    y, dx, dw = value_and_gradients(x, w, upstream, dtype)
    for found, expected in zip(scores(x, np.ascontiguousarray(w.T)), (y, dx, dw.T), strict=True):
        assert_near(found, expected)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_table_in_a_shorter_type_rounds_the_other_operand(rows):
    x, w, _ = random_arrays()
    x, table = x[:rows], jnp.asarray(w.T, jnp.bfloat16)
    found = jax.jit(scores_of_rows)(x, table)
    assert (found.shape, found.dtype) == ((rows, len(table)), x.dtype)
    assert_near(found, x.astype(jnp.bfloat16).astype(np.float64) @ np.asarray(table).astype(np.float64).T)


def test_one_row_reads_a_table_in_a_shorter_type_as_it_is():
    def layer(x, table, bias):
        return x[:, :1] + added(scores_of_rows(2.0 * x, table), bias[None])

    x, table = jnp.ones((1, 256)), jnp.ones((256, 256), jnp.bfloat16)
    compiled = jax.jit(layer).lower(x, table, jnp.ones(256)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < table.nbytes
    assert "conditional" in compiled.as_text()  # the row is computed once, not for each output


def test_other_programs_read_the_outputs_of_one_that_ends_in_products():
    # Some of these outputs are what a product left, others transposed: JAX must know the memory layout of each.
    x, w, upstream = random_arrays()
    table = np.random.default_rng(1).normal(size=(4, COLUMNS)).astype(np.float32)

    @jax.jit
    def program(x, w, table):
        def loss(x, w, table):
            y = matmul(x, w, "bfloat16")
            return (matmul(y, table.T, "bfloat16") ** 2).sum(), y

        gradients, y = jax.grad(loss, (0, 1, 2), has_aux=True)(x, w, table)
        return *gradients, y, y.T, transposed(x), x

    for output in program(x, w, table):
        np.testing.assert_array_equal(jax.jit(jnp.negative)(output), -np.asarray(output))
    y, vjp = jax.vjp(jax.jit(lambda x, w: matmul(x, w, "bfloat16").T), x, w)
    np.testing.assert_array_equal(jax.jit(jnp.negative)(y), -compiled_matmul(x, w, "bfloat16").T)
    for found, expected in zip(vjp(upstream.T), value_and_gradients(x, w, upstream, "bfloat16")[1:], strict=True):
        assert_near(jax.jit(jnp.negative)(found), -np.float64(expected))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("transformation", ["eager", "checkpoint", "vmap", "grad_of_vmap", "scan"])
def test_transformations_give_the_gradients_of_each_call(transformation):
    steps, rows, depth, columns = 3, 5, 6, 7
    generator = np.random.default_rng(0)
    xs, ws = (np.float32(generator.normal(size=(steps, *shape))) for shape in ((rows, depth), (depth, columns)))

    def loss(x, w):
        return jnp.sin(matmul(x, w, "bfloat16")).sum()

    def scanned(xs, ws):
        return jax.lax.scan(lambda total, step: (total + loss(*step), None), jnp.float32(0), (xs, ws))[0]

    def of_each_call(gradient):
        calls = [gradient(xs[step], ws[step]) for step in range(steps)]
        return [np.stack(parts) for parts in zip(*calls, strict=True)]

    gradient_of = functools.partial(jax.grad, argnums=(0, 1))
    found = {
        "eager": lambda: of_each_call(gradient_of(loss)),
        "checkpoint": lambda: of_each_call(jax.jit(gradient_of(jax.checkpoint(loss)))),
        "vmap": lambda: jax.jit(jax.vmap(gradient_of(loss)))(xs, ws),
        "grad_of_vmap": lambda: jax.jit(gradient_of(lambda xs, ws: jax.vmap(loss)(xs, ws).sum()))(xs, ws),
        "scan": lambda: jax.jit(gradient_of(scanned))(xs, ws),
    }[transformation]()
    for gradient, expected in zip(found, of_each_call(jax.jit(gradient_of(loss))), strict=True):
        assert_near(gradient, expected)


def test_one_matrix_for_a_mapped_axis_of_rows():
    x, w, _ = random_arrays(rows=6)
    found = jax.jit(jax.vmap(lambda x: matmul(x, w, "bfloat16")))(x.reshape(2, 3, DEPTH))
    assert_near(found.reshape(6, COLUMNS), np.float64(compiled_matmul(x, w, "bfloat16")))


def test_rows_do_not_see_each_other():
    x, w, _ = random_arrays()
    changed = x.copy()
    changed[2] += 1.0
    before, after = (np.asarray(compiled_matmul(x, w, "bfloat16")) for x in (x, changed))
    np.testing.assert_array_equal(np.delete(before, 2, axis=0), np.delete(after, 2, axis=0))
    assert np.abs(before[2] - after[2]).min() > 1e-3


def kept_for_the_backward_pass(dtype):
    _, vjp = jax.eval_shape(lambda x, w: jax.vjp(lambda x, w: matmul(x, w, dtype), x, w), *random_arrays()[:2])
    return sorted((x.shape, str(x.dtype)) for x in jax.tree.leaves(vjp) if x.size)


def test_backward_pass_finds_the_rounded_operands_and_nothing_else():
    assert kept_for_the_backward_pass("bfloat16") == [((ROWS, DEPTH), "bfloat16"), ((DEPTH, COLUMNS), "bfloat16")]


@pytest.mark.parametrize("equation", ["bhtk,bhsk->bhts", "bhts,bhsk->bhtk"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_over_several_axes_equal_einsum_in_float64(equation, dtype):
    generator = np.random.default_rng(0)
    sizes = {"b": 2, "h": 3, "t": 5, "s": 40, "k": 8}
    arrays = [
        generator.normal(size=[sizes[axis] for axis in axes]).astype(dtype)
        for axes in equation.split("->")[0].split(",")
    ]
    found = jax.jit(product, static_argnums=2)(*arrays, equation)
    assert found.dtype == np.float32
    assert_near(found, np.einsum(equation, *(np.float64(x) for x in arrays)))


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4, 5), (1, 4), (4, 1), (0, 3)], ids=str)
@pytest.mark.parametrize("compiled", [False, True])
def test_transposed_swaps_the_last_two_axes(shape, compiled):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    found = (jax.jit(transposed) if compiled else transposed)(x)
    np.testing.assert_array_equal(found, x.swapaxes(-1, -2), strict=True)


def test_gradient_of_transposed_is_its_upstream_gradient_transposed():
    x, upstream = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    y, vjp = jax.vjp(jax.jit(transposed), x)
    np.testing.assert_array_equal(y, x.T)
    np.testing.assert_array_equal(vjp(upstream.T)[0], upstream)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("compiled", [False, True])
def test_mapped_over_any_axis_layouts_are_known_to_the_next_program(axis, compiled):
    """A vmap that is not jitted runs each operation as a program of its own, with layouts of its own."""
    generator = np.random.default_rng(0)
    a = generator.normal(size=(4, 5)).astype(np.float32)
    b = np.moveaxis(generator.normal(size=(3, 5, 6)), 0, axis).astype(np.float32)
    each = [np.take(b, i, axis) for i in range(3)]
    wrap = jax.jit if compiled else lambda f: f
    right = wrap(jax.vmap(lambda b: product(a, b, "nd,df->nf"), in_axes=axis))(b)
    np.testing.assert_allclose(right, np.stack([a @ x for x in each]), atol=1e-5)
    left = wrap(jax.vmap(lambda b: product(b, a, "df,nd->fn"), in_axes=axis))(b)
    np.testing.assert_allclose(left, np.stack([x.T @ a.T for x in each]), atol=1e-5)
    np.testing.assert_array_equal(wrap(jax.vmap(transposed, in_axes=axis))(b), np.stack([x.T for x in each]))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float16", "float32"), (jnp.bfloat16, "float32"), ("float32", "float32"), ("float64", "float64")],
)
def test_sums_are_taken_in_float32_at_least(dtype, expected):
    with jax.enable_x64(True):
        assert accumulator(dtype) == np.dtype(expected)
    assert accumulator(dtype) == np.float32  # where JAX has no float64


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("rows", [0, 1, 3, 2000])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16], ids=str)
def test_column_sums_are_sums_over_rows_in_float32(rows, dtype, platform):
    x = jnp.asarray(1.0 + np.random.default_rng(0).random((rows, 5)), dtype)
    with compile_for(platform):
        found = jax.jit(column_sums)(x)
    assert (found.shape, found.dtype) == ((5,), np.float32)
    assert_near(found, np.float64(x).sum(axis=0), 1e-5)  # in whatever order; bfloat16 sums would be off by thousandths


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx2 fma", False),
        ("avx512f avx512_bf16 fma", True),
        ("amx_bf16 amx_tile", True),
        ("avx512_bf16_not", False),
    ],
)
def test_instructions_for_bfloat16_are_found_by_the_flags_of_a_cpu(flags, expected):
    cpuinfo = f"processor\t: 0\nmodel name\t: Some CPU with avx512_bf16\nflags\t\t: {flags}\nbugs\t\t: none\n"
    assert has_bfloat16(cpuinfo) is expected
    assert has_bfloat16("processor\t: 0\n") is False


def test_operands_are_rounded_as_chosen_and_by_themselves_where_the_processor_gains_by_it(monkeypatch):
    assert operand_dtype(None) is None
    assert operand_dtype("bfloat16") == "bfloat16"
    for gains, expected in ((True, "bfloat16"), (False, None)):
        monkeypatch.setattr("jaxnlp.ops.matrix_products.cpu_multiplies_bfloat16", lambda gains=gains: gains)
        assert operand_dtype("auto") == expected
    for platform in ("gpu", "tpu"):
        with compile_for(platform):
            assert operand_dtype("auto") == "bfloat16"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_an_added_parameter_is_a_sum_in_float32(dtype):
    x, parameter = jnp.zeros((300, 2), dtype), jnp.asarray([[1.0, 2.0]])
    y, vjp = jax.vjp(added, x, parameter)
    dx, gradient = vjp(jnp.ones((300, 2), dtype))
    assert (y.dtype, dx.dtype, gradient.dtype) == (x.dtype, x.dtype, np.float32)
    np.testing.assert_array_equal(y.astype(np.float32), np.tile([[1.0, 2.0]], (300, 1)))
    np.testing.assert_array_equal(gradient, [[300.0, 300.0]])  # a sum in bfloat16 stays at 256
