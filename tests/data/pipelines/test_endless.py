import grain
import numpy as np

from data.pipelines.endless import iterable, shuffled


def test_each_epoch_has_each_example_once_in_another_order():
    examples = shuffled(grain.MapDataset.range(20), 0)
    first, second = ([examples[epoch * 20 + i] for i in range(20)] for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert [shuffled(grain.MapDataset.range(20), 0)[i] for i in range(20)] == first
    assert [shuffled(grain.MapDataset.range(20), 1)[i] for i in range(20)] != first


def test_batches_are_endless_and_continue_from_a_saved_state():
    batches = shuffled(grain.MapDataset.range(20), 0).batch(8)
    assert len(batches) > 2**30
    iterator, again = iter(iterable(batches)), iter(iterable(batches))
    next(iterator)
    again.set_state(iterator.get_state())
    for _ in range(5):
        np.testing.assert_array_equal(next(again), next(iterator))
