import grain
import numpy as np
import pytest

from data.pipelines.orders import BATCH_CHANGED, generators, random_numbers, shuffled_order


@pytest.mark.parametrize("count", [3000, 1, 2, 20, 257, 2**16, 2**16 + 1])
@pytest.mark.parametrize("seed", [7])
def test_orders_are_those_of_grain(count, seed):
    expected = grain.MapDataset.range(count).seed(seed).shuffle().repeat(100)
    end = count if count > 100 else 2 * count
    indices = np.arange(max(0, end - 30), end + min(count, 30))  # of two epochs or more
    assert shuffled_order(count, seed)(indices).tolist() == [expected[index] for index in indices.tolist()]


def test_random_numbers_are_those_of_grain():
    def change(_, generator):
        return generator.random(), generator.integers(9), generator.random()

    examples = grain.MapDataset.range(20).seed(3).shuffle().repeat(100).random_map(change)
    indices = range(15, 30)
    assert [change(None, one) for one in generators(3, indices)] == [examples[index] for index in indices]
    batches = examples.batch(8).random_map(change)
    assert [change(None, one) for one in generators(3, [6], BATCH_CHANGED)] == [batches[6]]


def test_random_numbers_of_an_index_do_not_depend_on_the_others():
    whole = random_numbers(3, 5)(np.arange(400))
    assert whole.shape == (400, 5)
    assert len(np.unique(whole)) == whole.size
    some = np.array([0, 399, 127, 128, 1])
    np.testing.assert_array_equal(random_numbers(3, 5)(some), whole[some])
    assert (random_numbers(4, 5)(some) != whole[some]).all()
    assert random_numbers(3, 5)(some[:0]).shape == (0, 5)
    deciles = np.histogram(whole, bins=10, range=(0.0, 1.0))[0]
    assert all(abs(count - 200) < 5 * 200**0.5 for count in deciles)
