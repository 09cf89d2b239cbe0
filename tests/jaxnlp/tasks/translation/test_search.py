"""Options of the search; test_init.py and tests/jaxnlp/decoding test the search itself."""

import re

import pytest

from jaxnlp.tasks.translation.commands import Translate
from jaxnlp.tasks.translation.search import SearchOptions


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_beams": 0}, "num_beams must be at least 1, got 0"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be at least 0, got -1"),
        ({"length_penalty": -0.5}, "length_penalty must be finite and not negative, got -0.5"),
        ({"coverage_penalty": float("nan")}, "coverage_penalty must be finite and not negative, got nan"),
    ],
)
def test_options_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SearchOptions(**fields)


def test_a_commands_search_has_its_options_alone():
    command = Translate(texts=("a",), num_beams=3, n_best=2, coverage_penalty=0.2)
    assert command.search == SearchOptions(num_beams=3, coverage_penalty=0.2)
