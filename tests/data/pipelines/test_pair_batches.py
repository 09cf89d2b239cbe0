import itertools

import numpy as np
import pytest

from data.pipelines.buckets import rows_of
from data.pipelines.pair_batches import (
    encoded,
    padding_share,
    pair_batch,
    pair_buckets,
    pairs_split,
    vocabulary_note,
)
from jaxnlp.text.subwords import END, START, UNKNOWN, Subwords
from jaxnlp.text.translation import SentencePair, TranslationProcessor

BUCKETS, SIZE = pair_buckets((4, 8, 16)), rows_of(32, 6)
CHARACTERS = Subwords("characters", tuple("abcdefghij"))
PROCESSOR = TranslationProcessor(CHARACTERS, CHARACTERS)


@pytest.fixture(scope="module")
def pairs():
    generator = np.random.default_rng(0)
    sides = [["".join(generator.choice(list("abcdefghij"), n)) for n in generator.integers(1, 16, 101)] for _ in "st"]
    return [SentencePair(*both) for both in zip(*sides, strict=True)]


@pytest.fixture(scope="module")
def ids(pairs):
    return [encoded(pair, PROCESSOR) for pair in pairs]


def split_of(pairs, **options):
    return pairs_split(pairs, [encoded(pair, PROCESSOR) for pair in pairs], BUCKETS, SIZE, **options)


def texts(batch):
    real = batch["loss_mask"].any(axis=1)
    assert (batch["source_mask"].any(axis=1) == real).all()
    return [
        (CHARACTERS.decode(source), CHARACTERS.decode(target))
        for source, target in zip(batch["source"][real], batch["targets"][real], strict=True)
    ]


def test_pretrained_vocabularies_have_their_own_symbols():
    batch = pair_batch([([5, 6, 1], [7, 1])], 1, 4, start=0)
    assert batch["inputs"].tolist() == [[0, 7, 0, 0]]
    assert batch["targets"].tolist() == [[7, 1, 0, 0]]
    buckets = pair_buckets((4, 8, 16), start=9)
    split = pairs_split([SentencePair("a", "b")], [([5] * 20 + [1], [7, 1])], buckets, SIZE)
    (batch,) = split.batches
    assert batch["source"][0].tolist() == [5] * 15 + [1]
    assert batch["inputs"][0, :2].tolist() == [9, 7]


def test_inputs_begin_with_start_and_targets_end_with_end():
    batch = pair_batch([([5, 6, END], [7, END]), ([END], [8, 9, 4, END])], 6, 4)
    assert batch["source"].tolist() == [[5, 6, END, 0], [END, 0, 0, 0], *[[0] * 4] * 4]
    assert batch["source_mask"][:2].tolist() == [[True, True, True, False], [True, False, False, False]]
    assert batch["inputs"][:2].tolist() == [[START, 7, 0, 0], [START, 8, 9, 4]]
    assert batch["targets"][:2].tolist() == [[7, END, 0, 0], [8, 9, 4, END]]
    assert batch["loss_mask"][:2].tolist() == [[True, True, False, False], [True] * 4]
    assert {name: (value.shape, value.dtype) for name, value in batch.items()} == {
        "source": ((6, 4), np.int32),
        "source_mask": ((6, 4), bool),
        "inputs": ((6, 4), np.int32),
        "targets": ((6, 4), np.int32),
        "loss_mask": ((6, 4), bool),
    }
    assert not any(value[2:].any() for value in batch.values())


def test_an_epoch_has_each_pair_once(pairs, ids):
    batches, _ = BUCKETS.one_pass(ids, SIZE)
    endless = BUCKETS.epochs_of_same(ids, SIZE, seed=0)
    epochs = itertools.islice(endless, 2 * len(batches))
    assert sorted(found for batch in epochs for found in texts(batch)) == sorted(
        2 * [(pair.source, pair.reference) for pair in pairs]
    )


def test_padding_is_the_share_of_cells_without_a_token(ids):
    batches, _ = BUCKETS.one_pass(ids, SIZE)
    masks = np.concatenate([batch[name].ravel() for batch in batches for name in ("source_mask", "loss_mask")])
    assert padding_share(ids, BUCKETS, SIZE) == pytest.approx(1 - masks.mean())


def test_a_split_has_every_pair_and_says_where_its_rows_are(pairs):
    split = split_of(pairs)
    rows = [found for batch in split.batches for found in texts(batch)]
    assert rows == [(split.examples[n].source, split.examples[n].reference) for n in split.rows]
    assert sorted(split.rows) == list(range(len(pairs)))
    assert (split.scored, split.notes, split.examples) == (True, (), tuple(pairs))


def test_long_pairs_of_a_split_are_truncated_and_counted():
    split = split_of([SentencePair("a" * 20, "b"), SentencePair("a", "b")])
    assert split.notes == ("1 pair was truncated to 16 tokens per side, the first in line 1",)
    assert [found for batch in split.batches for found in texts(batch)] == [("a", "b"), ("a" * 15, "b")]
    assert split.rows.tolist() == [1, 0]


def test_the_note_of_truncated_pairs_names_the_first_line_and_its_file():
    for lines, first in (((0, 0, 0), 2), ((3, 1_700, 12), "1,700")):
        texts = (("a", "b"), ("a", "b" * 20), ("a" * 20, "b"))
        pairs = [SentencePair(*pair, line) for pair, line in zip(texts, lines, strict=True)]
        (note,) = split_of(pairs, file="dev.en").notes
        assert note == f"2 pairs were truncated to 16 tokens per side, the first in line {first} of dev.en"


def test_the_share_of_unknown_tokens_is_named_above_one_percent():
    pairs = [([5] * 98 + [END], [END])]
    assert vocabulary_note(PROCESSOR, pairs, saved=False) == "14 tokens in the vocabulary"
    two = TranslationProcessor(CHARACTERS, Subwords("words", ("a",)))
    pairs = [([5] * 95 + [UNKNOWN] * 3 + [END], [END])]
    expected = "14 and 5 tokens in the vocabularies; 3% of the training tokens are unknown"
    assert vocabulary_note(two, pairs, saved=False) == expected
    assert "an earlier run" in vocabulary_note(two, pairs, saved=True)


def test_pairs_without_a_reference_are_not_scored():
    split = split_of([SentencePair("ab"), SentencePair("c")])
    assert not split.scored
    assert [found for batch in split.batches for found in texts(batch)] == [("c", ""), ("ab", "")]
