"""The cases of one text."""

from benchmarks import answers, one_text
from benchmarks.case import OURS


def test_texts_are_short_but_one():
    texts = {case.variant: case.implementations[OURS].args[0] for case in one_text.cases() if "32 bits" in case.variant}
    short = dict.fromkeys(("vector, 32 bits", "label, 32 bits", "entities, 32 bits"), answers.SHORT)
    assert texts == short | {"vector of 500 characters, 32 bits": answers.LONG}
    assert len(answers.LONG) == 500
    assert len(answers.SHORT.split()) == 10
