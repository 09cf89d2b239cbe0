import re

import jax
import jax.numpy as jnp
import pytest

from jaxnlp.decoding.generation import Decoder
from jaxnlp.tasks.question_answering.answers import MAX_ANSWER, QuestionError, answer, exact_match
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.questions import Question

VOCABULARY = CharacterVocabulary.of("abcdefgh?", special=PAD + MASK)
CAPACITY = 16


def alphabet(params, tokens, cache, count):
    """Predicts `d` after MASK, the next letter after a letter, and MASK after the last one."""
    size = VOCABULARY.size
    following = jnp.where(tokens == 1, VOCABULARY.characters.index("d"), jnp.where(tokens == size - 1, 1, tokens + 1))
    return jax.nn.one_hot(following, size), cache


def make_decoder(read, *, capacity=CAPACITY):
    """The decoder of a model without memory."""
    return Decoder(lambda params: params, read, lambda batch: (), capacity)


DECODER = make_decoder(alphabet)


def test_an_answer_is_the_text_between_two_masks():
    assert answer(DECODER, {}, VOCABULARY, ["a?", "bad?", "?"]) == ["defgh"] * 3


def test_an_answer_without_an_end_is_truncated():
    def repeat(params, tokens, cache, count):
        return jax.nn.one_hot(0 * tokens + 3, VOCABULARY.size), cache

    for capacity in (2 * MAX_ANSWER, None):
        found = answer(make_decoder(repeat, capacity=capacity), {}, VOCABULARY, ["a?"])
        assert found == [VOCABULARY.characters[3] * MAX_ANSWER]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("who?", "question 'who?': not in the vocabulary of 11 characters: 'o', 'w'"),
        ("", "a question must have text, without '\u2047' and '\u25a1', got ''"),
        (f"a{MASK}b?", "a question must have text"),
        ("a" * 15 + "?", "has 16 characters; it must fit the model's context of 16 together with MASK and an answer"),
        ("a" * 14 + "?", "has 15 characters; it must fit the model's context of 16 together with MASK and an answer"),
    ],
    ids=["unknown", "empty", "with_mask", "too_long", "no_room"],
)
def test_a_question_that_cannot_be_asked_is_shown_with_the_reason(question, message):
    with pytest.raises(QuestionError, match=re.escape(message)):
        answer(DECODER, {}, VOCABULARY, ["a?", question])


def test_without_a_maximum_context_no_question_is_too_long():
    assert answer(make_decoder(alphabet, capacity=None), {}, VOCABULARY, ["a" * 40 + "?"]) == ["defgh"]


def test_the_longest_question_leaves_room_for_one_character():
    (found,) = answer(DECODER, {}, VOCABULARY, ["a" * 13 + "?"])
    # The question and MASK fill 15 of the 16 positions. The last one holds the answer's first character, from which the
    # second is predicted.
    assert found == "de"


def test_only_whole_answers_match():
    questions = [Question("a?", "bad"), Question("b?", "egg"), Question("c?", "cab"), Question("d?", "a")]
    assert exact_match(["bad", "eg", "cabs", "A"], questions) == 0.25
    with pytest.raises(ValueError, match="zip"):
        exact_match(["bad"], questions)
