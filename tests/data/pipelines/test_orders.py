import grain
import numpy as np
import pytest

from data.pipelines.orders import BATCH_CHANGED, generators, random_numbers, shuffled_order


@pytest.mark.parametrize("count", [1, 2, 20, 3000])
def test_each_epoch_has_each_example_once_in_an_order_of_its_own(count):
    order = shuffled_order(count, 7)
    epochs = [order(np.arange(number * count, (number + 1) * count)).tolist() for number in range(3)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    between = np.arange(count - 1, 2 * count + 1)  # of three epochs
    assert order(between).tolist() == [epochs[0][-1], *epochs[1], epochs[2][0]]
    assert order(np.arange(count)).tolist() == epochs[0]  # once more
    if count > 2:
        others = [shuffled_order(count, 8)(np.arange(count)).tolist(), list(range(count))]
        assert len({tuple(one) for one in (*epochs, *others)}) == 5


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
