"""Matrices in 8 bits, with a scale for each row.

Generation reads every weight for each token, and memory limits its speed: 8 bits take a quarter of the time of 32. Only
weights are rounded; products and sums stay in the type of the inputs.

Source: Dettmers et al. 2022, section 2.1 (absmax quantisation), with a scale for each output as in section 3.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops.devices import target_platform

LARGEST = 127
"""Values are from -127 to 127."""
FEW_ROWS = 8
"""Up to this number of inputs, a product for each is fastest on CPU; more take the matrix in 32 bits together."""


class QuantisedRows(NamedTuple):
    """A matrix [F, D] whose row f is scales[f] * values[f].

    Attributes:
      values: [F, D] int8.
      scales: [F] float32.
    """

    values: jax.Array
    scales: jax.Array


def quantised_rows(matrix: jax.Array) -> QuantisedRows:
    """A matrix [F, D] in 8 bits: values = round(matrix / scales), scales[f] = max_d |matrix[f, d]| / 127.

    No weight changes by more than half a scale. A row of zeros stays zero.
    """
    chex.assert_rank(matrix, 2)
    scales = jnp.abs(matrix).max(axis=1).astype(jnp.float32) / LARGEST
    values = jnp.round(matrix / jnp.where(scales > 0.0, scales, 1.0)[:, None])
    return QuantisedRows(values.astype(jnp.int8), scales)


def quantised_scores(x: jax.Array, rows: QuantisedRows) -> jax.Array:
    """The product of each x [N, D] with each row, x (scales * values)^T, [N, F], dtype of x."""
    chex.assert_rank([x, rows.values], 2)
    chex.assert_equal_shape([x, rows.values], dims=1)

    if len(x) <= FEW_ROWS and target_platform() == "cpu":
        y = products_in_loops(x, rows.values, never=rows.scales[0] < 0.0)
    else:
        y = x @ rows.values.astype(x.dtype).T
    return y * rows.scales.astype(x.dtype)[None]


def products_in_loops(x: jax.Array, table: jax.Array, *, never: jax.Array) -> jax.Array:
    """x table^T for few x on CPU, [N, F], dtype of x, which reads a table of a shorter type as it is.

    XLA converts the table in the loop of one x's product; for several x it would first write the converted table.

    Args:
      x: [N, D].
      table: [F, D], of a type with fewer bits.
      never: [], false, unknown to XLA. A branch on it makes XLA compute x before the products, and not again for each
        output; on CPU a barrier does not.
    """
    x = jax.lax.cond(never, jnp.zeros_like, lambda x: x, x)
    return jnp.concatenate([x[index : index + 1] @ table.astype(x.dtype).T for index in range(len(x))])
