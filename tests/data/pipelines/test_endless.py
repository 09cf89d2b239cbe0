import jax
import numpy as np

from data.pipelines.endless import batched, iterable, shuffled
from data.pipelines.orders import generators, shuffled_order


def test_each_epoch_has_each_example_once_in_another_order():
    examples = shuffled(range(20), 0)
    first, second = (examples(np.arange(20) + epoch * 20) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert shuffled(range(20), 0)(np.arange(20)) == first
    assert shuffled(range(20), 1)(np.arange(20)) != first


def test_batches_are_endless_and_continue_from_a_saved_state():
    examples = shuffled(range(20), 0)
    batches = batched(lambda indices: {"index": np.array(examples(indices))}, 8)
    assert len(batches) > 2**30
    iterator, again = iter(iterable(batches)), iter(iterable(batches))
    next(iterator)
    again.set_state(iterator.get_state())
    for _ in range(5):
        np.testing.assert_array_equal(next(again)["index"], next(iterator)["index"])


def test_rows_of_a_batch_are_examples_in_their_order_with_their_random_numbers_and_no_other_is_made():
    made = []

    def example(index, generator):
        made.append(index)
        return {"index": np.int32(index), "noise": generator.random(3), "loss_mask": np.array(True)}

    indices = np.arange(32, 40)
    order, numbers = shuffled_order(20, 0)(indices), [one.random(3) for one in generators(0, indices)]
    examples = shuffled(range(20), 0, example)
    batch = batched(lambda indices: jax.tree.map(lambda *rows: np.stack(rows), *examples(indices)), 8)[4]
    made.clear()
    rows = batch.rows(np.array([2, 5]))
    assert made == order[[2, 5]].tolist()
    for name, x in {"index": order.astype(np.int32), "noise": np.stack(numbers), "loss_mask": np.ones(8, bool)}.items():
        np.testing.assert_array_equal(rows[name], x[[2, 5]])
        np.testing.assert_array_equal(batch[name], x)
        assert batch[name].dtype == x.dtype
