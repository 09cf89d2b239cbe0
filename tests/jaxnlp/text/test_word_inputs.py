import json

import numpy as np
import pytest

from jaxnlp.text.word_inputs import FIRST_ID, UNKNOWN_ID, WordInputs
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

SENTENCES = [["The", "dog", "sees", "Rome"], ["the", "dogs", "1995"]]
PIECES = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "dog", "##s", "see", "rome"])


def test_words_are_normalised_and_characters_are_not():
    inputs = WordInputs.of_sentences(SENTENCES)
    assert inputs.words == ("the", "0000", "dog", "dogs", "rome", "sees")
    assert {"T", "t", "R", "9"} < set(inputs.characters)
    found = inputs.encode(["THE", "cat", "1234", "Rome"])
    np.testing.assert_array_equal(found["words"], [FIRST_ID, UNKNOWN_ID, FIRST_ID + 1, FIRST_ID + 4])
    assert found["characters"].shape == (4, 20)
    assert (found["characters"][1, :3] > 0).all()
    assert found["characters"][1, 3] == 0
    assert inputs.unknown(["THE", "cat", "1234"]) == 1
    plain = WordInputs.of_sentences(SENTENCES, lowercase=False, zero_digits=False, minimum_count=1)
    assert {"The", "the", "1995"} < set(plain.words)
    assert WordInputs.of_sentences(SENTENCES, minimum_count=2).words == ("the",)


def test_first_pieces_point_at_the_first_token_of_each_word():
    inputs = WordInputs.of_sentences(SENTENCES, pieces=PIECES)
    words = ["The", "dogs", "\u200b", "see"]  # nothing is left of the third word
    found = inputs.encode(words)
    tokens = PIECES.tokens(found["pieces"])
    assert tokens == ["[CLS]", "the", "dog", "##s", "[UNK]", "see", "[SEP]"]
    assert [tokens[i] for i in found["first_pieces"]] == ["the", "dog", "[UNK]", "see"]
    assert inputs.length(words) == len(tokens)


@pytest.mark.parametrize(
    ("max_pieces", "read"),
    [
        (12, "[CLS] rome see the dog ##s the dog see [SEP]"),
        (8, "[CLS] see the dog ##s the dog [SEP]"),
        (7, "[CLS] see the dog ##s the [SEP]"),
        (5, "[CLS] the dog ##s [SEP]"),
    ],
)
def test_a_bert_reads_the_words_next_to_a_sentence_as_far_as_there_is_room(max_pieces, read):
    inputs = WordInputs.of_sentences(SENTENCES, pieces=PIECES, max_pieces=max_pieces)
    words = ["the", "dogs"]
    found, alone = inputs.encode(words, ["rome", "see"], ["the", "dog", "see"]), inputs.encode(words)
    tokens = PIECES.tokens(found["pieces"])
    assert tokens == read.split()
    assert [tokens[i] for i in found["first_pieces"]] == ["the", "dog"]
    for name in ("words", "characters"):
        np.testing.assert_array_equal(found[name], alone[name])


@pytest.mark.parametrize(
    ("before", "after", "read"),
    [
        ([], ["see"] * 9, "[CLS] the see see see see [SEP]"),
        (["see"] * 9, [], "[CLS] see see see see the [SEP]"),
        (["see"] * 9, ["dog"], "[CLS] see see see the dog [SEP]"),
    ],
)
def test_the_other_side_of_a_sentence_has_the_room_that_one_side_leaves(before, after, read):
    inputs = WordInputs.of_sentences(SENTENCES, pieces=PIECES, max_pieces=7)
    assert PIECES.tokens(inputs.encode(["the"], before, after)["pieces"]) == read.split()


