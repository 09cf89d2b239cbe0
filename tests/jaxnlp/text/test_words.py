import json
import re

import numpy as np
import pytest

from jaxnlp.text import UnknownTokenError
from jaxnlp.text.words import EOL, UNK, UnknownWordError, WordVocabulary, whitespace_split

WORDS = ("the", "cat", EOL, UNK, "sät", "戦場", "@-@")
VOCABULARY = WordVocabulary(WORDS, unknown=UNK)


def test_ids_are_places():
    ids = VOCABULARY.encode("sät the @-@ 戦場")
    assert ids.dtype == np.int32
    assert ids.tolist() == [4, 0, 6, 5]
    assert VOCABULARY.size == 7


def test_a_line_feed_is_the_end_of_line_word_where_there_is_one():
    text = " the cat \n\nthe\tthe\n"
    assert VOCABULARY.encode(text).tolist() == [0, 1, 2, 2, 0, 0, 2]
    assert WordVocabulary(["the", "cat"]).encode(text).tolist() == [0, 1, 0, 0]
    assert VOCABULARY.encode(f"the {EOL}").tolist() == VOCABULARY.encode("the\n").tolist()


def test_words_can_be_given_apart():
    assert VOCABULARY.encode_words(["the", EOL, "dog"]).tolist() == [0, 2, 3]
    with pytest.raises(UnknownWordError, match="'dog'"):
        WordVocabulary(["the"]).encode_words(["the", "dog"])


def test_words_are_what_white_space_separates_and_the_ends_of_lines():
    assert whitespace_split(" a  b\n\nc") == ["a", "b", EOL, EOL, "c"]


def test_unknown_words_become_the_unknown_word():
    assert VOCABULARY.encode("the dog sät").tolist() == [0, 3, 4]


def test_without_such_a_word_they_are_named_with_the_place_of_the_first():
    vocabulary = WordVocabulary(["a", "b"])
    message = "not in the vocabulary of 2 words: 'x', 'y' (first at word 3)"
    with pytest.raises(UnknownWordError, match=re.escape(message)):
        vocabulary.encode("a b x b y x")
    names = ", ".join(repr(f"w{i}") for i in range(10))
    with pytest.raises(UnknownTokenError, match=re.escape(f"{names} and 5 more (first at word 1)")):
        vocabulary.encode(" ".join(f"w{i}" for i in range(15)))


def test_decoding_puts_a_blank_before_each_word_and_ends_lines():
    assert VOCABULARY.decode([0, 1, 2, 4, 2, 2]) == " the cat\n sät\n\n"
    assert VOCABULARY.decode(iter(np.array([0, 1]))) == " the cat"


def test_texts_of_pieces_make_up_the_text_of_the_whole_and_read_back_as_it():
    ids = np.random.default_rng(0).integers(VOCABULARY.size, size=50)
    assert "".join(VOCABULARY.decode([i]) for i in ids) == VOCABULARY.decode(ids)
    np.testing.assert_array_equal(VOCABULARY.encode(VOCABULARY.decode(ids)), ids)


def test_an_empty_text_has_no_ids():
    for text in ("", "  \t"):
        ids = VOCABULARY.encode(text)
        assert (ids.shape, ids.dtype) == ((0,), np.int32)
    assert VOCABULARY.decode([]) == ""


@pytest.mark.parametrize("unknown", [UNK, None])
def test_json_reads_back_equal(unknown):
    vocabulary = WordVocabulary(WORDS, unknown=unknown)
    assert WordVocabulary.from_json(json.loads(json.dumps(vocabulary.to_json()))) == vocabulary
    assert vocabulary.to_json() == {"words": list(WORDS), "unknown": unknown}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "words: expected a list of strings, got NoneType"),
        ({"words": 3, "unknown": None}, "words: expected a list of strings, got int"),
        ({"words": ["a", 1], "unknown": None}, "words[1]: expected a string, got 1"),
        ({"words": ["a"]}, "unknown must be a word or null"),
        ({"words": ["a"], "unknown": 1}, "unknown must be a word or null"),
    ],
    ids=str,
)
def test_an_entry_that_makes_no_vocabulary_is_named(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        WordVocabulary.from_json(fields)


@pytest.mark.parametrize(
    ("words", "unknown", "message"),
    [
        ([], None, "at least one word, got none"),
        (["a", ""], None, "words[1] must not be empty or contain white space, got ''"),
        (["a", "b c"], None, "words[1] must not be empty or contain white space, got 'b c'"),
        (["a\n"], None, r"words[0] must not be empty or contain white space, got 'a\n'"),
        (["a", "b", "a"], None, "words[2] and words[0] are both 'a'"),
        (["a", "b"], UNK, "unknown must be one of the words, got '<unk>'"),
    ],
)
def test_what_is_no_vocabulary_is_refused(words, unknown, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        WordVocabulary(words, unknown=unknown)


def test_equal_vocabularies_have_equal_hashes():
    again = WordVocabulary(list(WORDS), unknown=UNK)
    assert (again, hash(again)) == (VOCABULARY, hash(VOCABULARY))
    assert VOCABULARY not in (WordVocabulary(WORDS), WordVocabulary(WORDS[::-1], unknown=UNK), WORDS)


def test_called_it_makes_rows_of_one_length():
    assert WordVocabulary(["x", "a", "b"])(["a b", "b"])["tokens"].tolist() == [[1, 2], [2, 0]]


def test_shown_it_has_its_size():
    assert repr(WordVocabulary(["x", "a", "b"])) == "WordVocabulary(3 words)"
