import numpy as np
import pytest

from data import DataError
from data.readers.held_out import folds_of, held_out_note, hold_out, with_training_rows


def test_a_tenth_is_held_out_in_order_and_always_the_same():
    sentences = [f"s{number:02}" for number in range(37)]
    train, held_out = hold_out(sentences, "x")
    assert len(held_out) == 3
    assert sorted(train + held_out) == sentences
    assert (sorted(train), sorted(held_out)) == (train, held_out)
    assert held_out != sentences[-3:]
    assert hold_out(sentences, "x") == (train, held_out)


def test_few_sentences_are_refused():
    with pytest.raises(
        DataError,
        match=r"^x: expected at least 10 sentences, .*, got 9 .*empty line ends.*; give more, or a",
    ):
        hold_out(["a"] * 9, "x")
    assert len(hold_out(["a"] * 10, "x")[1]) == 1


def test_the_note_has_the_numbers_and_the_file():
    assert held_out_note(1, 1_000, "x.txt") == (
        "held out for validation: 1 of the 1,000 sentences of x.txt, because --data.validation is not given"
    )


def test_folds_are_equally_large_in_each_stratum_and_single_rows_are_in_none():
    folds = np.array(folds_of(["a"] * 20 + ["b"] * 10 + ["c"], 5, 0))
    assert np.bincount(folds[:20]).tolist() == [4] * 5
    assert np.bincount(folds[20:30]).tolist() == [2] * 5
    assert folds[30] == -1


def test_each_class_has_a_training_row_whatever_fold_is_held_out():
    classes = [(0,), (0, 1), (0, 2), (2,), (), (0, 3), (0, 3)]
    assert with_training_rows([0, 1, 1, 1, 0, 2, 1], classes) == [0, -1, -1, 1, 0, 2, 1]
