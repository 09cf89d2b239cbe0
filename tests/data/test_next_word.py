import re

import numpy as np
import pytest

from data import DataError
from data.next_word import fixture_splits, read_prediction_fixture, read_prompts
from data.word_text import WordText
from jaxnlp.text.words import WordVocabulary

WINDOWS = np.arange(12, dtype=np.int64).reshape(3, 4)
NEXT = np.array([4, 8, 12])


def test_windows_and_the_words_that_follow_are_read(tmp_path):
    np.savez(tmp_path / "prediction.npz", inp=WINDOWS, out=NEXT)
    split = read_prediction_fixture(tmp_path / "prediction.npz", 13)
    assert {example.inputs.dtype for example in split.examples} == {np.dtype(np.int32)}
    np.testing.assert_array_equal([example.inputs for example in split.examples], WINDOWS)
    assert [example.target for example in split.examples] == NEXT.tolist()
    assert (split.scored, len(split.batches)) == (True, 0)


def test_prompts_are_read(tmp_path):
    np.save(tmp_path / "generation.npy", WINDOWS)
    split = read_prompts(tmp_path / "generation.npy", 12)
    assert {prompt.dtype for prompt in split.examples} == {np.dtype(np.int32)}
    np.testing.assert_array_equal(split.examples, WINDOWS)
    assert (split.scored, len(split.batches)) == (False, 0)


def test_the_ending_of_a_file_decides_what_it_is(tmp_path):
    np.savez(tmp_path / "a.npz", inp=WINDOWS, out=NEXT)
    np.save(tmp_path / "b.npy", WINDOWS)
    (tmp_path / "c.txt").write_text("w1 w2 w3")
    vocabulary = WordVocabulary([f"w{number}" for number in range(13)])
    windows, prompts, text = (WordText().read_file(tmp_path / name, vocabulary) for name in ("a.npz", "b.npy", "c.txt"))
    assert [example.target for example in windows.examples] == NEXT.tolist()
    np.testing.assert_array_equal(prompts.examples, WINDOWS)
    assert sum(batch["loss_mask"].sum() for batch in text.batches) == 2


def test_fixtures_are_splits(tmp_path):
    (tmp_path / "fixtures").mkdir()
    vocabulary = WordVocabulary([f"w{number}" for number in range(13)])
    assert fixture_splits(str(tmp_path), vocabulary) == {}
    np.savez(tmp_path / "fixtures" / "prediction.npz", inp=WINDOWS, out=NEXT)
    splits = fixture_splits(str(tmp_path), vocabulary)
    assert list(splits) == ["prediction"]
    assert len(splits["prediction"].examples) == 3
    (tmp_path / "fixtures" / "generation.npy").write_text("not an array")
    with pytest.raises(DataError, match=r"generation\.npy is not a plain NumPy array"):
        fixture_splits(str(tmp_path), vocabulary)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inp": WINDOWS}, "the array 'out' is missing; it has inp"),
        ({"inp": WINDOWS, "out": NEXT[:2]}, "inp has 3 windows, but out has 2 words; expected equal numbers"),
        ({"inp": WINDOWS, "out": NEXT[:, None]}, "out is of shape [3, 1], expected [N]"),
        ({"inp": WINDOWS[0], "out": NEXT}, "inp is of shape [4], expected [N, T]"),
        ({"inp": WINDOWS[:0], "out": NEXT[:0]}, "inp is empty"),
        ({"inp": WINDOWS.astype(np.float32), "out": NEXT}, "inp is of dtype float32, expected integers"),
        ({"inp": WINDOWS, "out": NEXT.astype(str)}, "out is of dtype <U21, expected integers"),
        ({"inp": WINDOWS + 2, "out": NEXT}, "inp[2, 3] is 13, outside the vocabulary of 13 words"),
        ({"inp": WINDOWS, "out": NEXT - 5}, "out[0] is -1, outside the vocabulary of 13 words"),
        ({"inp": WINDOWS.astype(object), "out": NEXT}, "it contains Python objects"),
    ],
)
def test_a_fixture_that_does_not_fit_is_refused_with_the_place(tmp_path, arrays, message):
    path = tmp_path / "prediction.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=re.escape(f"{path}: {message}")):
        read_prediction_fixture(path, 13)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (NEXT, ": prompts is of shape [3], expected [N, T]"),
        (WINDOWS + 5, ": prompts[2, 0] is 13, outside the vocabulary of 13 words"),
        (WINDOWS / 2, ": prompts is of dtype float64, expected integers"),
        (WINDOWS.astype(object), " is not a plain NumPy array: it contains Python objects"),
    ],
)
def test_prompts_that_do_not_fit_are_refused_with_the_place(tmp_path, prompts, message):
    path = tmp_path / "generation.npy"
    np.save(path, prompts)
    with pytest.raises(DataError, match=re.escape(f"{path}{message}")):
        read_prompts(path, 13)


def test_a_missing_fixture_is_named(tmp_path):
    for read, name in ((read_prediction_fixture, "prediction.npz"), (read_prompts, "generation.npy")):
        with pytest.raises(FileNotFoundError, match=re.escape(f"the NumPy file {tmp_path / name}")):
            read(tmp_path / name, 13)


@pytest.mark.realdata
def test_the_homeworks_fixtures_are_128_windows_and_32_prompts_of_20_words():
    corpus = WordText(source="cmu_hw4p1").load(0)
    windows, prompts = corpus.split("prediction"), corpus.split("generation")
    assert {example.inputs.shape for example in windows.examples} == {(20,)}
    assert {prompt.shape for prompt in prompts.examples} == {(20,)}
    assert (len(windows.examples), len(prompts.examples)) == (128, 32)
