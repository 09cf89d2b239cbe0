import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.matrix_products import scores_of_rows
from jaxnlp.ops.quantisation import FEW_ROWS, quantised_rows, quantised_scores

MATRIX = np.random.default_rng(0).normal(size=(5, 33)).astype(np.float32)


@pytest.mark.thorough
def test_no_weight_changes_by_more_than_half_a_scale():
    rows = quantised_rows(MATRIX)
    np.testing.assert_allclose(rows.scales, np.abs(MATRIX).max(axis=1) / 127, rtol=1e-6)
    assert rows.values.dtype == jnp.int8
    assert int(jnp.abs(rows.values).max(axis=1).min()) == 127
    error = np.abs(rows.scales[:, None] * rows.values.astype(np.float32) - MATRIX)
    assert (error <= 0.5001 * rows.scales[:, None]).all()


def test_rows_of_zeros_stay_zero():
    rows = quantised_rows(np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(quantised_scores(np.ones((1, 3), np.float32), rows), np.zeros((1, 2)))


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("number", [1, 2, FEW_ROWS, FEW_ROWS + 1])
def test_scores_are_products_with_the_scaled_values(number, platform):
    x, rows = np.random.default_rng(1).normal(size=(number, 33)).astype(np.float32), quantised_rows(MATRIX)
    with compile_for(platform):
        found = jax.make_jaxpr(quantised_scores)(x, rows)
        y = jax.jit(scores_of_rows)(x, rows)
    assert ("cond" in str(found)) == (platform == "cpu" and number <= FEW_ROWS)
    expected = x.astype(np.float64) @ (np.float64(rows.scales)[:, None] * np.asarray(rows.values)).T
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_a_weight_that_is_nan_makes_its_output_nan_and_no_other():
    broken = MATRIX.copy()
    broken[0, 3] = np.nan
    found = np.asarray(quantised_scores(np.ones((1, 33), np.float32), quantised_rows(broken)))[0]
    assert np.isnan(found[0])
    assert np.isfinite(found[1:]).all()
