import numpy as np
import pytest

from data.pipelines.word_batches import (
    concatenated,
    evaluation_streams,
    random_lengths,
    stream_batches,
    window_batches,
)

TEXT = np.arange(100, 153, dtype=np.int32)
DRAWING = {"short_probability": 0.05, "length_std": 5.0, "multiple": 10}


def generator(seed=0):
    return np.random.default_rng(seed)


def shapes_and_types(batch):
    return {name: (x.shape, x.dtype) for name, x in batch.items()}


def test_windows_have_static_shapes_and_types():
    for batch in window_batches(TEXT, 5, 3, generator()):
        rows = {name: ((3, 5), np.dtype(np.int32)) for name in ("tokens", "targets")}
        assert shapes_and_types(batch) == rows | {"loss_mask": ((3, 5), np.dtype(bool))}
        assert batch["loss_mask"].all()


def test_windows_are_those_of_the_text_each_once_and_their_targets_the_next_words():
    batches = list(window_batches(TEXT, 4, 1, generator()))
    assert len(batches) == 13
    tokens, targets = (np.concatenate([batch[name] for batch in batches]) for name in ("tokens", "targets"))
    np.testing.assert_array_equal(targets, tokens + 1)
    np.testing.assert_array_equal(np.sort(tokens, axis=0).ravel(), TEXT[:52])
    assert not np.array_equal(tokens.ravel(), TEXT[:52])


def test_windows_that_fill_no_batch_are_left_out_at_random():
    left_out = set()
    for seed in range(20):
        batches = list(window_batches(TEXT, 4, 5, generator(seed)))
        seen = {int(start) for batch in batches for start in batch["tokens"][:, 0]}
        assert (len(batches), len(seen)) == (2, 10)
        left_out |= set(range(100, 152, 4)) - seen
    assert len(left_out) == 13


def test_streams_go_on_from_batch_to_batch_and_hold_the_text():
    lengths = np.array([5, 2, 6])
    batches = list(stream_batches(TEXT, lengths, 4))
    assert [batch["tokens"].shape for batch in batches] == [(4, 5), (4, 2), (4, 6)]
    tokens, targets = (np.concatenate([batch[name] for batch in batches], axis=1) for name in ("tokens", "targets"))
    np.testing.assert_array_equal(tokens.ravel(), TEXT[:52])
    np.testing.assert_array_equal(targets, tokens + 1)
    assert [batch["reset"].tolist() for batch in batches] == [[True] * 4, [False] * 4, [False] * 4]
    assert all(batch["loss_mask"].shape == batch["tokens"].shape and batch["loss_mask"].all() for batch in batches)
    assert {batch[name].dtype for batch in batches for name in ("tokens", "targets")} == {np.dtype(np.int32)}
    assert {batch[name].dtype for batch in batches for name in ("loss_mask", "reset")} == {np.dtype(bool)}


@pytest.mark.parametrize("track_length", [10, 11, 69, 70, 85, 1000, 64_871])
@pytest.mark.parametrize("sequence_length", [10, 35, 70])
def test_lengths_are_multiples_that_fill_the_track(track_length, sequence_length):
    lengths = random_lengths(track_length, sequence_length, generator(), **DRAWING)
    assert (lengths % 10 == 0).all()
    assert (lengths >= 10).all()
    assert 0 <= track_length - lengths.sum() < 10


@pytest.mark.parametrize(
    ("sequence_length", "multiple", "length_std"), [(70, 10, 5), (70, 7, 100), (9, 9, 50), (32, 1, 90)]
)
def test_the_number_of_different_lengths_is_bounded(sequence_length, multiple, length_std):
    options = DRAWING | {"length_std": length_std, "multiple": multiple}
    lengths = random_lengths(200_000, sequence_length, generator(), **options)
    assert lengths.max() <= 1.25 * sequence_length
    assert len(set(lengths)) <= 1.25 * sequence_length / multiple


