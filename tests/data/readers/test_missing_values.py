from pathlib import Path

import pytest

from data.readers.missing_values import is_missing, warn_of_missing


@pytest.mark.parametrize("text", ["NaN", "<NA>", "#N/A", "NULL", "None", "n/a"])
def test_names_of_missing_values_have_any_case(text):
    assert is_missing(text)
    assert is_missing(text.lower())
    assert not is_missing(f"{text} of these")
    assert not is_missing("")


def test_texts_that_are_names_of_missing_values_are_counted_with_the_first_line(caplog):
    warn_of_missing(Path("a.csv"), [(2, "fine"), (3, "nan"), (9, "<NA>")])
    warn_of_missing(Path("b.csv"), [(2, "none of these")])
    assert caplog.messages == [
        "a.csv: 2 texts are names of missing values, the first 'nan' in line 3; if they are no texts, make their "
        "fields empty"
    ]
