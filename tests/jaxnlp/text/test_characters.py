import json
import re

import numpy as np
import pytest

from jaxnlp.text.characters import CharacterVocabulary, UnknownCharacterError

# Two planes of Unicode, a combining accent, a line end, and a lone surrogate such as a broken file name holds.
TEXT = "héllo wörld\n你好 e\u0301 🙂🙃 \ud800"


def test_encoding_and_decoding_is_the_identity():
    vocabulary = CharacterVocabulary.of(TEXT)
    ids = vocabulary.encode(TEXT)
    assert (ids.shape, ids.dtype) == ((len(TEXT),), np.int32)
    assert vocabulary.decode(ids) == TEXT
    assert vocabulary.decode(iter(ids.tolist())) == TEXT


def test_ids_are_places_in_code_point_order():
    vocabulary = CharacterVocabulary.of(TEXT)
    assert vocabulary.characters == tuple(sorted(set(TEXT), key=ord))
    assert vocabulary.size == len(set(TEXT))
    assert vocabulary.encode(TEXT).tolist() == [vocabulary.characters.index(character) for character in TEXT]


def test_order_of_the_text_does_not_matter():
    assert CharacterVocabulary.of(TEXT) == CharacterVocabulary.of(TEXT[::-1] * 2)


def test_empty_text_has_no_ids():
    ids = CharacterVocabulary.of("ab").encode("")
    assert (ids.shape, ids.dtype) == ((0,), np.int32)
    assert CharacterVocabulary.of("ab").decode(ids) == ""


@pytest.mark.parametrize("text", ["abcxbz?x", "ab🙂c?", "?"])
def test_unknown_characters_are_named_with_the_place_of_the_first(text):
    vocabulary = CharacterVocabulary(["a", "b", "c"])
    unknown = sorted({character for character in text if character not in "abc"})
    first = next(i for i, character in enumerate(text, 1) if character not in "abc")
    message = (
        f"not in the vocabulary of 3 characters: {', '.join(map(repr, unknown))} (first at character {first}); "
        f"it has 'abc'"
    )
    with pytest.raises(UnknownCharacterError, match=re.escape(message)):
        vocabulary.encode(text)


@pytest.mark.parametrize("mark", ["\u0301", "\u093e", "\u0e31", "\ufe0f"])
def test_an_unknown_mark_on_a_letter_is_named_by_its_code(mark):
    message = f"3 characters: {mark!a} (first at character 2)"
    with pytest.raises(UnknownCharacterError, match=re.escape(message)):
        CharacterVocabulary(["a", "b", "c"]).encode(f"a{mark}")


@pytest.mark.parametrize("character", ["\x00", "@", "b", "d", "🙂"])
def test_characters_before_between_and_after_the_known_ones_are_unknown(character):
    vocabulary = CharacterVocabulary(["a", "c", "🙁"])
    with pytest.raises(UnknownCharacterError, match=re.escape(repr(character))):
        vocabulary.encode(f"a{character}c")


def test_json_reads_back_equal():
    vocabulary = CharacterVocabulary.of(TEXT)
    assert CharacterVocabulary.from_json(json.loads(json.dumps(vocabulary.to_json()))) == vocabulary
    assert vocabulary.to_json() == {"characters": list(vocabulary.characters)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "characters: expected a list of strings, got NoneType"),
        ({}, "characters: expected a list of strings, got NoneType"),
        ({"characters": "ab"}, "characters: expected a list of strings, got str"),
        ({"characters": ["a", 2]}, "characters[1]: expected a string, got 2"),
        ({"characters": []}, "at least one character"),
        ({"characters": ["a", "b", "a"]}, "characters[2] and characters[0] are both 'a'"),
        ({"characters": ["a", "bc"]}, "characters[1] must be a single character, got 'bc'"),
    ],
    ids=str,
)
def test_an_entry_that_makes_no_vocabulary_is_named(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CharacterVocabulary.from_json(fields)


def test_special_characters_come_first_in_the_order_given_and_the_others_by_code_point():
    vocabulary = CharacterVocabulary.of("cab?", special="ba#")
    assert vocabulary.characters == ("b", "a", "#", "?", "c")
    assert vocabulary.encode("abc#?").tolist() == [1, 0, 4, 2, 3]
    assert vocabulary.decode([1, 0, 4, 2, 3]) == "abc#?"
    with pytest.raises(UnknownCharacterError, match="'d'"):
        vocabulary.encode("bad")
    assert CharacterVocabulary.from_json(vocabulary.to_json()) == vocabulary


def test_an_empty_vocabulary_is_refused():
    with pytest.raises(ValueError, match="at least one character"):
        CharacterVocabulary.of("")


def test_equal_vocabularies_have_equal_hashes():
    assert hash(CharacterVocabulary.of("ba")) == hash(CharacterVocabulary(["a", "b"]))
    assert CharacterVocabulary.of("ab") != CharacterVocabulary.of("abc")
    assert CharacterVocabulary.of("ab") != ("a", "b")


def test_called_it_makes_rows_of_one_length():
    vocabulary = CharacterVocabulary("xabc")
    assert vocabulary(["ab", "c"])["tokens"].tolist() == [[1, 2], [3, 0]]
    assert vocabulary("ab")["tokens"].tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="expected texts, got int at index 0"):
        vocabulary([1])


def test_shown_it_has_its_size():
    assert repr(CharacterVocabulary.of("abc")) == "CharacterVocabulary(3 characters)"
