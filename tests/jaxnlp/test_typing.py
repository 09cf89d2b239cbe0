"""The glossary of axes has one entry a letter."""

import re

from jaxnlp import typing

LETTER = re.compile(r"(?:^|\s{2,})([A-Z]) (?=[a-z])", re.MULTILINE)


def test_each_letter_of_the_glossary_has_one_entry():
    table = typing.__doc__.split("\n\n")[2]
    letters = LETTER.findall(table)
    assert len(letters) > 15
    assert len(letters) == len(set(letters))
