import itertools

import numpy as np
import pytest

from jaxnlp.text.encoder_texts import EncoderTexts
from jaxnlp.text.wordpiece import CLS, SEP, SPECIAL, UNK, WordPieceVocabulary

WORDS = [".", "the", "cat", "sat", "##s", ","]
PIECES = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
VOCABULARY = EncoderTexts(PIECES)


def test_a_text_starts_with_cls_and_a_whole_text_ends_with_sep():
    cls, sep, the, cat, s = map(PIECES.id_of, (CLS, SEP, "the", "cat", "##s"))
    ids = VOCABULARY.encode("The cats")
    assert ids.dtype == np.int32
    assert ids.tolist() == [cls, the, cat, s]
    assert VOCABULARY.encode("cats", starts=False).tolist() == [cat, s]
    whole, blank = VOCABULARY.encode_all(["the cats", ""])
    assert whole.tolist() == [cls, the, cat, s, sep]
    assert blank.tolist() == [cls, sep]
    assert VOCABULARY.encode("").tolist() == [cls]
    assert VOCABULARY(["the cats", "the"])["tokens"].tolist() == [[cls, the, cat, s], [cls, the, 0, 0]]


def test_whole_texts_are_those_that_a_classifier_reads():
    texts = ["the cats sat , the cat sat .", "a dog"]
    for ours, theirs in zip(VOCABULARY.encode_all(texts), PIECES.tokenize(texts, max_length=20).tokens, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_decoding_puts_a_blank_before_each_word_and_none_before_the_rest_of_a_word():
    assert VOCABULARY.decode(VOCABULARY.encode_all(["The cats sat."])[0]) == " the cats sat."
    assert VOCABULARY.decode([PIECES.id_of(SEP)]) == ""
    assert VOCABULARY.decode([]) == ""


@pytest.mark.parametrize("text", ["the cats sat the cat", "cats, cats. the"])
def test_texts_of_pieces_make_up_the_text_of_the_whole(text):
    ids = VOCABULARY.encode(text)
    for cut in range(len(ids) + 1):
        assert VOCABULARY.decode(ids[:cut]) + VOCABULARY.decode(ids[cut:]) == VOCABULARY.decode(ids)
    np.testing.assert_array_equal(VOCABULARY.encode(VOCABULARY.decode(ids)), ids)


def test_it_is_equal_by_value_and_reads_back_from_json():
    again = EncoderTexts.from_json(VOCABULARY.to_json())
    assert again == VOCABULARY
    assert hash(again) == hash(VOCABULARY)
    assert again.size == VOCABULARY.size == len(SPECIAL) + len(WORDS)
    others = [EncoderTexts(WordPieceVocabulary.of_pieces([*SPECIAL, "cat"])), PIECES]
    for one, other in itertools.product([VOCABULARY], others):
        assert one != other
    with pytest.raises(ValueError, match="texts of an encoder: vocabulary is missing or not of type dict"):
        EncoderTexts.from_json({})
    assert repr(VOCABULARY) == "EncoderTexts(11 tokens)"


def test_unknown_words_are_the_unknown_token():
    assert VOCABULARY.encode("dog", starts=False).tolist() == [PIECES.id_of(UNK)]


def test_a_vocabulary_without_words_cannot_decode():
    with pytest.raises(ValueError, match="only special tokens and signs"):
        EncoderTexts(WordPieceVocabulary.of_pieces([*SPECIAL, "."])).decode([5])
