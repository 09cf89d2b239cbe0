import itertools

import grain
import numpy as np
import pytest

from data.pipelines.buckets import Buckets, array_buckets, padded_batch, rows_of
from data.pipelines.endless import shuffled
from data.pipelines.lengths import up_to

LENGTHS = np.random.default_rng(0).integers(1, 60, size=50)
BATCH = 4
POOL = 3
BUCKETS = array_buckets(range(8, 65, 8))
WORDS = np.random.default_rng(0).integers(1, 17, 101).tolist()
NAMED = list(enumerate(WORDS, 1))


def example(number):
    """Its length and its number, in every place, so that each can be told from each."""
    length = int(LENGTHS[number])
    tokens = np.full(length, number + 1, np.int32)
    return {"tokens": tokens, "loss_mask": np.ones(length, bool)}


def endless(seed=0, pool_batches=POOL):
    numbers = shuffled(range(len(LENGTHS)), seed)
    return BUCKETS.endless(
        lambda indices: [*map(example, numbers(indices))], BATCH, seed=seed, pool_batches=pool_batches
    )


def first(count, batches=None):
    """The first batches; an iterator would read hundreds ahead."""
    batches = endless() if batches is None else batches
    return [batches[i] for i in range(count)]


def numbers(batch):
    return [int(row[0]) - 1 for row in batch["tokens"]]


def test_each_row_is_an_example_filled_up_with_zeros():
    for batch in first(20):
        for row, mask in zip(batch["tokens"], batch["loss_mask"], strict=True):
            length = LENGTHS[row[0] - 1]
            assert (row[:length] == row[0]).all()
            assert not row[length:].any()
            np.testing.assert_array_equal(mask, np.arange(len(row)) < length)


