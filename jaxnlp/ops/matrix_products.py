"""Matrix products with operands in a short format and everything else in float32.

A CPU with instructions for bfloat16 multiplies it faster than float32, with sums in float32: twice as fast with AVX-512
BF16, six times with AMX. XLA takes that path only if the left operand has its summed axis last in memory, and the
result is float32. The forms below meet both conditions.
"""

import functools
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from jaxnlp.ops.devices import is_divided, target_platform
from jaxnlp.ops.quantisation import QuantisedRows, products_in_loops, quantised_scores
from jaxnlp.typing import Params


def operand_dtype(choice: Literal["auto", "bfloat16"] | None) -> str | None:
    """The dtype for operands of matrix products on the platform of `ops.devices`; None = no rounding.

    Args:
      choice: "auto": bfloat16 where the processor multiplies it faster than float32: on GPUs, TPUs, and CPUs with
        instructions for it. "bfloat16" and None are returned unchanged.
    """
    if choice != "auto":
        return choice
    return "bfloat16" if target_platform() != "cpu" or cpu_multiplies_bfloat16() else None


@functools.cache
def cpu_multiplies_bfloat16() -> bool:
    """Whether this machine's CPU multiplies bfloat16 faster than float32."""
    try:
        return has_bfloat16(Path("/proc/cpuinfo").read_text())
    except OSError:  # not Linux: unknown, and float32 is never slow
        return False


def has_bfloat16(cpuinfo: str) -> bool:
    """Whether a CPU has instructions with which XLA multiplies bfloat16, by Linux's description of it."""
    flags = next((line.split() for line in cpuinfo.splitlines() if line.startswith("flags")), [])
    return "avx512_bf16" in flags or "amx_bf16" in flags


