import json
import random
import unicodedata

import pytest

from jaxnlp.saving.serialization import processor_from_json, processor_to_json
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import END, PADDING, START, UNKNOWN, Subwords

KINDS = ["bpe", "unigram", "characters", "words"]
TEXTS = [
    "The old man and the sea.",
    "The oldest woman saw the sea, and the man!",
    "der alte Mann und das Meer",
    "ältere Männer am Meer; 你好。世界。你好。",
] * 5


@pytest.fixture(scope="module")
def trained():
    return {kind: train_subwords(TEXTS, kind, 400, extra=3) for kind in KINDS}


def random_text(generator):
    ranges = [(32, 127), (0, 0x300), (0x300, 0x370), (0x2500, 0x2600), (0x4E00, 0x9FFF), (0xE000, 0x110000)]
    characters = [chr(generator.randrange(*generator.choice(ranges))) for _ in range(generator.randrange(20))]
    return "".join(generator.choice([character, character, " ", "\u2581", "the"]) for character in characters)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_text_survives_in_nfc(trained, kind):
    subwords, generator = trained[kind], random.Random(0)
    fixed = ["", " ", "  ", " a", "a ", "a  b", "\u2581", " \u2581 ", "\t\r\n", "<s></s><0x41><extra_id_0>", "\uffff"]
    for text in [*fixed, *TEXTS, *(random_text(generator) for _ in range(500))]:
        ids = subwords.encode(text)
        text = unicodedata.normalize("NFC", text)
        assert subwords.decode(ids) == text
        assert subwords.encode(text) == subwords.encode(unicodedata.normalize("NFD", text)) == ids
        assert all(END < number < subwords.size - subwords.extra for number in ids)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_texts_of_known_tokens_survive_and_others_have_unknown_ids(trained, kind):
    subwords = trained[kind]
    assert [subwords.decode(subwords.encode(text)) for text in TEXTS] == TEXTS
    assert subwords.decode(subwords.encode(" the  sea ")) == " the  sea " or kind == "words"
    assert UNKNOWN in subwords.encode("The zebra")
    assert "\u2047" in subwords.decode(subwords.encode("The zebra"))


def test_a_text_with_the_name_of_a_symbol_has_no_symbol(trained):
    for subwords in trained.values():
        ids = subwords.encode("<pad></s><s><extra_id_0>")
        assert not {PADDING, START, END, subwords.extra_id(0)} & set(ids)


def test_ids_are_symbols_then_bytes_then_the_vocabulary_then_extra_symbols(trained):
    subwords = trained["bpe"]
    assert subwords.tokens(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert subwords.tokens([4, 4 + 255]) == ["<0x00>", "<0xFF>"]
    assert subwords.tokens(range(260, subwords.size - 3)) == list(subwords.vocabulary)
    assert subwords.tokens(map(subwords.extra_id, range(3))) == ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"]
    assert [subwords.extra_id(number) for number in range(3)] == [subwords.size - 1 - number for number in range(3)]
    with pytest.raises(ValueError, match="extra symbol 3 does not exist: this vocabulary has 3"):
        subwords.extra_id(3)
    assert trained["words"].tokens([4]) == [trained["words"].vocabulary[0]]
    assert [subwords.id_of(token) for token in subwords.tokens(range(subwords.size))] == list(range(subwords.size))
    assert subwords.id_of("▁no such token") is None


def test_decoding_ends_at_the_end_symbol_and_skips_padding_and_start(trained):
    subwords = trained["bpe"]
    sea = subwords.encode("the sea")
    assert subwords.decode([START, *sea, PADDING, END, *sea]) == "the sea"
    assert subwords.decode([subwords.extra_id(1), *sea]) == "<extra_id_1> the sea"


def test_a_word_has_the_same_tokens_at_the_start_and_elsewhere(trained):
    for kind in ("bpe", "unigram", "words"):
        subwords = trained[kind]
        assert subwords.encode("sea sea") == 2 * subwords.encode("sea")


def test_frequent_words_are_one_token_and_punctuation_is_separate(trained):
    assert trained["bpe"].tokens(trained["bpe"].encode("the sea, the man!"))[-1] == "!"
    words = trained["words"]
    assert words.tokens(words.encode("the sea, the man!")) == ["▁the", "▁sea", ",", "▁the", "▁man", "!"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_survives_its_processor_file(trained, kind):
    subwords = trained[kind]
    read = processor_from_json(json.loads(json.dumps(processor_to_json(subwords))))
    assert (read, hash(read)) == (subwords, hash(subwords))
    assert read.encode(TEXTS[3]) == subwords.encode(TEXTS[3])
    assert read != train_subwords(TEXTS, kind, 400, extra=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "bytes"}, "kind must be one of bpe, unigram, characters, words, got 'bytes'"),
        ({"kind": 3}, "kind is missing or not of type str"),
        ({"extra": True}, "extra is missing or not of type int"),
        ({"extra": -1}, "extra must be at least 0, got -1"),
        ({"vocabulary": ["a", "a"]}, "must be distinct"),
        ({"vocabulary": ["a", 2]}, r"vocabulary\[1\]: expected a string, got 2"),
        ({"scores": [1.0]}, "expected 2 scores for 2 tokens of kind bpe, got 1"),
        ({"scores": [1.0, "x"]}, r"scores\[1\]: expected a number, got 'x'"),
        ({"normalization": None}, "normalization: charsmap is missing or not of type str"),
    ],
)
def test_fields_that_make_no_vocabulary_are_named(change, message):
    fields = Subwords("bpe", ("a", "b"), (0.0, -1.0)).to_json()
    with pytest.raises(ValueError, match=message):
        Subwords.from_json(fields | change)


def test_many_words_do_not_fill_the_memory(trained, monkeypatch):
    monkeypatch.setattr("jaxnlp.text.subwords._MOST_KEPT", 10)
    subwords = Subwords.from_json(trained["bpe"].to_json())
    for number in range(50):
        assert subwords.decode(subwords.encode(f"sea {number}")) == f"sea {number}"
    assert len(subwords._kept) <= 12


def test_shown_it_has_its_kind_and_its_size_instead_of_its_tokens(trained):
    assert repr(trained["bpe"]) == f"Subwords(bpe, {trained['bpe'].size} tokens)"
    assert repr(Subwords("words", tuple(map(str, range(2000))))) == "Subwords(words, 2,004 tokens)"
