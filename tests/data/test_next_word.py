import os
import re
from pathlib import Path

import numpy as np
import pytest

from data import DataError
from data.next_word import read_prediction_fixture, read_prompts

WINDOWS = np.arange(12, dtype=np.int64).reshape(3, 4)
NEXT = np.array([4, 8, 12])


def test_windows_and_the_words_that_follow_are_read(tmp_path):
    np.savez(tmp_path / "prediction.npz", inp=WINDOWS, out=NEXT)
    inputs, targets = read_prediction_fixture(tmp_path / "prediction.npz", 13)
    assert (inputs.dtype, targets.dtype) == (np.int32, np.int32)
    np.testing.assert_array_equal(inputs, WINDOWS)
    np.testing.assert_array_equal(targets, NEXT)


def test_prompts_are_read(tmp_path):
    np.save(tmp_path / "generation.npy", WINDOWS)
    prompts = read_prompts(tmp_path / "generation.npy", 12)
    assert prompts.dtype == np.int32
    np.testing.assert_array_equal(prompts, WINDOWS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inp": WINDOWS}, "no array 'out' is in it; it has inp"),
        ({"inp": WINDOWS, "out": NEXT[:2]}, "inp holds 3 windows, but out 2 words; expected as many"),
        ({"inp": WINDOWS, "out": NEXT[:, None]}, "out is of shape [3, 1], expected [N]"),
        ({"inp": WINDOWS[0], "out": NEXT}, "inp is of shape [4], expected [N, T]"),
        ({"inp": WINDOWS[:0], "out": NEXT[:0]}, "inp is empty"),
        ({"inp": WINDOWS.astype(np.float32), "out": NEXT}, "inp is of dtype float32, expected integers"),
        ({"inp": WINDOWS, "out": NEXT.astype(str)}, "out is of dtype <U21, expected integers"),
        ({"inp": WINDOWS + 2, "out": NEXT}, "inp[2, 3] is 13, outside the vocabulary of 13 words"),
        ({"inp": WINDOWS, "out": NEXT - 5}, "out[0] is -1, outside the vocabulary of 13 words"),
        ({"inp": WINDOWS.astype(object), "out": NEXT}, "it holds Python objects"),
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
        (WINDOWS.astype(object), " holds no plain NumPy array: it holds Python objects"),
    ],
)
def test_prompts_that_do_not_fit_are_refused_with_the_place(tmp_path, prompts, message):
    path = tmp_path / "generation.npy"
    np.save(path, prompts)
    with pytest.raises(DataError, match=re.escape(f"{path}{message}")):
        read_prompts(path, 13)


def test_a_missing_fixture_is_named(tmp_path):
    for read, name in ((read_prediction_fixture, "prediction.npz"), (read_prompts, "generation.npy")):
        with pytest.raises(FileNotFoundError, match=re.escape(f"no NumPy file at {tmp_path / name}")):
            read(tmp_path / name, 13)


@pytest.mark.realdata
def test_the_homeworks_fixtures_are_128_windows_and_32_prompts_of_20_words():
    folder = Path(os.environ["JAXNLP_DATA"]) / "cmu11785_hw4p1" / "fixtures"
    inputs, targets = read_prediction_fixture(folder / "prediction.npz", 33_278)
    assert (inputs.shape, targets.shape) == ((128, 20), (128,))
    assert read_prompts(folder / "generation.npy", 33_278).shape == (32, 20)