def test_batches_are_padded_with_zeros_and_rows():
    inputs = WordInputs.of_sentences(SENTENCES, pieces=PIECES, max_pieces=12)
    batch = inputs.batch([inputs.encode(words) for words in SENTENCES], 3, 8)
    assert {name: value.shape for name, value in batch.items()} == {
        "words": (3, 8),
        "characters": (3, 8, 20),
        "word_mask": (3, 8),
        "pieces": (3, 8),
        "piece_mask": (3, 8),
        "first_pieces": (3, 8),
    }
    np.testing.assert_array_equal(batch["word_mask"].sum(axis=1), [4, 3, 0])
    np.testing.assert_array_equal(batch["piece_mask"].sum(axis=1), [7, 6, 1])
    assert (batch["words"] > 0).sum() == 7
    without = WordInputs.of_sentences(SENTENCES)
    assert set(without.batch([without.encode(["a"])], 1, 1)) == {"words", "characters", "word_mask"}


def test_few_words_are_kept_and_all_have_the_same_ids_again(monkeypatch):
    monkeypatch.setattr("jaxnlp.text.word_inputs.MOST_CACHED", 2)
    inputs = WordInputs(("the", "cat"), ("t", "h", "e"), max_characters=4)
    first = inputs.encode(["the", "cat", "the", "dog"])
    again = inputs.encode(["the", "cat", "the", "dog"])
    assert first["words"].tolist() == again["words"].tolist() == [FIRST_ID, FIRST_ID + 1, FIRST_ID, UNKNOWN_ID]
    np.testing.assert_array_equal(first["characters"], again["characters"])
    inputs.encode(["a"])
    assert list(inputs._ids_of_words) == ["a"]


def test_long_sentences_are_divided_but_not_within_an_entity():
    inputs = WordInputs.of_sentences(SENTENCES, max_length=4)
    words = ["a"] * 10
    assert inputs.parts(words) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    inside = [False] * 10
    inside[4] = inside[5] = True
    assert inputs.parts(words, inside) == [slice(0, 3), slice(3, 7), slice(7, 10)]
    assert inputs.parts(words, [False] + [True] * 9) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert inputs.parts(words[:4]) == [slice(0, 4)]
    with pytest.raises(ValueError, match="a sentence of 10 words exceeds the maximum of 4 words"):
        inputs.encode(words)
    with pytest.raises(ValueError, match="a sentence needs at least one word, got none"):
        inputs.encode([])


def test_sentences_are_divided_by_their_tokens_too():
    inputs = WordInputs.of_sentences(SENTENCES, pieces=PIECES, max_pieces=6)
    words = ["dogs", "dogs", "dogs", "the"]  # 2 tokens each, but for the last
    parts = inputs.parts(words)
    assert parts == [slice(0, 2), slice(2, 4)]
    assert max(len(inputs.encode(words[part])["pieces"]) for part in parts) == 6
    with pytest.raises(ValueError, match="8 tokens of BERT exceeds the maximum of 6"):
        inputs.encode(words[:3])
    with pytest.raises(
        ValueError, match=r"the word 'dogsssss'... has 6 tokens of BERT, but a sentence may have only 4"
    ):
        inputs.parts(["the", "dogsssss"])


def test_inputs_survive_json():
    for pieces in (None, PIECES):
        inputs = WordInputs.of_sentences(SENTENCES, pieces=pieces, lowercase=False, max_length=9)
        assert WordInputs.from_json(json.loads(json.dumps(inputs.to_json()))) == inputs
    assert WordInputs.of_sentences(SENTENCES, minimum_count=2).to_json()["minimum_count"] == 2
    with pytest.raises(ValueError, match="minimum_count is missing or not of type int"):
        WordInputs.from_json(inputs.to_json() | {"minimum_count": "1"})
    with pytest.raises(ValueError, match="max_length is missing or not of type int"):
        WordInputs.from_json(inputs.to_json() | {"max_length": "9"})
    with pytest.raises(ValueError, match="words must be distinct"):
        WordInputs(("a", "a"), ())
    with pytest.raises(ValueError, match="no BERT tokenizer"):
        WordInputs((), ()).word_pieces(["a"])


def test_shown_they_have_sizes_instead_of_words():
    assert repr(WordInputs(("a", "b"), ("a", "b", "c"))) == "WordInputs(2 words, 3 characters)"
    assert repr(WordInputs(("a",), (), pieces=PIECES)) == f"WordInputs(1 words, 0 characters, {PIECES!r})"
