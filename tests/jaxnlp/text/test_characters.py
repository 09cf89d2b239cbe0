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
        f"it knows 'abc'"
    )
    with pytest.raises(UnknownCharacterError, match=re.escape(message)):
        vocabulary.encode(text)


@pytest.mark.parametrize("character", ["\x00", "@", "b", "d", "🙂"])
def test_characters_before_between_and_after_the_known_ones_are_unknown(character):
    vocabulary = CharacterVocabulary(["a", "c", "🙁"])
    with pytest.raises(UnknownCharacterError, match=re.escape(repr(character))):
        vocabulary.encode(f"a{character}c")


def test_json_reads_back_equal(tmp_path):
    vocabulary = CharacterVocabulary.of(TEXT.replace("\ud800", ""))
    path = tmp_path / "vocabulary.json"
    path.write_text(vocabulary.to_json(), encoding="utf-8")
    assert CharacterVocabulary.load(path) == vocabulary
    assert json.loads(path.read_bytes()) == {"characters": list(vocabulary.characters)}


@pytest.mark.parametrize("content", ["{", "[]", "null", "{}"])
def test_a_file_that_holds_something_else_is_named(tmp_path, content):
    path = tmp_path / "vocabulary.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        CharacterVocabulary.load(path)


@pytest.mark.parametrize("characters", [3, [1, 2], [], ["a", "a"], ["ab"]], ids=str)
def test_a_file_with_characters_that_are_no_vocabulary_is_named(tmp_path, characters):
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps({"characters": characters}), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        CharacterVocabulary.load(path)


@pytest.mark.parametrize("characters", [["a", "a"], ["ab"], ["a", ""]])
def test_only_distinct_single_characters_are_a_vocabulary(characters):
    with pytest.raises(ValueError, match="holds distinct single characters"):
        CharacterVocabulary(characters)


def test_special_characters_come_first_in_the_order_given_and_the_others_by_code_point(tmp_path):
    vocabulary = CharacterVocabulary.of("cab?", special="ba#")
    assert vocabulary.characters == ("b", "a", "#", "?", "c")
    assert vocabulary.encode("abc#?").tolist() == [1, 0, 4, 2, 3]
    assert vocabulary.decode([1, 0, 4, 2, 3]) == "abc#?"
    with pytest.raises(UnknownCharacterError, match="'d'"):
        vocabulary.encode("bad")
    path = tmp_path / "vocabulary.json"
    path.write_text(vocabulary.to_json(), encoding="utf-8")
    assert CharacterVocabulary.load(path) == vocabulary


def test_an_empty_vocabulary_is_refused():
    with pytest.raises(ValueError, match="at least one character"):
        CharacterVocabulary.of("")


def test_equal_vocabularies_have_equal_hashes():
    assert hash(CharacterVocabulary.of("ba")) == hash(CharacterVocabulary(["a", "b"]))
    assert CharacterVocabulary.of("ab") != CharacterVocabulary.of("abc")
    assert CharacterVocabulary.of("ab") != ("a", "b")
