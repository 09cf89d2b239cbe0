import jax
import numpy as np
import pytest

from jaxnlp.ops import masks


@pytest.mark.parametrize(("queries", "keys", "first_query"), [(5, 5, 0), (3, 7, 0), (7, 3, 0), (2, 6, 4)])
def test_each_query_sees_the_keys_at_its_position_and_before(queries, keys, first_query):
    expected = [[key <= first_query + query for key in range(keys)] for query in range(queries)]
    found = masks.causal(queries, keys, first_query=first_query)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, [[expected]])


def test_masks_of_parts_of_a_sequence_stack_up_to_the_mask_of_the_whole():
    part = jax.jit(lambda first: masks.causal(3, 9, first_query=first))
    parts = [part(first) for first in (0, 3, 6)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=2)[0, 0], np.tri(9, dtype=bool))


def test_combines_with_a_padding_mask_of_each_example():
    lengths = np.array([2, 4])
    padding = (np.arange(5) < lengths[:, None])[:, None, None, :]
    found = masks.causal(5, 5) & padding
    expected = [[[[s <= t and s < length for s in range(5)] for t in range(5)]] for length in lengths]
    np.testing.assert_array_equal(found, expected)
