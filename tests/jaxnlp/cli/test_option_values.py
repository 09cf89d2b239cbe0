import re
from pathlib import Path
from typing import Literal

import pytest

from jaxnlp.cli.option_values import one_line, values_of

FILES = str | tuple[str, ...] | None
SLOPE = tuple[float, float] | None
SIZES = tuple[int, ...]


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [
        (int, ["3"], 3),
        (float | None, ["3"], 3.0),
        (float | None, ["None"], None),
        (Path, ["a/b"], Path("a/b")),
        (int | Literal["best"], ["best"], "best"),
        (int | Literal["best"], ["7"], 7),
        (SIZES, [], ()),
        (SIZES, ["1", "2"], (1, 2)),
        (FILES, ["a"], "a"),
        (FILES, ["a", "b"], ("a", "b")),
        (FILES, ["None"], None),
        (SLOPE, ["4", "0.5"], (4.0, 0.5)),
        (SLOPE, ["None"], None),
    ],
    ids=str,
)
def test_words_become_values_of_the_type(kind, words, value):
    found = values_of(kind).read(words)
    assert (found, type(found)) == (value, type(value))
    assert values_of(kind).fits(value)


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (int, ["x"], "expected a whole number, got 'x'"),
        (int, [], "expected a whole number, got no values"),
        (SIZES, ["1", "x"], "expected a whole number, got 'x'"),
        (FILES, [], "expected one value or more, got none"),
        (SLOPE, ["4"], "expected FLOAT FLOAT or None, got 4"),
        (SLOPE, ["4", "x"], "expected a number, got 'x'"),
    ],
    ids=str,
)
def test_other_words_are_refused(kind, words, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        values_of(kind).read(words)


@pytest.mark.parametrize(
    ("kind", "metavar"),
    [
        (FILES, "TEXT ..."),
        (SLOPE, "FLOAT FLOAT"),
        (float | None, "FLOAT"),
        (int | Literal["a", "b"], "INT|{a,b}"),
        (Literal["a", "b"] | None, "{a,b,None}"),
    ],
    ids=str,
)
def test_help_shows_the_values_in_one_word_each(kind, metavar):
    assert values_of(kind).metavar == metavar


def test_values_of_another_type_do_not_fit():
    assert not values_of(int).fits(True)
    assert not values_of(FILES).fits(("a", 1))
    assert not values_of(SLOPE).fits((1.0,))
    assert not values_of(float | None).fits("x")


def test_other_types_are_left_to_tyro():
    assert values_of(bool) is None
    assert values_of(dict[str, int]) is None


def test_defaults_are_shown_on_one_line():
    assert one_line("a\nb") == "a\\nb"
