import math

from jaxnlp.decoding.distinct_texts import Hypothesis, distinct_texts

TEXTS = {1: "a", 2: "b", 3: "ab"}


def decode(tokens):
    return "".join(TEXTS[number] for number in tokens)


def test_a_text_of_several_sequences_has_the_first_of_them_and_its_score():
    found = [([3], -0.5), ([1, 2], -0.7), ([1], -0.9), ([3], -1.0), ([2], -1.2)]
    assert distinct_texts(found, decode) == [
        Hypothesis("ab", [3], -0.5),
        Hypothesis("a", [1], -0.9),
        Hypothesis("b", [2], -1.2),
    ]


def test_hypotheses_that_do_not_exist_are_left_out_and_an_empty_text_is_not():
    assert distinct_texts([([], -0.1), ([], -math.inf)], decode) == [Hypothesis("", [], -0.1)]
