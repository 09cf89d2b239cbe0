import json

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from jaxnlp.text import UnknownTokenError, byte_pairs
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


STRANGE = (
    " can't we'll  two  blanks\t \n\n one.\ntwo 12 345\nx_y \u6587\u5b57 \u6587\n"
    "cafe\u0301 e\u0301 \U0001f600 \u00b2 a end"
)
WORDS = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The expression of newer tokenizers, in which a sign and the end of its line are one word."""


def newer(trained_on):
    """A tokenizer with that expression, and one without any, whose tokens cross words."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(WORDS, "isolated") if trained_on == "words" else None
    blind = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, blind]) if split else blind
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = [line + "\n" for line in (TEXT + STRANGE).splitlines()] * 3
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    return tokenizer


def added(*tokens):
    tokenizer = Tokenizer.from_str(json.dumps(PAIRS.to_json()["tokenizer"]))
    tokenizer.add_tokens([AddedToken(content, **options) for content, options in tokens])
    return tokenizer


TOKENIZERS = {
    "learned": lambda: added(),
    "newer": lambda: newer("words"),
    "without_words": lambda: newer("text"),
    "added_words": lambda: added(("two 12", {}), ("we", {})),
    "added_blank": lambda: added(("cat ", {})),
    "added_with_blanks_after_it": lambda: added(("the", {"rstrip": True}), ("cat", {"lstrip": True})),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_text_in_pieces_has_the_tokens_of_the_whole(monkeypatch, kind):
    tokenizer = TOKENIZERS[kind]()
    text = (STRANGE + TEXT[:200]) * 3
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    for size in (1, 5, 40):
        monkeypatch.setattr(byte_pairs, "PIECE", size)
        np.testing.assert_array_equal(BytePairs(tokenizer).encode(text), whole)


def test_a_long_text_is_encoded_and_learned_from_in_pieces(monkeypatch):
    whole, text, sizes = BytePairs.of([STRANGE + TEXT], 300), STRANGE + TEXT * 50, []
    assert max(map(len, byte_pairs._pieces(text))) == len(text)
    monkeypatch.setattr(byte_pairs, "PIECE", 40)
    pieces = list(byte_pairs._pieces(text))
    assert "".join(pieces) == text
    assert 40 <= min(map(len, pieces[:-1])) <= max(map(len, pieces)) < 60
    assert BytePairs.of([STRANGE + TEXT], 300) == whole

    class Recorded:
        def encode_batch_fast(self, batch, **options):
            sizes.extend(map(len, batch))
            return whole._tokenizer.encode_batch_fast(batch, **options)

    pairs = BytePairs.from_json(whole.to_json())
    pairs._tokenizer = Recorded()
    np.testing.assert_array_equal(pairs.encode(text), whole.encode(text))
    assert sizes == list(map(len, pieces))


def test_ids_with_gaps_are_refused_with_the_first_missing_one(tmp_path):
    fields = PAIRS.to_json()
    fields["tokenizer"]["model"]["vocab"]["\u0120the"] = 900
    with pytest.raises(ValueError, match=r"ids without gaps, got 266 ids up to 900, and not 2[56]\d"):
        BytePairs.from_json(fields)


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


def test_the_hash_is_computed_once_since_each_call_of_a_model_needs_it(monkeypatch):
    made = BytePairs.from_json(PAIRS.to_json())
    before = hash(made)
    monkeypatch.setattr(made, "_tokenizer", None)
    assert hash(made) == before


def test_a_file_that_cuts_and_pads_texts_is_read_without_that(tmp_path):
    whole = Tokenizer.from_str(json.dumps(PAIRS.to_json()["tokenizer"]))
    whole.enable_truncation(4)
    whole.enable_padding(length=9)
    whole.save(str(tmp_path / "tokenizer.json"))
    pairs = BytePairs.from_file(tmp_path / "tokenizer.json")
    assert pairs.decode(pairs.encode(TEXT)) == TEXT
    assert len(pairs.encode("a")) == 1


def test_a_tokenizer_that_changes_texts_is_refused_but_not_their_normal_form():
    changed = Tokenizer.from_str(json.dumps(PAIRS.to_json()["tokenizer"]))
    changed.normalizer = normalizers.NFC()
    pairs = BytePairs(changed)
    assert pairs.decode(pairs.encode("cafe\u0301")) == "caf\u00e9"
    changed.normalizer = normalizers.Lowercase()
    with pytest.raises(ValueError, match=r"gives .* back unchanged"):
        BytePairs(changed)


def test_a_tokenizer_may_put_a_blank_before_a_text_but_not_before_its_pieces(monkeypatch):
    changed = Tokenizer.from_str(json.dumps(PAIRS.to_json()["tokenizer"]))
    changed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    pairs = BytePairs(changed)
    monkeypatch.setattr(byte_pairs, "PIECE", 4)
    assert pairs.decode(pairs.encode(TEXT)) == f" {TEXT}"


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
