"""The cache of the encoder-decoder: what of it belongs to a row of the beam, and what to the source."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models.translation_cache import TranslationCache


def cache(attended=None):
    rows = np.arange(2.0).reshape(2, 1, 1, 1)
    target, source = np.zeros((2, 1, 4, 1)) + rows, np.zeros((2, 1, 3, 1)) + rows
    mask = np.array([[True, True, True], [True, True, False]])
    return TranslationCache(((target, -target, source, -source),), mask, jnp.zeros((), jnp.int32), attended)


def test_other_rows_have_other_targets_and_the_same_sources():
    before = cache(attended=np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.0]]))
    after = before.with_rows(np.array([1, 1]))
    np.testing.assert_array_equal(after.layers[0][0][:, 0, 0, 0], [1.0, 1.0])
    np.testing.assert_array_equal(after.layers[0][1][:, 0, 0, 0], [-1.0, -1.0])
    np.testing.assert_array_equal(after.layers[0][2], before.layers[0][2])
    np.testing.assert_array_equal(after.layers[0][3], before.layers[0][3])
    np.testing.assert_array_equal(after.attended, before.attended[[1, 1]])
    assert cache().with_rows(np.array([1, 0])).attended is None


def test_coverage_reads_the_real_source_tokens():
    attended = np.array([[0.5, 2.0, 1.0], [0.5, 0.25, 0.0]])
    found = cache(attended).coverage()
    np.testing.assert_allclose(found, [np.log(0.5), np.log(0.5) + np.log(0.25)], rtol=1e-6)


def test_coverage_that_is_not_counted_is_an_error():
    with pytest.raises(ValueError, match="call initial_cache with count_coverage=True"):
        cache().coverage()
