import itertools
import json

import numpy as np
import pytest

from data.text_windows import TextWindows, consecutive_windows, shuffled_windows

TOKENS = np.arange(1, 41, dtype=np.int32)
LENGTH = 5
WINDOWS = len(TOKENS) - LENGTH


def stream(tokens=TOKENS, **changes):
    options = {"documents": [tokens], "sequence_length": LENGTH, "batch_size": 7, "seed": 0} | changes
    return iter(shuffled_windows(**options))


def starts(batches, count):
    """Starting points of the first windows: the tokens count up from 1."""
    first = itertools.chain.from_iterable(batch["tokens"][:, 0] - 1 for batch in batches)
    return [int(start) for start in itertools.islice(first, count)]


def assert_batches_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name])


def test_training_batches_have_static_shapes_and_types():
    for batch in itertools.islice(stream(), 12):
        assert {name: (x.shape, x.dtype) for name, x in batch.items()} == {
            "tokens": ((7, LENGTH), np.dtype(np.int32)),
            "targets": ((7, LENGTH), np.dtype(np.int32)),
            "loss_mask": ((7, LENGTH), np.dtype(bool)),
        }


def test_targets_are_the_tokens_that_follow_in_the_text():
    text = np.random.default_rng(0).integers(1000, size=60).astype(np.int32)
    windows = {tuple(text[i : i + LENGTH + 1]) for i in range(len(text) - LENGTH)}
    for batch in itertools.islice(stream(tokens=text), 10):
        assert batch["loss_mask"].all()
        for tokens, targets in zip(batch["tokens"], batch["targets"], strict=True):
            assert (*tokens, targets[-1]) in windows
            np.testing.assert_array_equal(tokens[1:], targets[:-1])


@pytest.mark.parametrize("batch_size", [7, 8, 1, 50])
def test_each_epoch_visits_every_starting_point_once(batch_size):
    visited = starts(stream(batch_size=batch_size), 3 * WINDOWS)
    epochs = [visited[i : i + WINDOWS] for i in range(0, len(visited), WINDOWS)]
    assert all(sorted(epoch) == list(range(WINDOWS)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_text_of_one_window_gives_that_window_again_and_again():
    batch = next(stream(tokens=TOKENS[: LENGTH + 1], batch_size=3))
    np.testing.assert_array_equal(batch["tokens"], np.tile(TOKENS[:LENGTH], (3, 1)))


def test_seed_alone_decides_the_order():
    first, again, other = (starts(stream(seed=seed), WINDOWS) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_order_is_shuffled_over_the_whole_text():
    tokens = np.arange(1, 2006, dtype=np.int32)
    order = np.array(starts(stream(tokens=tokens), 2000))
    assert abs(np.corrcoef(order, np.arange(2000))[0, 1]) < 0.1
    assert np.mean(np.abs(np.diff(order)) > 100) > 0.8


def test_saved_and_set_state_gives_the_same_continuation():
    original = stream()
    for _ in range(8):
        next(original)
    state = json.loads(json.dumps(original.get_state()))
    continued = stream()
    continued.set_state(state)
    for _ in range(12):
        assert_batches_equal(next(original), next(continued))


def test_only_the_windows_of_rows_that_are_read_are_drawn(monkeypatch):
    drawn = []
    noted = lambda count, seed: lambda indices: drawn.extend(indices) or indices  # noqa: E731
    monkeypatch.setattr("data.text_windows.shuffled_order", noted)
    batches = shuffled_windows([np.arange(50)], 4, 16, seed=0)
    np.testing.assert_array_equal(next(iter(batches)).rows(np.array([3, 5]))["tokens"][:, 0], [3, 5])
    assert drawn == [3, 5]


def test_state_set_backwards_repeats_what_came_after_it():
    batches = stream()
    next(batches)
    state = batches.get_state()
    before = [next(batches) for _ in range(3)]
    batches.set_state(state)
    for batch in before:
        assert_batches_equal(batch, next(batches))


@pytest.mark.parametrize("length", [2, 5, 6, 7, 16, 17, 31, 40])
@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_evaluation_scores_each_token_but_the_first_exactly_once(length, batch_size):
    tokens = np.random.default_rng(length).integers(1, 9, size=length).astype(np.int32)
    batches = list(consecutive_windows([tokens], LENGTH, batch_size))
    assert all(x.shape == (batch_size, LENGTH) for batch in batches for x in batch.values())
    mask = np.concatenate([batch["loss_mask"] for batch in batches])
    np.testing.assert_array_equal(np.concatenate([batch["targets"] for batch in batches])[mask], tokens[1:])
    np.testing.assert_array_equal(np.concatenate([batch["tokens"] for batch in batches])[mask], tokens[:-1])


def test_evaluation_padding_holds_zeros_and_no_loss():
    batches = list(consecutive_windows([TOKENS[:13]], LENGTH, 2))
    np.testing.assert_array_equal(
        batches[-1]["tokens"], [[11, 12, 13, 0, 0], [0, 0, 0, 0, 0]], err_msg="the 13th token is the last target"
    )
    np.testing.assert_array_equal(batches[-1]["targets"][0, :2], [12, 13])
    np.testing.assert_array_equal(batches[-1]["loss_mask"], [[True, True, False, False, False], [False] * 5])
    assert len(batches) == 2


DOCUMENTS = [np.arange(100, 112), np.arange(200, 203), np.array([300]), np.arange(400, 410)]
"""Twelve tokens, three, one and ten: windows have six."""


def test_windows_of_several_documents_never_reach_from_one_into_the_next():
    count = (12 - LENGTH) + 1 + (10 - LENGTH)
    seen = []
    for batch in itertools.islice(stream(documents=DOCUMENTS, batch_size=1), count):
        tokens, targets, mask = (batch[name][0] for name in ("tokens", "targets", "loss_mask"))
        np.testing.assert_array_equal(targets[mask], tokens[mask] + 1)
        assert {token // 100 for token in targets[mask]} == {tokens[0] // 100}
        assert not targets[~mask].any()
        assert mask.sum() == (2 if tokens[0] == 200 else LENGTH)
        seen.append(int(tokens[0]))
    assert sorted(seen) == [*range(100, 107), 200, *range(400, 405)]


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_evaluation_of_several_documents_scores_each_token_but_their_first_once(batch_size):
    batches = list(consecutive_windows(DOCUMENTS, LENGTH, batch_size))
    assert all(x.shape == (batch_size, LENGTH) for batch in batches for x in batch.values())
    mask = np.concatenate([batch["loss_mask"] for batch in batches])
    targets, tokens = (np.concatenate([batch[name] for batch in batches]) for name in ("targets", "tokens"))
    np.testing.assert_array_equal(targets[mask], np.concatenate([document[1:] for document in DOCUMENTS]))
    np.testing.assert_array_equal(tokens[mask], np.concatenate([document[:-1] for document in DOCUMENTS]))
    assert not targets[~mask].any()


def test_a_data_set_without_a_vocabulary_says_so():
    with pytest.raises(TypeError, match=r"TextWindows makes no vocabulary: it does not define vocabulary_of\(\)"):
        TextWindows().load(0)
