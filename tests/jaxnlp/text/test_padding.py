import numpy as np
import pytest

from jaxnlp.text.padding import padded, row_mask

ROWS = [[1, 2, 3], np.array([4]), []]


def test_rows_are_filled_up_to_the_longest():
    np.testing.assert_array_equal(row_mask(ROWS), [[1, 1, 1], [1, 0, 0], [0, 0, 0]])
    array = padded(ROWS)
    np.testing.assert_array_equal(array, [[1, 2, 3], [4, 0, 0], [0, 0, 0]])
    assert array.dtype == np.int32


def test_a_batch_of_a_given_shape_has_further_rows_of_padding():
    mask = row_mask(ROWS, 4, 5)
    assert mask.shape == (4, 5)
    assert mask.sum() == 4
    array = padded(ROWS, mask, dtype=np.int16, fill=-1)
    np.testing.assert_array_equal(array, [[1, 2, 3, -1, -1], [4, -1, -1, -1, -1], *2 * [5 * [-1]]])
    assert array.dtype == np.int16


def test_rows_may_have_vectors_or_be_missing():
    vectors = [np.array([[1, 2], [3, 4]]), np.array([[5, 6]])]
    np.testing.assert_array_equal(padded(vectors, width=2), [[[1, 2], [3, 4]], [[5, 6], [0, 0]]])
    assert padded([], row_mask([], 2, 3), dtype=bool, width=4).shape == (2, 3, 4)


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="the rows do not have the lengths of the mask"):
        padded(ROWS, row_mask(ROWS, 3, 2))
    with pytest.raises(ValueError, match="the rows do not have the lengths of the mask"):
        padded([[1], [2, 3]], row_mask([[1, 2], [3]]))
    with pytest.raises(ValueError, match="could not broadcast"):
        row_mask(ROWS, 2, 3)
