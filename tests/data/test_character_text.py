import contextlib
import dataclasses
import itertools
import json
import re
from collections import Counter

import numpy as np
import pytest

from data import DataConfig, DataError
from data.character_text import CharacterText
from data.text_windows import consecutive_windows, shuffled_windows
from jaxnlp.text.characters import CharacterVocabulary

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


def text_config(folder, text, **changes):
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")
    return CharacterText(
        **{"source": "text_file", "path": str(path), "batch_size": 4, "sequence_length": 5, "evaluation_batch_size": 3}
        | changes
    )


def scored_text(corpus, split):
    """The text that a split's batches score, and the text that its targets follow."""
    batches = list(corpus.split(split).batches)
    masks = [batch["loss_mask"] for batch in batches]
    return tuple(
        corpus.processor.decode(
            itertools.chain.from_iterable(batch[name][mask] for batch, mask in zip(batches, masks, strict=True))
        )
        for name in ("targets", "tokens")
    )


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


def test_state_set_backwards_repeats_what_came_after_it():
    batches = stream()
    next(batches)
    state = batches.get_state()
    before = [next(batches) for _ in range(3)]
    batches.set_state(state)
    for batch in before:
        assert_batches_equal(batch, next(batches))


@pytest.mark.thorough
def test_worker_processes_give_the_same_batches_and_the_same_continuation():
    alone, workers = stream(), stream(num_workers=2)
    with contextlib.closing(workers):
        for _ in range(5):
            assert_batches_equal(next(alone), next(workers))
        state = json.loads(json.dumps(workers.get_state()))
        expected = [next(alone) for _ in range(3)]
        for _ in range(2):
            next(workers)
        workers.set_state(state)
        for batch in expected:
            assert_batches_equal(batch, next(workers))


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


def several_files(folder, texts, **changes):
    for name, text in texts.items():
        (folder / name).write_text(text)
    return text_config(folder, "", path=str(folder / "?.txt"), **changes)


def test_the_end_of_each_file_is_held_out(tmp_path):
    corpus = several_files(tmp_path, {"b.txt": "c" * 45 + "defgh", "a.txt": "a" * 90 + "b" * 10}).load(0)
    assert scored_text(corpus, "train")[0] == "a" * 89 + "c" * 44
    assert scored_text(corpus, "validation") == ("b" * 9 + "efgh", "b" * 9 + "defg")
    assert corpus.description == (
        "text_file: 2 files, each a document; 150 characters, 8 distinct; 135 for training, 15 for validation"
    )


def test_the_fingerprint_of_files_knows_where_one_ends(tmp_path):
    found = set()
    for number, texts in enumerate(
        [("ab" * 30, "ba" * 30), ("ab" * 30 + "b", "a" + "ba" * 29), ("ab" * 30 + "ba" * 30,)]
    ):
        (tmp_path / str(number)).mkdir()
        named = {f"{place}.txt": text for place, text in enumerate(texts)}
        found.add(several_files(tmp_path / str(number), named).load(0).fingerprint)
    assert len(found) == 3


def test_files_that_are_each_shorter_than_a_window_are_enough_together(tmp_path):
    corpus = several_files(tmp_path, {f"{letter}.txt": letter * 20 for letter in "abcdef"}, sequence_length=11).load(0)
    assert next(iter(corpus.train))["tokens"].shape == (4, 11)
    assert scored_text(corpus, "validation")[0] == "abcdef"


def test_text_is_split_by_position_nine_to_one(tmp_path):
    text = "".join(np.random.default_rng(0).choice(list("abcdé\n"), size=200))
    corpus = text_config(tmp_path, text).load(0)
    assert scored_text(corpus, "train") == (text[1:180], text[:179])
    assert scored_text(corpus, "validation") == (text[181:], text[180:199])


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_validation_fraction_moves_the_border(tmp_path, fraction):
    text = "ab" * 50 + "cd" * 50
    corpus = text_config(tmp_path, text, validation_fraction=fraction).load(0)
    border = int(200 * (1 - fraction))
    assert scored_text(corpus, "train")[0] == text[1:border]
    assert scored_text(corpus, "validation")[0] == text[border + 1 :]


