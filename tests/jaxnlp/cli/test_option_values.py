import re
from pathlib import Path
from typing import Literal

import pytest

from jaxnlp.cli.option_values import metavar, read_value, takes_several

FILES = str | tuple[str, ...] | None
SLOPE = tuple[float, float] | None
SIZES = tuple[int, ...]
CHECKPOINT = int | Literal["best", "latest"]
PARTS = tuple[Literal["sst", "sts"], ...]


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [
        (int, ["3"], 3),
        (float | None, ["3"], 3.0),
        (float | None, ["None"], None),
        (Path, ["a/b"], Path("a/b")),
        (CHECKPOINT, ["best"], "best"),
        (CHECKPOINT, ["7"], 7),
        (SIZES, [], ()),
        (SIZES, ["1", "2"], (1, 2)),
        (PARTS, ["sts", "sst"], ("sts", "sst")),
        (FILES, ["a"], "a"),
        (FILES, ["a", "b"], ("a", "b")),
        (FILES, ["None"], None),
        (SLOPE, ["4", "0.5"], (4.0, 0.5)),
        (SLOPE, ["None"], None),
    ],
    ids=str,
)
def test_words_become_values_of_the_type(kind, words, value):
    read = read_value(words, kind)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "words", "expected", "got"),
    [
        (int, ["x"], "INT", "'x'"),
        (int, ["1.5"], "INT", "'1.5'"),
        (int, [], "INT", "no value"),
        (SIZES, ["1", "x"], "INT ...", "'1 x'"),
        (CHECKPOINT, ["bets"], "INT|{best,latest}", "'bets'"),
        (FILES, [], "TEXT ...|None", "no value"),
        (SLOPE, ["4"], "FLOAT FLOAT|None", "'4'"),
        (SLOPE, ["4", "x"], "FLOAT FLOAT|None", "'4 x'"),
        (Literal["a", "b"] | None, ["c"], "{a,b}|None", "'c'"),
    ],
    ids=str,
)
def test_other_words_are_refused_with_the_values_that_help_shows(kind, words, expected, got):
    assert metavar(kind) == expected
    with pytest.raises(ValueError, match=f"^expected {re.escape(expected)}, got {re.escape(got)}$"):
        read_value(words, kind)


def test_a_type_with_a_tuple_takes_several_words():
    assert all(map(takes_several, (FILES, SLOPE, SIZES, PARTS)))
    assert not any(map(takes_several, (int, CHECKPOINT, float | None)))
