import gzip
import re

import numpy as np
import pytest

from jaxnlp.text.word_vectors import read_word_vectors

WORDS = ("[PAD]", "film", "naïve", "unseen", "dull")
LINES = ["the 1 2 3", "film 0.5 -1 2e-1", "naïve 4 5 6", "film 9 9 9", "dull -3 0 1"]


def written(folder, lines, name="vectors.txt"):
    path = folder / name
    content = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n"
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["glove.txt", "word2vec.vec.gz"])
def test_words_have_the_vectors_of_the_file_in_the_order_of_the_vocabulary(tmp_path, name):
    # word2vec begins with a header, and ends lines with a blank.
    lines = LINES if name == "glove.txt" else ["5 3", *(line + " " for line in LINES)]
    vectors, found = read_word_vectors(written(tmp_path, lines, name), WORDS)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(found, [False, True, True, False, True])
    np.testing.assert_allclose(vectors[found], [[0.5, -1, 0.2], [4, 5, 6], [-3, 0, 1]], rtol=1e-6)


def test_words_with_accents_are_found_in_either_normal_form(tmp_path):
    vectors, found = read_word_vectors(
        written(tmp_path, ["cafe\u0301 1 2", "no\u00ebl 3 4"]), ["no\u00ebl", "caf\u00e9"]
    )
    assert found.all()
    assert vectors.tolist() == [[3, 4], [1, 2]]


def test_words_that_the_file_lacks_have_random_vectors_of_the_same_variance(tmp_path):
    generator = np.random.default_rng(0)
    lines = [f"w{n} {' '.join(map(str, generator.normal(scale=0.7, size=50)))}" for n in range(40)]
    words, path = [f"w{n}" for n in range(80)], written(tmp_path, lines)
    vectors, found = read_word_vectors(path, words)
    known, unknown = vectors[found], vectors[~found]
    assert known.shape == unknown.shape == (40, 50)
    np.testing.assert_allclose(unknown.var(), known.var(), rtol=0.05)
    assert np.abs(unknown).max() <= np.sqrt(3 * known.var()) * (1 + 1e-6)  # uniform
    np.testing.assert_array_equal(read_word_vectors(path, words).vectors, vectors)
    assert (read_word_vectors(path, words, seed=1).vectors[~found] != unknown).any()


def test_a_word_may_contain_blanks_and_the_file_a_byte_order_mark(tmp_path):
    path = written(tmp_path, [b"\xef\xbb\xbffilm 1 2", ". . . 3 4", "at name@x.com 5 6", "dull\t7  8"])
    vectors, found = read_word_vectors(path, ("film", ". . .", "dull"))
    assert found.all()
    np.testing.assert_array_equal(vectors, [[1, 2], [3, 4], [7, 8]])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*LINES, "good 1 2"], "line 6: expected a word and 3 numbers, got 3 columns: 'good 1 2'"),
        ([*LINES, "good 1 2 3 4"], "line 6: expected a word and 3 numbers, got 5 columns: 'good 1 2 3 4'"),
        (["5 3", *LINES[:2], ""], "line 4: expected a word and 3 numbers, got 0 columns: ''"),
        (["the 1 2 3", "film 1 x 3"], "line 2: number 2 must be a finite number up to 1e+15, got 'x'"),
        (["the 1 2 3", "film 1 2 nan"], "line 2: number 3 must be a finite number up to 1e+15, got 'nan'"),
        (["the 1 2 3", "film 1 1e39 3"], "line 2: number 2 must be a finite number up to 1e+15, got '1e39'"),
        (["the 1 2 3", "film 1 1_0 3"], "line 2: number 2 must be a finite number up to 1e+15, got '1_0'"),
        (["2 1000000000000000000", "film 1 2 3"], "line 2: expected a word and 1000000000000000000 numbers, got 4"),
        ([*LINES, b"na\xefve 1 2 3"], "line 6: byte 0xef is not UTF-8"),
        (["film"], "line 1: expected a word and its numbers, got 'film'"),
        (["6 3", *LINES], "has 5 vectors, but its first line says 6: the file may be truncated"),
        (["the 1 2 3"], "has none of the 5 words of the vocabulary, such as '[PAD]', 'film', 'naïve'"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, lines, message):
    path = written(tmp_path, lines)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_word_vectors(path, WORDS)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_is_missing_empty_or_damaged_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"file of word vectors {tmp_path / 'no'} does not exist")):
        read_word_vectors(tmp_path / "no", WORDS)
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    with pytest.raises(ValueError, match="empty is empty"):
        read_word_vectors(empty, WORDS)
    whole = gzip.compress("\n".join(LINES).encode())
    for content in (b"film 1 2 3", whole[:-12], whole[:-8] + b"12345678"):
        damaged = tmp_path / "damaged.gz"
        damaged.write_bytes(content)
        with pytest.raises(ValueError, match=r"damaged\.gz is not a gzip file, or is damaged"):
            read_word_vectors(damaged, WORDS)