def test_training_batches_never_show_the_validation_text(tmp_path):
    corpus = text_config(tmp_path, "ab" * 90 + "yz" * 10).load(0)
    seen = Counter()
    for batch in itertools.islice(corpus.train, 2 * 180 // 4):
        seen.update(corpus.processor.decode(np.concatenate([batch["tokens"].ravel(), batch["targets"].ravel()])))
    assert set(seen) == {"a", "b"}


def test_vocabulary_is_the_sorted_alphabet_of_both_parts(tmp_path):
    corpus = text_config(tmp_path, "ba\n" * 60 + "ßz" * 10).load(0)
    assert corpus.processor.characters == ("\n", "a", "b", "z", "ß")


def test_description_counts_characters_and_parts(tmp_path):
    description = text_config(tmp_path, "ab" * 1000).load(0).description
    assert description == "text_file: 2,000 characters, 2 distinct; 1,800 for training, 200 for validation"


@pytest.mark.parametrize(
    ("characters", "length", "part", "held"),
    [(50, 5, "validation", 5), (40, 36, "training", 36), (1, 5, "training", 0)],
)
def test_too_short_text_is_refused_with_both_lengths(tmp_path, characters, length, part, held):
    expected = f"the {part} text has {held} characters, but one window needs {length + 1}; .*--data.sequence-length"
    with pytest.raises(DataError, match=expected):
        text_config(tmp_path, "a" * characters, sequence_length=length).load(0)


def test_shortest_possible_text_loads(tmp_path):
    corpus = text_config(tmp_path, "ab" * 30).load(0)
    assert scored_text(corpus, "validation")[0] == "babab"


def test_fingerprint_tells_texts_apart_and_ignores_where_they_lie(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    here, there, other = (
        text_config(folder, text).load(0).fingerprint
        for folder, text in [(tmp_path, "ab" * 50), (tmp_path / "elsewhere", "ab" * 50), (tmp_path, "ab" * 49 + "ba")]
    )
    assert here == there != other


def test_unknown_split_is_named_beside_those_there_are(tmp_path):
    with pytest.raises(DataError, match="this data set does not have the split 'test'; it has: train, validation"):
        text_config(tmp_path, "ab" * 50).load(0).split("test")


def test_other_files_are_scored_with_the_same_vocabulary(tmp_path):
    config = text_config(tmp_path, "abc" * 50)
    vocabulary = config.load(0).processor
    path = tmp_path / "other.txt"
    path.write_text("cabbage"[:4] + "cab")
    batches = list(config.read_file(path, vocabulary).batches)
    scored = np.concatenate([batch["targets"][batch["loss_mask"]] for batch in batches])
    assert vocabulary.decode(scored) == "abbcab"


@pytest.mark.parametrize(
    ("text", "reason"), [("abx", r"not in the vocabulary of 2 characters: 'x'"), ("a", "has one character")]
)
def test_file_that_cannot_be_scored_is_named(tmp_path, text, reason):
    path = tmp_path / "other.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=f"{re.escape(str(path))}.*{reason}"):
        text_config(tmp_path, "ab" * 50).read_file(path, CharacterVocabulary("ab"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("batch_size", 0, "data.batch_size must be at least 1, got 0"),
        ("sequence_length", 0, "data.sequence_length must be at least 1, got 0"),
        ("evaluation_batch_size", -1, "data.evaluation_batch_size must be at least 1, got -1"),
        ("validation_fraction", 0.0, "data.validation_fraction must be in (0, 1), got 0.0"),
        ("validation_fraction", 1.0, "data.validation_fraction must be in (0, 1), got 1.0"),
        ("num_workers", -1, "data.num_workers must be at least 0, got -1"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(field, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CharacterText(**{field: value})


def test_config_without_a_loader_says_so():
    @dataclasses.dataclass(frozen=True)
    class Empty(DataConfig):
        pass

    with pytest.raises(TypeError, match=r"Empty cannot be loaded: it does not define load\(\)"):
        Empty().load(0)


@pytest.mark.realdata
def test_tiny_shakespeare_is_split_as_nanogpt_splits_it():
    corpus = CharacterText(source="tiny_shakespeare").load(0)
    assert corpus.processor.size == 65
    assert corpus.description.endswith("1,003,854 for training, 111,540 for validation")
