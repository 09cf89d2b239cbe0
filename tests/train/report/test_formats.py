import math

import pytest

from train.report.formats import duration, is_finite, is_number, number, short, text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (119.7, "2 min 00 s"), (3599.2, "59 min 59 s"), (3725.0, "1 h 02 min")],
)
def test_durations_are_in_their_largest_units(seconds, expected):
    assert duration(seconds) == expected


@pytest.mark.parametrize(("value", "expected"), [(7, "7"), (999, "999"), (999999, "1 M"), (1234567890, "1.23 B")])
def test_counts_are_shortened_to_the_largest_unit(value, expected):
    assert short(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1234567, "1,234,567"),
        (12345.6, "12,346"),
        (123.45, "123.5"),
        (0.5, "0.5000"),
        (0.00012345, "0.000123"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (None, "None"),
        ("high", "high"),
    ],
)
def test_numbers_have_as_many_decimals_as_their_size_asks_for(value, expected):
    assert number(value) == expected


def test_text_is_safe_in_elements_and_attributes():
    assert text('<b a="\'&">') == "&lt;b a=&quot;&#x27;&amp;&quot;&gt;"


def test_a_bool_is_not_a_number_and_nan_is_not_finite():
    assert not is_number(True)
    assert is_number(math.nan)
    assert not is_finite(math.nan)
    assert is_finite(3)
