import itertools

import numpy as np
import pytest

from data import Split
from data.pipelines.text_batches import labelled_split, split_of_parts, tokenized, training_batches
from jaxnlp.text.labels import TextExample
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat", "sat"])
ROWS = [TextExample(str(n), " ".join(["the"] * (1 + n % 3)), " ".join(["cat"] * (1 + n % 5)), n / 2) for n in range(7)]
OPTIONS = {"batch_size": 3, "multiple": 2, "max_length": 6}


def test_pairs_become_two_texts_and_truncated_ones_are_counted():
    examples, truncated = tokenized(ROWS, "part", VOCABULARY, 6)
    assert [len(example.texts) for example in examples] == [2] * 7
    assert [example.length for example in examples] == [min(6, 2 + max(1 + n % 3, 1 + n % 5)) for n in range(7)]
    assert truncated == sum(1 + n % 5 > 4 for n in range(7))
    singles = [TextExample("0", "the cat", None, None)]
    assert [(len(one.texts), one.label) for one in tokenized(singles, "part", VOCABULARY, 6)[0]] == [(1, 0.0)]


def test_a_split_is_sorted_by_length_and_says_where_its_rows_are():
    split = labelled_split(ROWS, "part", VOCABULARY, **OPTIONS)
    labels = np.concatenate([batch["part"][batch["loss_mask"]] for batch in split.batches])
    assert labels.tolist() == [split.examples[number].label for number in split.rows]
    lengths = [batch["tokens"].shape[2] for batch in split.batches]
    assert lengths == sorted(lengths)
    assert set(lengths) <= {2, 4, 6}
    assert [int(batch["loss_mask"].sum()) for batch in split.batches] == [3, 3, 1]
    assert split.notes == ("1 text was truncated to 6 tokens",)
    assert labelled_split(ROWS, "part", VOCABULARY, **OPTIONS | {"max_length": 9}).notes == ()


def test_batches_of_a_split_of_parts_are_those_of_its_scored_parts():
    scored, unscored = Split(batches=({"a": np.zeros(1)},)), Split(batches=({"b": np.zeros(1)},), scored=False)
    both = split_of_parts({"a": scored, "b": unscored})
    assert (both.batches, both.scored) == (scored.batches, True)
    assert not split_of_parts({"b": unscored}).scored


def test_the_notes_of_several_parts_name_their_part():
    parts = {"sst": Split(notes=("1 text was truncated to 6 tokens",)), "sts": Split(notes=("another",))}
    assert split_of_parts(parts).notes == ("sst: 1 text was truncated to 6 tokens", "sts: another")
    assert split_of_parts({"sst": parts["sst"]}).notes == parts["sst"].notes


@pytest.mark.thorough
def test_training_has_every_example_once_an_epoch():
    examples, _ = tokenized(ROWS, "part", VOCABULARY, 6)
    batches = training_batches(examples, 1, order_seed=0, pool_seed=0, multiple=2, max_length=6)
    seen = [float(batch["part"][0]) for batch in itertools.islice(batches, 16 * 7)]
    assert sorted(seen) == sorted([row.label for row in ROWS] * 16)
