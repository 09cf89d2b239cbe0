import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from jaxnlp.text import UnknownTokenError
from jaxnlp.text.byte_pairs import BytePairs

TEXT = "the cat and the dog; the cat, the hat\n" * 20
PAIRS = BytePairs.of([TEXT], 266)


@pytest.mark.parametrize("text", ["", "the cat", "  two\n\n lines\t", "na\u00efve \u6587\U0001f600", "<|endoftext|>"])
def test_every_text_has_tokens_that_give_it_back(text):
    tokens = PAIRS.encode(text)
    assert tokens.dtype == np.int32
    assert PAIRS.decode(tokens) == text


def test_frequent_words_are_one_token_and_a_text_has_no_more_tokens_than_bytes():
    assert PAIRS.size == 266
    assert len(PAIRS.encode(" the")) == 1
    assert len(PAIRS.encode("\u6587")) == 3
    assert 256 < BytePairs.of(["ab" * 5], 10_000).size < 270


def test_texts_are_rows_that_are_padded_at_their_end():
    tokens = PAIRS(["the", "\u6587"])["tokens"]
    assert tokens.shape == (2, 3)
    assert PAIRS.decode(tokens[1]) == "\u6587"


def test_a_tokenizer_is_read_back_from_json_and_from_a_file(tmp_path):
    again = BytePairs.from_json(json.loads(json.dumps(PAIRS.to_json())))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(PAIRS.to_json()["tokenizer"]))
    assert again == PAIRS == BytePairs.from_file(path)
    assert hash(again) == hash(PAIRS)
    assert again != BytePairs.of([TEXT], 260)


def test_a_file_that_cuts_and_pads_texts_is_read_without_that(tmp_path):
    whole = Tokenizer.from_str(json.dumps(PAIRS.to_json()["tokenizer"]))
    whole.enable_truncation(4)
    whole.enable_padding(length=9)
    whole.save(str(tmp_path / "tokenizer.json"))
    pairs = BytePairs.from_file(tmp_path / "tokenizer.json")
    assert pairs.decode(pairs.encode(TEXT)) == TEXT
    assert len(pairs.encode("a")) == 1


def test_a_tokenizer_that_changes_texts_is_refused():
    changed = Tokenizer.from_str(json.dumps(PAIRS.to_json()["tokenizer"]))
    changed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    with pytest.raises(ValueError, match=r"gives .* back unchanged"):
        BytePairs(changed)
    changed = Tokenizer.from_str(json.dumps(PAIRS.to_json()["tokenizer"]))
    changed.normalizer = normalizers.NFC()
    with pytest.raises(ValueError, match=r"gives .* back unchanged"):
        BytePairs(changed)


def test_files_without_byte_level_bpe_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json; give a tokenizer\.json"):
        BytePairs.from_file(path)
    path.write_text("[1, 2")
    with pytest.raises(ValueError, match=r"tokenizer\.json: "):
        BytePairs.from_file(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a tokenizer"):
        BytePairs.from_file(path)
    words = Tokenizer(models.WordLevel({"the": 0, "?": 1}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    path.write_text(words.to_str())
    with pytest.raises(ValueError, match="expected byte-level BPE"):
        BytePairs.from_file(path)


def test_what_is_not_unicode_is_refused():
    with pytest.raises(UnknownTokenError, match="not Unicode"):
        PAIRS.encode("a\ud800")
