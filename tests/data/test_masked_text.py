import functools
import itertools
import math
from collections import Counter

import numpy as np
import pytest

from jaxnlp.text.wordpiece import CLS, MASK, PAD, SEP, SPECIAL
from tests.data.masked_text_helpers import (
    DOCUMENTS,
    IDS,
    PIECES,
    SENTENCES,
    TEXT,
    VOCABULARY,
    config,
    first_batches,
    rows_of,
    same,
    texts_of,
    words_of,
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Two thousand examples."""
    path = tmp_path_factory.mktemp("masked") / "text.txt"
    path.write_text(TEXT)
    return rows_of(first_batches(config(path, batch_size=100).load(0, VOCABULARY), 20))


def marks_of(pieces, letter):
    """Numbers in the marks d0, d1, ... or s0, s1, ... of a text."""
    return [int(piece[1:]) for piece in pieces if piece[0] == letter and piece[1:].isdigit()]


@functools.cache
def pieces_of(*sentences):
    """Of sentences, each by its document and number, one after the other."""
    return VOCABULARY.tokens(VOCABULARY.encode(" ".join(" ".join(words_of(*sentence)) for sentence in sentences)))


def within_five_sigma(successes, trials, share):
    return abs(successes - trials * share) < 5.0 * math.sqrt(trials * share * (1.0 - share))


def test_batches_have_the_stated_fields_types_and_shapes(file):
    settings = config(file)
    batch = first_batches(settings.load(0, VOCABULARY), 1)[0]
    predictions = settings.predictions
    assert predictions == 8  # 0.15 x 48 = 7.2, rounded up
    assert {name: (value.shape, value.dtype.name) for name, value in batch.items()} == {
        "tokens": ((4, 48), "int32"),
        "segments": ((4, 48), "int32"),
        "attention_mask": ((4, 48), "bool"),
        "positions": ((4, predictions), "int32"),
        "targets": ((4, predictions), "int32"),
        "predicted": ((4, predictions), "bool"),
        "follows": ((4,), "int32"),
        "loss_mask": ((4,), "bool"),
    }
    assert batch["loss_mask"].all()


@pytest.mark.thorough
def test_an_example_is_two_texts_between_special_tokens_with_segments_and_padding(rows):
    for row in rows:
        length = row["attention_mask"].sum()
        assert row["attention_mask"][:length].all()
        original = row["original"]
        assert original[0] == IDS[CLS]
        (first, last) = np.flatnonzero(original == IDS[SEP])
        assert 1 < first < last - 1
        assert last == length - 1
        assert not (original[:length] == IDS[PAD]).any()
        assert not (original == IDS[MASK]).any()
        assert not original[length:].any()
        places = np.arange(len(original))
        np.testing.assert_array_equal(row["segments"], (places > first) & (places <= last))


def test_half_of_the_second_texts_follow_and_the_others_are_of_another_document(rows):
    follows = np.array([row["follows"] for row in rows])
    assert set(follows) == {0, 1}
    assert within_five_sigma(follows.sum(), len(rows), 0.5)
    for row in rows:
        first, second = texts_of(row)
        document, sentence = int(second[0][1:]), int(second[1][1:])  # B begins with a whole sentence
        assert sentence > 0
        if row["follows"]:
            before = pieces_of(*((document, number) for number in range(sentence)))
            assert first == before[-len(first) :]
        else:
            assert document not in marks_of(first, "d")
        after = pieces_of(*((document, number) for number in range(sentence, SENTENCES)))
        assert second == after[: len(second)]


@pytest.mark.thorough
def test_lengths_do_not_tell_whether_a_text_follows(tmp_path):
    """Of documents and sentences long and short: the best threshold on a length is barely better than a guess."""
    path = tmp_path / "text.txt"
    generator = np.random.default_rng(0)
    sentences = [
        [words_of(d, s) * generator.integers(1, 8) for s in range(generator.integers(2, 40))] for d in range(60)
    ]
    path.write_text("\n".join("".join(" ".join(words) + "\n" for words in document) for document in sentences))
    found = rows_of(first_batches(config(path, batch_size=100, sequence_length=128).load(0, VOCABULARY), 40))
    follows = np.array([row["follows"] == 1 for row in found])
    lengths = np.array([[len(text) for text in texts_of(row)] for row in found])
    for measure in (lengths[:, 0], lengths[:, 1], lengths.sum(axis=1), lengths[:, 0] - lengths[:, 1]):
        told = [((measure >= threshold) == follows).mean() for threshold in range(measure.min(), measure.max())]
        assert max(*told, *(1.0 - share for share in told)) < 0.55


def test_every_sentence_that_another_one_follows_begins_an_example_once_an_epoch(file):
    settings = config(file, batch_size=1, sequence_length=512)
    corpus = settings.load(0, VOCABULARY)
    train = settings.load(1, VOCABULARY)
    held_out = {mark for row in rows_of(corpus.split("validation").batches) for mark in marks_of(texts_of(row)[0], "d")}
    expected = [(d, s) for d in range(DOCUMENTS) if d not in held_out for s in range(SENTENCES - 1)]

    def epochs(corpus):
        found = []
        for row in rows_of(first_batches(corpus, 2 * len(expected))):
            first, _ = texts_of(row)
            found.append((marks_of(first, "d")[0], marks_of(first, "s")[0]))
        return found[: len(expected)], found[len(expected) :]

    first, second = epochs(corpus)
    assert sorted(first) == sorted(second) == expected
    assert first != second
    assert epochs(train)[0] != first


def test_texts_are_cut_where_they_lie_farthest_apart(file):
    short = rows_of(first_batches(config(file, sequence_length=11, batch_size=64).load(0, VOCABULARY), 4))
    for row in short:
        first, second = texts_of(row)  # all sentences have five pieces or more
        assert len(first) == 4
        document, sentence = int(second[0][1:]), int(second[1][1:])
        assert second == pieces_of((document, sentence))[: len(second)]
        if row["follows"]:
            assert first == pieces_of((document, sentence - 1))[-4:]
    for length in (2, 3, 4):
        assert within_five_sigma(sum(len(texts_of(row)[1]) == length for row in short), len(short), 1 / 3)


def test_the_end_of_a_second_text_does_not_tell_whether_it_follows(rows):
    """Whether it ends with a sentence: a text that replaces another is truncated to its length."""
    ends = {
        follows: [ends_a_sentence(texts_of(row)[1]) for row in rows if row["follows"] == follows] for follows in (0, 1)
    }
    share = np.mean(ends[0] + ends[1])
    assert all(within_five_sigma(sum(found), len(found), share) for found in ends.values())


def ends_a_sentence(text):
    begin = max(i for i, piece in enumerate(text) if piece[0] == "d" and piece[1:].isdigit())
    return len(text) > begin + 1 and text[begin:] == pieces_of((int(text[begin][1:]), int(text[begin + 1][1:])))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("whole_word_masking", [False, True])
@pytest.mark.parametrize("mask_rate", [0.15, 0.4])
def test_the_stated_share_of_pieces_is_predicted_and_no_special_one(file, mask_rate, whole_word_masking):
    settings = config(file, batch_size=100, mask_rate=mask_rate, whole_word_masking=whole_word_masking)
    found = rows_of(first_batches(settings.load(0, VOCABULARY), 10))
    predicted = np.array([len(row["chosen"]) for row in found])
    words = np.array([row["attention_mask"].sum() - 3 for row in found])
    for row, count in zip(found, words, strict=True):
        assert len(row["chosen"]) <= math.ceil(mask_rate * count)
        assert (np.diff(row["chosen"]) > 0).all()
        targets = row["targets"][row["predicted"]]
        assert not np.isin(targets, [IDS[piece] for piece in SPECIAL]).any()
        assert row["predicted"][: len(row["chosen"])].all()
        assert not row["predicted"][len(row["chosen"]) :].any()
        assert not row["positions"][len(row["chosen"]) :].any()
    # A row's number is rounded up or down by chance: a variance of 1/4 at most.
    spread = 5.0 * math.sqrt(len(found) / 4.0)
    assert predicted.sum() < mask_rate * words.sum() + spread
    # A word of more pieces than are left to predict is passed over, which may leave one or two at the end of a row.
    missing = 0.2 * len(found) if whole_word_masking else 0.0
    assert predicted.sum() > mask_rate * words.sum() - spread - missing


def test_any_place_is_as_likely_as_another(rows):
    counts, possible = np.zeros(48), np.zeros(48)
    for row in rows:
        counts[row["chosen"]] += 1
        possible += ~np.isin(row["original"], [IDS[piece] for piece in (CLS, SEP, PAD)])
    assert counts[0] == possible[0] == 0
    assert (possible[1:46] > 250).all()
    assert all(within_five_sigma(*pair, 0.15) for pair in zip(counts[1:46], possible[1:46], strict=True))


def test_predicted_pieces_are_masked_replaced_and_kept_at_the_stated_rates(rows):
    read = np.concatenate([row["tokens"][row["chosen"]] for row in rows])
    targets = np.concatenate([row["targets"][row["predicted"]] for row in rows])
    masked, kept = (read == IDS[MASK]).sum(), (read == targets).sum()
    ordinary = len(PIECES) - len(SPECIAL)
    # A random piece is now and then the piece itself.
    assert within_five_sigma(masked, len(read), 0.8)
    assert within_five_sigma(kept, len(read), 0.1 + 0.1 / ordinary)
    assert within_five_sigma(len(read) - masked - kept, len(read), 0.1 - 0.1 / ordinary)
    random = Counter(read[(read != IDS[MASK]) & (read != targets)].tolist())
    assert not random.keys() & {IDS[piece] for piece in SPECIAL}
    assert len(random) == ordinary
    expected = sum(random.values()) / ordinary
    assert all(abs(count - expected) < 6.0 * math.sqrt(expected) for count in random.values())


def test_pieces_that_are_not_predicted_are_those_of_the_text(rows):
    assert all(marks_of(VOCABULARY.tokens(row["original"]), "d") for row in rows)
    sentences = {
        tuple(VOCABULARY.encode(" ".join(words_of(d, s))).tolist()) for d in range(DOCUMENTS) for s in range(SENTENCES)
    }
    for row in rows[:200]:
        first, second = texts_of(row)
        ids = [IDS[piece] for piece in first + second]
        starts = [i for i, piece in enumerate(first + second) if piece.startswith("d") and piece[1:].isdigit()]
        *parts, last = [tuple(ids[a:b]) for a, b in itertools.pairwise([*starts, len(ids)])]
        assert set(parts) <= sentences
        assert any(sentence[: len(last)] == last for sentence in sentences)


def words_in(row):
    """The number of each piece's word."""
    return np.cumsum([not piece.startswith("##") for piece in VOCABULARY.tokens(row["original"])])


@pytest.mark.thorough
def test_whole_word_masking_are_predicted_whole(file):
    settings = config(file, batch_size=100, whole_word_masking=True)
    several = parted = 0
    for row in rows_of(first_batches(settings.load(0, VOCABULARY), 5)):
        word = words_in(row)
        chosen = set(row["chosen"].tolist())
        for number in set(word[row["chosen"]].tolist()):
            # Where A is cut it may begin within a word.
            pieces = [int(i) for i in np.flatnonzero(word == number) if i != 0]
            assert set(pieces) <= chosen
            several += len(pieces) > 1
    assert several > 250
    for row in rows_of(first_batches(config(file, batch_size=100).load(0, VOCABULARY), 5)):
        word = words_in(row)
        parted += any(len(np.flatnonzero(word == n)) > np.sum(word[row["chosen"]] == n) for n in word[row["chosen"]])
    assert parted > 100


def test_a_seed_gives_the_same_batches_and_another_seed_others(file):
    first = first_batches(config(file).load(3, VOCABULARY), 5)
    same(first_batches(config(file).load(3, VOCABULARY), 5), first)
    other = first_batches(config(file).load(4, VOCABULARY), 5)
    assert any((a["tokens"] != b["tokens"]).any() for a, b in zip(first, other, strict=True))


def test_an_epoch_draws_lengths_partners_and_masks_again(file):
    corpus = config(file, batch_size=1, sequence_length=512).load(0, VOCABULARY)
    starts = (DOCUMENTS - 2) * (SENTENCES - 1)
    by_start = [{}, {}]
    for number, row in enumerate(rows_of(first_batches(corpus, 2 * starts))):
        first, _ = texts_of(row)
        by_start[number // starts][marks_of(first, "d")[0], marks_of(first, "s")[0]] = row
    assert by_start[0].keys() == by_start[1].keys()
    pairs = [(row, by_start[1][start]) for start, row in by_start[0].items()]
    assert sum(row["follows"] != other["follows"] for row, other in pairs) > 20  # of 80, expected: 40
    assert sum(len(texts_of(row)[0]) != len(texts_of(other)[0]) for row, other in pairs) > 20
    assert all(row["chosen"].tolist() != other["chosen"].tolist() for row, other in pairs if len(row["chosen"]) > 4)


@pytest.mark.parametrize("whole_word_masking", [False, True])
def test_saved_and_set_state_gives_the_same_continuation(file, whole_word_masking):
    settings = config(file, whole_word_masking=whole_word_masking)
    batches = iter(settings.load(0, VOCABULARY).train)
    for _ in range(25):  # into the second epoch
        next(batches)
    state, expected = batches.get_state(), [next(batches) for _ in range(4)]
    again = iter(settings.load(0, VOCABULARY).train)
    again.set_state(state)
    same([next(again) for _ in range(4)], expected)


def test_held_out_documents_and_their_masks_are_fixed_and_never_trained_on(file):
    settings = config(file)
    corpus = settings.load(0, VOCABULARY)
    batches = corpus.split("validation").batches
    same(list(batches), list(batches))
    same(list(settings.load(1, VOCABULARY).split("validation").batches), list(batches))
    held_out = rows_of(batches)
    documents = {mark for row in held_out for text in texts_of(row) for mark in marks_of(text, "d")}
    assert len(documents) == 2  # a tenth of twelve, and two at least
    trained = {
        mark for row in rows_of(first_batches(corpus, 60)) for text in texts_of(row) for mark in marks_of(text, "d")
    }
    assert trained == set(range(DOCUMENTS)) - documents
    # Each sentence is in one chunk, and where the second text follows, both texts are that chunk.
    begun = [(marks_of(a, "d"), marks_of(a, "s")) for a, _ in map(texts_of, held_out)]
    numbers = [(d[-1], s) for d, s in begun if d for s in s]
    assert len(set(numbers)) == len(numbers)
    last = list(batches)[-1]
    assert not last["loss_mask"].all()
    assert not last["tokens"][~last["loss_mask"]].any()
    assert len(held_out) > 4
