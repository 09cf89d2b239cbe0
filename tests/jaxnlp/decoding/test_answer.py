import re

import jax
import jax.numpy as jnp
import pytest
from jaxnlp.decoding.answer import LONGEST_ANSWER, QuestionError, answer

from jaxnlp.decoding.generate import Decoder
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary

VOCABULARY = CharacterVocabulary.of("abcdefgh?", special=PAD + MASK)
CAPACITY = 16


def alphabet(params, tokens, cache, count):
    """After MASK comes `d`, after a letter the next one, after the last MASK."""
    size = VOCABULARY.size
    following = jnp.where(tokens == 1, VOCABULARY.characters.index("d"), jnp.where(tokens == size - 1, 1, tokens + 1))
    return jax.nn.one_hot(following, size), cache


def make_decoder(read, *, capacity=CAPACITY):
    """Of a model that remembers nothing."""
    return Decoder(lambda params: params, read, lambda batch: (), capacity)


DECODER = make_decoder(alphabet)


def test_an_answer_is_what_comes_between_two_masks():
    assert answer(DECODER, {}, VOCABULARY, ["a?", "bad?", "?"]) == ["defgh"] * 3


def test_an_answer_that_does_not_end_is_cut():
    def repeat(params, tokens, cache, count):
        return jax.nn.one_hot(0 * tokens + 3, VOCABULARY.size), cache

    for capacity in (2 * LONGEST_ANSWER, None):
        found = answer(make_decoder(repeat, capacity=capacity), {}, VOCABULARY, ["a?"])
        assert found == [VOCABULARY.characters[3] * LONGEST_ANSWER]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("who?", "question 'who?' cannot be spelt: not in the vocabulary of 11 characters: 'o', 'w'"),
        ("", "a question has some text, without '\u2047' and '\u25a1', got ''"),
        (f"a{MASK}b?", "a question has some text"),
        ("a" * 15 + "?", "has 16 characters; the model's context of 16 must hold it, MASK and an answer"),
        ("a" * 14 + "?", "has 15 characters; the model's context of 16 must hold it, MASK and an answer"),
    ],
    ids=["unknown", "empty", "with_mask", "too_long", "no_room"],
)
def test_a_question_that_cannot_be_asked_is_shown(question, message):
    with pytest.raises(QuestionError, match=re.escape(message)):
        answer(DECODER, {}, VOCABULARY, ["a?", question])


def test_without_an_end_of_the_context_no_question_is_too_long():
    assert answer(make_decoder(alphabet, capacity=None), {}, VOCABULARY, ["a" * 40 + "?"]) == ["defgh"]


def test_the_longest_question_leaves_room_for_one_character():
    (found,) = answer(DECODER, {}, VOCABULARY, ["a" * 13 + "?"])
    # 15 places are filled with the question and MASK; the last of the 16 holds the answer's first character, which
    # says its second.
    assert found == "de"