def rounded_kernels(params: Params, dtype: jax.typing.DTypeLike | None) -> Params:
    """Parameters with kernels rounded once, so that no product rounds them; None = unchanged.

    With few rows, rounding a kernel takes longer than the product with it.
    """
    if dtype is None:
        return params

    def rounded(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        return leaf.astype(dtype) if getattr(path[-1], "key", None) == "kernel" else leaf

    return jax.tree_util.tree_map_with_path(rounded, params)


def matmul(x: jax.Array, w: jax.Array, dtype: jax.typing.DTypeLike | None = None) -> jax.Array:
    """Rows times a matrix.

    Y = X W;  the gradient is dX = dY W^T, dW = X^T dY.

    Args:
      x: [N, D], float.
      w: [D, F], perhaps rounded to a shorter type, to which x is then rounded too.
      dtype: dtype for the operands of all three products; None, or the dtype of x: a plain product.

    Returns:
      [N, F], dtype of x; sums in float32.
    """
    if w.dtype.itemsize < x.dtype.itemsize:
        return product(x.astype(w.dtype), w, "nd,df->nf").astype(x.dtype)
    if dtype is None or jnp.dtype(dtype) == x.dtype:
        return x @ w.astype(x.dtype)
    return _matmul(x, w, dtype)


def scores_of_rows(
    x: jax.Array, table: jax.Array | QuantisedRows, dtype: jax.typing.DTypeLike | None = None
) -> jax.Array:
    """The product of each x [N, D] with each row of a table [V, D], such as tied embeddings: x table^T, [N, V].

    As `matmul`, without a transposition, which for few x would take half as long again. A table in a shorter type is
    not converted: x is rounded to it.
    """
    if isinstance(table, QuantisedRows):
        return quantised_scores(x, table)
    if table.dtype.itemsize < x.dtype.itemsize:
        return _product_with_rows(x, table).astype(x.dtype)
    if dtype is None or jnp.dtype(dtype) == x.dtype:
        return jnp.einsum("nd,vd->nv", x, table.astype(x.dtype))
    return matmul(x, table.T, dtype)


def _product_with_rows(x: jax.Array, table: jax.Array) -> jax.Array:
    """The product of x, rounded to the table's type, with its rows, in float32."""
    if len(x) == 1 and target_platform() == "cpu" and table.dtype == jnp.bfloat16:
        # A product in bfloat16 would take ten times as long, and one of two rows twice as long. XLA would choose the
        # former after a conversion of x to bfloat16 and back. If it added a bias to the product in one program, it
        # would write the table in float32 first.
        rounded = jax.lax.reduce_precision(x.astype(jnp.float32), exponent_bits=8, mantissa_bits=7)
        return stored(products_in_loops(rounded, table, never=table[0, 0] > jnp.inf))
    return product(x.astype(table.dtype), table, "nd,vd->nv")


def shared_matmul(x: jax.Array, w: jax.Array, dtype: jax.typing.DTypeLike | None = None) -> jax.Array:
    """`matmul` with a matrix whose outputs have several axes, which devices may share: x [N, D], w [D, ...]; [N, ...].

    XLA can divide an axis, but not the heads H in one axis of 3 H K outputs.
    """
    operand = jnp.dtype(dtype or x.dtype)
    y = jnp.tensordot(x.astype(operand), w.astype(operand), 1, preferred_element_type=accumulator(operand))
    return y.astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _matmul(x, w, dtype):
    return _matmul_forward(x, w, dtype)[0]


def _matmul_forward(x, w, dtype):
    short_x, short_w = x.astype(dtype), w.astype(dtype)
    # Empty arrays carry the dtypes of the cotangents: residuals are arrays.
    return product(short_x, short_w, "nd,df->nf").astype(x.dtype), (short_x, short_w, x[:0, :0], w[:0, :0])


def _matmul_backward(dtype, residuals, dy):
    x, w, like_x, like_w = residuals
    dy = dy.astype(dtype)
    dx = product(dy, w, "nf,df->nd")
    # The smaller one of x and dy is transposed in memory. With dy the result is transposed too. XLA would do it where
    # blocks are stacked, which takes longer.
    if x.shape[1] > dy.shape[1]:
        dw = transposed(product(transposed(dy), x, "fn,nd->fd"))
    else:
        dw = product(transposed(x), dy, "dn,nf->df")
    return dx.astype(like_x.dtype), dw.astype(like_w.dtype)


_matmul.defvjp(_matmul_forward, _matmul_backward)


def product(x: jax.Array, y: jax.Array, equation: str) -> jax.Array:
    """A product whose operands XLA does not swap: its result is in float32 at least, and on CPU in row-major order.

    XLA would swap the operands to avoid a transposition of the result, and bfloat16 would lose its fast path.

    Args:
      x: the left operand, such as [N, D]; `equation` sums over its last axis.
      y: the right operand, such as [D, F].
      equation: as for einsum, such as "nd,df->nf".
    """
    return row_major(jnp.einsum(equation, x, y, preferred_element_type=accumulator(x.dtype)))


def accumulator(dtype: jax.typing.DTypeLike) -> jnp.dtype:
    """The dtype of sums over values of this type: float32 at least, and float64 for float64."""
    wide = jnp.float64 if jnp.dtype(dtype) == jnp.float64 else jnp.float32
    return jnp.dtype(jax.dtypes.canonicalize_dtype(wide))


def column_sums(x: jax.Array) -> jax.Array:
    """[N, D] summed over its rows, [D], in float32 at least.

    On CPU it is a product: a reduction over the first axis takes many times as long. With eight rows of ones, unlike
    with one, bfloat16 keeps its fast path.
    """
    if target_platform() != "cpu":
        return x.astype(accumulator(x.dtype)).sum(axis=0)
    return product(jnp.ones((8, x.shape[0]), x.dtype), x, "on,nd->od")[0]


def added(x: jax.Array, parameter: jax.Array) -> jax.Array:
    """x + a parameter that is broadcast over its rows, [...], dtype of x. The parameter's gradient sums in float32 at
    least."""
    wide = accumulator(x.dtype)
    return (x.astype(wide) + parameter.astype(wide)).astype(x.dtype)


def transposed(x: jax.Array) -> jax.Array:
    """[..., M, N] as [..., N, M]. On CPU the axes are swapped in memory too, where XLA would only relabel them."""
    return row_major(jnp.swapaxes(x, -1, -2))


def stored(x: jax.Array) -> jax.Array:
    """The same array [...]. On CPU it is written to memory once; XLA would otherwise compute it again at each use.

    On an accelerator XLA decides, since computing again is often faster than reading.
    """
    return jax.lax.optimization_barrier(x) if target_platform() == "cpu" else x


def row_major(x: jax.Array) -> jax.Array:
    """The same array [...]. On CPU its memory has the order of its axes, so a transposition before it is carried out.

    XLA would fold the transposition into the product, and bfloat16 would lose its fast path. Where XLA divides the
    array among devices, the order is XLA's: it would gather the array to keep it.
    """
    return _constrained(x) if target_platform() == "cpu" and not is_divided() else x


# The barriers keep the constraint's result from being an output of a whole program. For such a program JAX 0.10 leaves
# the layouts of all outputs to XLA. The next program does not know them, and reads wrong numbers. The jit without
# barriers does not help. Under a vmap that is not jitted, this function and its gradient run as separate programs.
@jax.jit
def _constrained(x):
    barrier = jax.lax.optimization_barrier
    return barrier(with_layout_constraint(barrier(x), Layout(tuple(range(x.ndim)))))
