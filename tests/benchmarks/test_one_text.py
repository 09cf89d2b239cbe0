"""The cases of one text."""

from benchmarks import answers, one_text


def test_texts_are_short_but_one():
    lengths = {case.variant: len(next(iter(case.implementations.values())).args[0]) for case in one_text.cases()}
    short = dict.fromkeys(("vector", "label", "entities"), len(answers.SHORT))
    assert lengths == short | {"vector of 500 characters": 500}
    assert len(answers.SHORT.split()) == 10