def test_every_example_comes_once_an_epoch():
    batches = first(2 * len(LENGTHS) // BATCH)  # two epochs end within a batch
    counts = np.bincount([number for batch in batches for number in numbers(batch)], minlength=len(LENGTHS))
    pool = POOL * BATCH
    assert counts.sum() == 2 * len(LENGTHS) // BATCH * BATCH
    assert counts.min() >= 1
    # Only the last pool, which holds more than these epochs, may be cut short.
    assert np.abs(counts - 2).sum() <= 2 * pool


def test_a_batch_is_padded_to_its_longest_example_and_no_further():
    for batch in first(30):
        longest = max(LENGTHS[number] for number in numbers(batch))
        assert batch["tokens"].shape == (BATCH, -(-longest // 8) * 8)


@pytest.mark.thorough
def test_all_shapes_are_known_before_and_no_others():
    found = {batch["tokens"].shape for batch in first(300)}
    known = BUCKETS.of_each_shape([example(number) for number in range(len(LENGTHS))], BATCH, pool_batches=POOL)
    assert {batch["tokens"].shape for batch in known} == found
    assert {name: x.dtype for name, x in known[0].items()} == {"tokens": np.int32, "loss_mask": np.bool_}


def test_a_length_of_too_few_examples_for_a_batch_has_no_shape():
    lengths = [5, *[20] * 40]
    examples = [{"loss_mask": np.ones(length, bool)} for length in lengths]

    def widths(batch_size):
        known = BUCKETS.of_each_shape(examples, batch_size, pool_batches=POOL)
        return [batch["loss_mask"].shape[1] for batch in known]

    # A pool of six has the short one twice, if an epoch ends in it: in a batch of two both rows may be it.
    assert widths(2) == [8, 24]
    assert widths(3) == [24]


@pytest.mark.thorough
def test_less_is_padding_than_without_buckets():
    def share_scored(pool_batches):
        batches = first(240, endless(pool_batches=pool_batches))
        return np.mean([batch["loss_mask"].mean() for batch in batches])

    assert share_scored(12) > 1.2 * share_scored(1)


def test_batches_are_a_function_of_their_number():
    one, other = endless(), endless()
    forward = [one[i]["tokens"] for i in range(15)]
    backward = [other[i]["tokens"] for i in reversed(range(15))]
    for a, b in zip(forward, reversed(backward), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_iterator_continues_where_it_was():
    reading = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    iterator = iter(endless().to_iter_dataset(reading))
    for _ in range(7):
        next(iterator)
    state = iterator.get_state()
    expected = [next(iterator)["tokens"] for _ in range(5)]
    again = iter(endless().to_iter_dataset(reading))
    again.set_state(state)
    for batch in expected:
        np.testing.assert_array_equal(next(again)["tokens"], batch)


def test_lengths_do_not_come_in_order():
    widths = [batch["tokens"].shape[1] for batch in first(60)]
    pools = [widths[i : i + POOL] for i in range(0, 60, POOL)]
    assert any(pool != sorted(pool) for pool in pools)
    assert any(pool != sorted(pool, reverse=True) for pool in pools)


def test_another_seed_gives_other_batches():
    one, other = (numbers(endless(seed)[0]) for seed in (0, 1))
    assert one != other


@pytest.mark.parametrize("rows", [1, 4])
def test_padded_fills_up_missing_rows(rows):
    batch = padded_batch([example(number) for number in range(rows)], 4, 64)
    assert numbers({"tokens": batch["tokens"][:rows]}) == list(range(rows))
    assert not batch["tokens"][rows:].any()
    assert not batch["loss_mask"][rows:].any()
    assert batch["loss_mask"].sum() == LENGTHS[:rows].sum()
    assert (batch["tokens"].dtype, batch["loss_mask"].dtype) == (np.int32, np.bool_)


def length_of(example):
    return example[1]


def batch_of(examples, size, length):
    """The name of each row, at as many places as it is long."""
    names = np.zeros((size, length), int)
    for row, (name, count) in enumerate(examples):
        names[row, :count] = name
    return {"names": names}


SIZE = rows_of(32, 6)
BY_TOKENS = Buckets((4, 8, 16), length_of, batch_of)


def epochs(seed, examples=lambda epoch: NAMED):
    return iter(BY_TOKENS.epochs(examples, SIZE, seed=seed))


def names(batch):
    return [int(row[0]) for row in batch["names"] if row[0]]


def test_rows_times_length_is_at_most_the_number_of_tokens():
    assert [SIZE(length) for length in BY_TOKENS.lengths] == [6, 4, 2]
    assert [rows_of(32)(length) for length in (4, 64)] == [8, 1]


@pytest.mark.parametrize("lengths", [[], [1], WORDS[:1], WORDS])
def test_each_example_is_in_one_batch_that_it_fits_and_only_the_last_is_not_full(lengths):
    groups = BY_TOKENS.groups([*enumerate(lengths)], SIZE, range(len(lengths)))
    assert sorted(member for *_, members in groups for member in members) == list(range(len(lengths)))
    assert all(len(members) == rows == SIZE(length) for rows, length, members in groups[:-1])
    for rows, length, members in groups:
        assert 1 <= len(members) <= rows
        assert max(lengths[member] for member in members) <= length


def test_one_pass_says_which_example_is_in_which_row():
    batches, rows = BY_TOKENS.one_pass(NAMED, SIZE)
    assert [name for batch in batches for name in names(batch)] == [NAMED[index][0] for index in rows]
    assert sorted(rows) == list(range(len(NAMED)))
    widths = [batch["names"].shape[1] for batch in batches]
    assert widths == sorted(widths)


def test_an_epoch_has_each_example_once_in_a_few_shapes():
    count = len(BY_TOKENS.one_pass(NAMED, SIZE)[0])
    batches = list(itertools.islice(epochs(0), 2 * count))
    assert sorted(name for batch in batches for name in names(batch)) == sorted(2 * [name for name, _ in NAMED])
    assert {batch["names"].shape for batch in batches} == {(6, 4), (4, 8), (2, 16)}


def test_the_order_depends_only_on_seed_and_epoch():
    def first(seed, skip=0):
        return [names(batch) for batch in itertools.islice(epochs(seed), skip, skip + 10)]

    assert first(0) == first(0)
    assert first(0) != first(1)
    assert first(0) != first(0, skip=len(BY_TOKENS.groups(NAMED, SIZE)))


def test_an_iterator_continues_from_its_state_with_the_same_batches():
    batches, again = (epochs(3, lambda epoch: NAMED[epoch:]) for _ in range(2))
    for _ in range(60):
        next(batches)
    again.set_state(batches.get_state())
    for _ in range(60):
        np.testing.assert_array_equal(next(again)["names"], next(batches)["names"])


@pytest.mark.parametrize("few", [False, True])
def test_all_shapes_of_an_epoch_are_known_from_its_lengths(few):
    examples = [(name, length) for name, length in enumerate([2, 9, 9, 10, 11, 24, 40] * 4, 1)]
    lengths = [length for _, length in examples]
    chosen = up_to(40, (4, 8, 12, 32, 48, 64), lengths, few=few)
    assert chosen == ((16, 24, 48) if few else (4, 8, 12, 32, 48))
    wide, size = Buckets(chosen, length_of, batch_of), rows_of(64)
    batches = list(itertools.islice(iter(wide.epochs(lambda _: examples, size, seed=0)), 40))
    known = wide.of_each_length(size, examples)
    assert sorted(batch["names"].shape for batch in known) == sorted({batch["names"].shape for batch in batches})
    # Epochs of other lengths may need all.
    assert [batch["names"].shape[1] for batch in wide.of_each_length(size)] == list(wide.lengths)
