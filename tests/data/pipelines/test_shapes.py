import itertools

import numpy as np
import pytest

from data.pipelines.shapes import Shapes

SHAPES = Shapes((4, 8, 16), tokens=32, most_rows=6)
LENGTHS = np.random.default_rng(0).integers(1, 17, 101).tolist()
EXAMPLES = list(enumerate(LENGTHS, 1))


def length_of(example):
    return example[1]


def batch_of(examples, size, length):
    """The name of each row, at as many places as it is long."""
    names = np.zeros((size, length), int)
    for row, (name, count) in enumerate(examples):
        names[row, :count] = name
    return {"names": names}


def epochs(seed, examples=lambda epoch: EXAMPLES):
    return iter(SHAPES.epochs(examples, length_of, batch_of, seed=seed))


def names(batch):
    return [int(row[0]) for row in batch["names"] if row[0]]


def test_rows_times_length_is_at_most_the_number_of_tokens():
    assert [SHAPES.rows(bucket) for bucket in range(3)] == [6, 4, 2]
    assert [Shapes((4, 64), tokens=32).rows(bucket) for bucket in range(2)] == [8, 1]


@pytest.mark.parametrize("lengths", [[], [1], LENGTHS[:1], LENGTHS])
def test_each_example_is_in_one_batch_that_it_fits_and_only_the_last_is_not_full(lengths):
    groups = SHAPES.groups(lengths, range(len(lengths)))
    assert sorted(member for _, members in groups for member in members) == list(range(len(lengths)))
    assert all(len(members) == SHAPES.rows(bucket) for bucket, members in groups[:-1])
    for bucket, members in groups:
        assert 1 <= len(members) <= SHAPES.rows(bucket)
        assert max(lengths[member] for member in members) <= SHAPES.lengths[bucket]


def test_one_pass_says_which_example_is_in_which_row():
    batches, rows = SHAPES.one_pass(EXAMPLES, length_of, batch_of)
    assert [name for batch in batches for name in names(batch)] == [EXAMPLES[index][0] for index in rows]
    assert sorted(rows) == list(range(len(EXAMPLES)))
    widths = [batch["names"].shape[1] for batch in batches]
    assert widths == sorted(widths)


def test_an_epoch_has_each_example_once_in_a_few_shapes():
    count = len(SHAPES.one_pass(EXAMPLES, length_of, batch_of)[0])
    batches = list(itertools.islice(epochs(0), 2 * count))
    assert sorted(name for batch in batches for name in names(batch)) == sorted(2 * [name for name, _ in EXAMPLES])
    assert {batch["names"].shape for batch in batches} == {(6, 4), (4, 8), (2, 16)}


def test_the_order_depends_only_on_seed_and_epoch():
    def first(seed, skip=0):
        return [names(batch) for batch in itertools.islice(epochs(seed), skip, skip + 10)]

    assert first(0) == first(0)
    assert first(0) != first(1)
    assert first(0) != first(0, skip=len(SHAPES.groups(LENGTHS, range(len(LENGTHS)))))


def test_an_iterator_continues_from_its_state_with_the_same_batches():
    batches, again = (epochs(3, lambda epoch: EXAMPLES[epoch:]) for _ in range(2))
    for _ in range(60):
        next(batches)
    again.set_state(batches.get_state())
    for _ in range(60):
        np.testing.assert_array_equal(next(again)["names"], next(batches)["names"])


@pytest.mark.parametrize("few", [False, True])
def test_all_shapes_of_an_epoch_are_known_from_its_lengths(few):
    examples = [(name, length) for name, length in enumerate([2, 9, 9, 10, 11, 24, 40] * 4, 1)]
    lengths = [length for _, length in examples]
    wide = Shapes((4, 8, 12, 32, 48, 64), tokens=64).up_to(40)
    assert wide.lengths == (4, 8, 12, 32, 48)
    if few:
        wide = wide.fitted(lengths)
        assert wide.lengths == (16, 24, 48)
    batches = list(itertools.islice(iter(wide.epochs(lambda _: examples, length_of, batch_of, seed=0)), 40))
    known = wide.of_each_shape(batch_of, lengths)
    assert sorted(batch["names"].shape for batch in known) == sorted({batch["names"].shape for batch in batches})
    # Epochs of other lengths may need all.
    assert [batch["names"].shape[1] for batch in wide.of_each_shape(batch_of)] == list(wide.lengths)


def test_few_lengths_stay():
    assert SHAPES.fitted(LENGTHS) == SHAPES


def test_no_length_above_the_last_one_is_needed():
    assert SHAPES.up_to(5).lengths == (4, 8)
    assert SHAPES.up_to(16).lengths == SHAPES.up_to(99).lengths == SHAPES.lengths