@pytest.mark.parametrize("short", [0.0, 0.05, 1.0])
def test_lengths_are_distributed_as_published(short):
    options = {"short_probability": short, "length_std": 3.0, "multiple": 1}
    lengths = random_lengths(2_000_000, 70, generator(), **options)[:-1]
    about_half = np.abs(lengths - 35) < 17
    error = 4 * np.sqrt(short * (1 - short) / len(lengths))
    assert abs(about_half.mean() - short) <= error
    for base, drawn in ((35, lengths[about_half]), (70, lengths[~about_half])):
        if len(drawn):
            assert abs(drawn.mean() - base) < 0.3
            assert abs(drawn.std() - 3) < 0.2


def test_without_length_std_and_short_ones_all_lengths_but_the_last_are_the_same():
    lengths = random_lengths(250, 60, generator(), short_probability=0.0, length_std=0.0, multiple=10)
    assert lengths.tolist() == [60, 60, 60, 60, 10]


@pytest.mark.parametrize(("length", "expected"), [(15, {10, 20}), (12, {10, 20}), (10, {10}), (23, {10, 20, 30})])
def test_lengths_that_are_no_multiple_lie_on_both_sides(length, expected):
    lengths = random_lengths(100_000, length, generator(), short_probability=0.0, length_std=3.0, multiple=10)[:-1]
    assert set(lengths.tolist()) == expected
    assert abs(lengths.mean() - length) < 1.5


@pytest.mark.parametrize("length", [2, 3, 13, 24, 25, 26, 53])
@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_evaluation_scores_each_word_but_the_first_exactly_once(length, batch_size):
    text = generator(length).integers(1, 9, size=length).astype(np.int32)
    batches = list(evaluation_streams(text, 4, batch_size))
    rows = {name: ((batch_size, 4), np.dtype(np.int32)) for name in ("tokens", "targets")}
    masks = {"loss_mask": ((batch_size, 4), np.dtype(bool)), "reset": ((batch_size,), np.dtype(bool))}
    assert all(shapes_and_types(batch) == rows | masks for batch in batches)
    streams = {name: np.concatenate([batch[name] for batch in batches], axis=1) for name in (*rows, "loss_mask")}
    mask = streams["loss_mask"]
    np.testing.assert_array_equal(streams["targets"][mask], text[1:])
    np.testing.assert_array_equal(streams["tokens"][mask], text[:-1])
    assert not streams["tokens"][~mask].any()
    assert not streams["targets"][~mask].any()


def test_evaluation_restarts_only_in_its_first_batch():
    batches = evaluation_streams(TEXT, 4, 3)
    assert len(batches) == 5
    assert [batch["reset"].tolist() for batch in batches] == [[True] * 3, *[[False] * 3] * 4]


def test_evaluation_pads_where_streams_end():
    last = list(evaluation_streams(TEXT, 4, 3))[-1]  # 52 targets in streams of 18, 18 and 16
    np.testing.assert_array_equal(last["tokens"], [[116, 117, 0, 0], [134, 135, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(last["targets"], [[117, 118, 0, 0], [135, 136, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(last["loss_mask"], [[True, True, False, False]] * 2 + [[False] * 4])


ARTICLES = [
    np.arange(start, start + length, dtype=np.int32) for start, length in ((0, 3), (100, 5), (200, 2), (300, 6))
]


def cut_to_begin_with_an_article(text):
    first = int(np.flatnonzero(text % 100 == 0)[0])
    return np.roll(text, -first)


@pytest.mark.parametrize("shuffle", [True, False])
def test_articles_are_put_together_whole_in_a_ring(shuffle):
    orders = set()
    for seed in range(50):
        text = concatenated(ARTICLES, generator(seed), shuffle=shuffle)
        begins_with_article = cut_to_begin_with_an_article(text)
        order = [int(i) // 100 for i in begins_with_article if i % 100 == 0]
        np.testing.assert_array_equal(begins_with_article, np.concatenate([ARTICLES[i] for i in order]))
        orders.add(tuple(np.roll(order, -order.index(0)).tolist()))
    assert len(orders) == (6 if shuffle else 1)
    assert shuffle or orders == {(0, 1, 2, 3)}


def test_texts_begin_at_every_place():
    first = {int(concatenated(ARTICLES, generator(seed), shuffle=False)[0]) for seed in range(300)}
    assert first == set(np.concatenate(ARTICLES).tolist())
