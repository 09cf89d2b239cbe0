"""The cases of one text."""

from benchmarks import answers, one_text


def test_texts_are_short_but_one():
    lengths = {case.variant: len(next(iter(case.implementations.values())).args[0]) for case in one_text.cases()}
    assert lengths == {"vector": len(answers.SHORT), "vector of 500 characters": 500, "label": len(answers.SHORT)}
    assert len(answers.SHORT.split()) == 10
