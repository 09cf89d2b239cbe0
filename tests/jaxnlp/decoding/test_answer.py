import functools
import re

import jax
import jax.numpy as jnp
import pytest

from jaxnlp.decoding.answer import LONGEST_ANSWER, QuestionError, answer
from jaxnlp.decoding.generate import Decoder
from jaxnlp.nn.cache import KVCache
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary

VOCABULARY = CharacterVocabulary.of("abcdefgh?", special=PAD + MASK)
CAPACITY = 16


def alphabet(params, tokens, cache):
    """After MASK comes `d`, after a letter the next one, after the last MASK."""
    size = VOCABULARY.size
    following = jnp.where(tokens == 1, VOCABULARY.characters.index("d"), jnp.where(tokens == size - 1, 1, tokens + 1))
    return jax.nn.one_hot(following, size), cache.replace(length=cache.length + tokens.shape[1])


def empty_cache(batch, capacity=CAPACITY):
    room = jnp.zeros((batch, 1, capacity, 1))
    return KVCache(((room, room + 0.0),), jnp.zeros((), jnp.int32))


DECODER = Decoder(lambda params: params, alphabet, empty_cache)


def test_an_answer_is_what_comes_between_two_masks():
    assert answer(DECODER, {}, VOCABULARY, ["a?", "bad?", "?"]) == ["defgh"] * 3


def test_an_answer_that_does_not_end_is_cut():
    forever = Decoder(
        lambda params: params,
        lambda params, tokens, cache: (
            jax.nn.one_hot(0 * tokens + 3, VOCABULARY.size),
            cache.replace(length=cache.length + tokens.shape[1]),
        ),
        functools.partial(empty_cache, capacity=2 * LONGEST_ANSWER),
    )
    assert answer(forever, {}, VOCABULARY, ["a?"]) == [VOCABULARY.characters[3] * LONGEST_ANSWER]


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


def test_the_longest_question_leaves_room_for_one_character():
    (found,) = answer(DECODER, {}, VOCABULARY, ["a" * 13 + "?"])
    # 15 places are filled with the question and MASK; the last of the 16 holds the answer's first character, which
    # says its second.
    assert found == "de"
