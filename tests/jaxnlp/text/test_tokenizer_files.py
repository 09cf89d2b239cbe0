"""Tokenizer folders of every kind give the tokens of Transformers' AutoTokenizer, or are refused by name."""

import base64
import inspect
import json
import re

import pytest
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from jaxnlp.text.tokenizer_classes.bert import PIECES, SPECIAL
from jaxnlp.text.tokenizer_files import (
    ADDED,
    SETTINGS,
    SPECIAL_MAP,
    TOKENIZER_PARTS,
    TOKENIZER_SETTINGS,
    WHOLE,
    read_tokenizer,
    write_tokenizer,
)
from jaxnlp.text.wordpiece import WordPieceVocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEXYZ0123456789.,!?'-_[]#@éßıσ中文本ка"
VOCABULARY = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "...", "cafe", "##fe", "drug", "the", "!!"]
TEXTS = [
    "",
    " \t\n\r ",
    "The DRUG [drug] takes[drug]effect, [drug ] [DRUG] x[drug].",
    "café CAFÉ cafe\u0301 ÉÑ ß ẞ İ \u0131 Σς \ufb01 \uff26",
    "中文字本 日本語テキスト 한국어 العربية עברית हिन्दी кака Кá",
    "[MASK] a [MASK]b [CLS] [SEP] [PAD] [UNK] [mask] x[MASK]y",
    "control\x00a\x07b\x7fc\u200bd\ufeffe\u00adf\u2028g\u0085h\u3000i\xa0j",
    "it's can't x-y a_b 1,234.5 e@x.com ...!! @@ ##a [E1] <img> spe cial special",
    "x" * 99 + " " + "x" * 101 + " a" * 9,
    "👩‍👩‍👧‍👦 🇫🇷 \U0001d4d0 \ud7ff \ufffd",
]


def write(folder, settings, **files):
    """A folder with a plain vocabulary, settings and further JSON files; None removes the vocabulary."""
    folder.mkdir(exist_ok=True)
    (folder / PIECES).write_text("".join(f"{piece}\n" for piece in VOCABULARY), encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    if settings is not None:
        (folder / SETTINGS).write_text(json.dumps(settings))
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(json.dumps(content))
    return folder


def assert_equal_to_transformers(folder):
    ours, theirs = WordPieceVocabulary.of_folder(folder), AutoTokenizer.from_pretrained(folder)
    expected = theirs(TEXTS, [*TEXTS[1:], "a"])
    found = ours.tokenize(TEXTS, [*TEXTS[1:], "a"], max_length=10_000)
    assert [ids.tolist() for ids in found.tokens] == expected["input_ids"]
    zeros = [[0] * len(ids) for ids in expected["input_ids"]]  # what a model takes when it gets no segments
    assert [ids.tolist() for ids in found.segments] == expected.get("token_type_ids", zeros)
    assert [ids.tolist() for ids in ours.encode_all(TEXTS)] == theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert ours.size == len(theirs)
    return ours


def added(content, **flags):
    names = ("lstrip", "rstrip", "single_word", "normalized", "special")
    return {"content": content, **dict.fromkeys(names, False), **flags}


LISTED = {
    str(len(VOCABULARY)): added("[drug]"),
    str(len(VOCABULARY) + 1): added("Special", normalized=True, lstrip=True, single_word=True),
    "4": added("[MASK]", special=True, lstrip=True, rstrip=True),
}


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        (None, {}),
        ({}, {}),
        ({"tokenizer_class": "BertTokenizerFast", "do_lower_case": False}, {}),
        ({"do_lower_case": False, "tokenize_chinese_chars": False, "strip_accents": True}, {}),
        ({"do_lower_case": True, "strip_accents": False, "bos_token": "[CLS]", "eos_token": "[END]"}, {}),
        ({}, {"added_tokens__json": {"[drug]": len(VOCABULARY)}}),
        ({}, {"added_tokens__json": {"[drug]": 5000, "cafe": 7, "The": 4999}}),
        ({"do_lower_case": False}, {"added_tokens__json": {"DRUG": 900, "[E1]": 901}}),
        ({"added_tokens_decoder": LISTED}, {}),
        ({"added_tokens_decoder": LISTED, "do_lower_case": False}, {"added_tokens__json": {"spe": 999}}),
        ({"additional_special_tokens": ["[E1]", "[drug]"]}, {}),
        ({"extra_special_tokens": ["[E1]"], "additional_special_tokens": ["[drug]"]}, {}),
        ({"extra_special_tokens": {"image_token": "<img>"}}, {}),
        ({"pad_token": "<pad>", "mask_token": "<mask>"}, {}),
        ({"image_token": "<img>", "mask_token": {"__type": "AddedToken", **added("[MASK]", lstrip=True)}}, {}),
        ({}, {"special_tokens_map__json": {"mask_token": added("[MASK]", rstrip=True), "unk_token": "[UNK]"}}),
        ({}, {"special_tokens_map__json": {"additional_special_tokens": ["[E1]"], "x_token": "spe"}}),
        ({"model_input_names": ["input_ids", "attention_mask"]}, {}),
        ({"added_tokens_decoder": LISTED}, {"special_tokens_map__json": {"additional_special_tokens": ["[E1]"]}}),
    ],
    ids=str,
)
def test_a_vocabulary_with_settings_gives_the_tokens_of_transformers(tmp_path, settings, files):
    ours = assert_equal_to_transformers(write(tmp_path / "theirs", settings, **files))
    (tmp_path / "ours").mkdir()
    ours.save(tmp_path / "ours", max_length=512)
    (tmp_path / "ours" / "config.json").write_text('{"model_type": "bert"}')
    again = assert_equal_to_transformers(tmp_path / "ours")
    assert again == ours
    assert WordPieceVocabulary.from_json(ours.to_json()) == ours


TEMPLATE = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
)


def whole(normalizer=None, pre_tokenizer=None, template=TEMPLATE, **options):
    """A tokenizer of parts other than BERT's."""
    ids = {piece: number for number, piece in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", **options))
    tokenizer.normalizer = normalizer or normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = template
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


OTHERS = {
    "whitespace": {"pre_tokenizer": pre_tokenizers.Whitespace()},
    "split": {"pre_tokenizer": pre_tokenizers.WhitespaceSplit(), "normalizer": normalizers.NFKC()},
    "digits": {
        "pre_tokenizer": pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True)]),
        "normalizer": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
    },
    "not_cleaned": {"normalizer": normalizers.BertNormalizer(clean_text=False, lowercase=False)},
    "short_words": {"max_input_chars_per_word": 5},
    "prefix": {"continuing_subword_prefix": "@"},
    "bert": {},
}


@pytest.mark.parametrize("class_name", ["PreTrainedTokenizerFast", "TokenizersBackend", "BertTokenizer", None])
@pytest.mark.parametrize("parts", OTHERS.values(), ids=OTHERS)
def test_another_tokenizer_json_gives_the_tokens_of_transformers(tmp_path, parts, class_name):
    tokenizer = whole(**parts)
    tokenizer.add_tokens(["[drug]", "Special"])
    tokenizer.enable_truncation(6)
    tokenizer.enable_padding(length=8)
    folder = write(tmp_path / "theirs", class_name and {"tokenizer_class": class_name, "image_token": "<img>"})
    (folder / PIECES).unlink()
    tokenizer.save(str(folder / WHOLE))
    ours = assert_equal_to_transformers(folder)
    (tmp_path / "ours").mkdir()
    write_tokenizer(ours.tokenizer, ours.special, tmp_path / "ours")
    (tmp_path / "ours" / "config.json").write_text('{"model_type": "bert"}')
    assert assert_equal_to_transformers(tmp_path / "ours") == ours


def test_what_transformers_writes_is_read_with_its_tokens(tmp_path):
    theirs = AutoTokenizer.from_pretrained(write(tmp_path / "first", {"do_lower_case": False}))
    theirs.add_tokens(["[drug]", transformers.AddedToken("cafe", single_word=True)])
    theirs.add_special_tokens({"additional_special_tokens": ["[E1]"]})
    theirs.save_pretrained(tmp_path / "theirs")
    assert_equal_to_transformers(tmp_path / "theirs")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=whole(pre_tokenizer=pre_tokenizers.Whitespace()),
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL},
    )
    fast.save_pretrained(tmp_path / "fast")
    (tmp_path / "fast" / "config.json").write_text('{"model_type": "bert"}')
    assert_equal_to_transformers(tmp_path / "fast")


@pytest.mark.parametrize(
    ("settings", "files", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, {}, "the tokenizer class BertJapaneseTokenizer is not supp"),
        ({}, {"config__json": {"tokenizer_class": "BertJapaneseTokenizer"}}, "class BertJapaneseTokenizer is not"),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, {}, "PreTrainedTokenizerFast needs tokenizer.json, not"),
        ({"truncation_side": "left"}, {}, "tokenizer_config.json: .*truncation_side 'left', expected 'right'"),
        ({"padding_side": "left"}, {}, "padding_side 'left', expected 'right'"),
        ({"split_special_tokens": True}, {}, "split_special_tokens True, expected False"),
        ({"do_basic_tokenize": False}, {}, "do_basic_tokenize False, expected True"),
        ({"never_split": ["x"]}, {}, r"never_split \['x'\], expected None or \[\]"),
        ({"clean_text": False}, {}, "clean_text False, expected True"),
        ({"wordpieces_prefix": "@"}, {}, "wordpieces_prefix '@', expected '##'"),
        ({"auto_map": {"AutoTokenizer": ["a.B", None]}}, {}, "auto_map .*expected None"),
        ({"mask_token": None}, {}, r"needs special tokens; missing: mask_token"),
        ({"word_splitter": "mecab"}, {}, "tokenizer_config.json: .*unknown settings: word_splitter; .*remove them"),
        ({}, {"special_tokens_map__json": {"word_splitter": "x"}}, "special_tokens_map.json: .*word_splitter"),
        ({}, {"added_tokens__json": []}, "added_tokens.json: expected an object, got list"),
        ({"added_tokens_decoder": {"x": {}}}, {}, "vocab.txt is not a WordPiece tokenizer"),
    ],
)
def test_what_would_change_the_tokens_is_refused_by_name(tmp_path, settings, files, message):
    with pytest.raises(ValueError, match=message):
        read_tokenizer(write(tmp_path, settings, **files))


HUGE = {
    "type": "Precompiled",
    "precompiled_charsmap": base64.b64encode((3_000_000_000).to_bytes(4, "little") + b"abcde").decode(),
}
"""For the library its table has three billion bytes, which it reserves: without them it ends the process."""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"truncation": {"direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 0}},
            "truncation_si",
        ),
        ({"post_processor": None}, r"must give \[CLS\] A \[SEP\]"),
        ({"sampler": 1}, "unknown settings: sampler"),
        ({"normalizer": HUGE}, "a charsmap of 9 bytes cannot have a trie of 3,?000,?000,?000"),
        ({"normalizer": {"type": "Sequence", "normalizers": [HUGE]}}, "a charsmap of 9 bytes cannot have a trie"),
    ],
    ids=str,
)
def test_parts_of_tokenizer_json_that_the_library_cannot_follow_are_refused(tmp_path, change, message):
    folder = write(tmp_path, {"tokenizer_class": "PreTrainedTokenizerFast"})
    (folder / WHOLE).write_text(json.dumps(json.loads(whole().to_str()) | change))
    with pytest.raises(ValueError, match=message):
        read_tokenizer(folder)


def test_a_tokenizer_json_without_a_model_is_named_with_what_it_lacks(tmp_path):
    folder = write(tmp_path, {})
    (folder / WHOLE).write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer.json is not a WordPiece tokenizer: it has no 'model'"):
        read_tokenizer(folder)


def test_all_settings_that_transformers_writes_or_reads_are_known(tmp_path):
    """Those of what it saves, of its constructors, and of what its base class takes out of its arguments."""
    theirs = AutoTokenizer.from_pretrained(write(tmp_path / "theirs", {}))
    theirs.add_tokens(["[drug]"])
    theirs.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / SETTINGS).read_text())
    base, backend = transformers.tokenization_utils_base.PreTrainedTokenizerBase, transformers.TokenizersBackend
    read = {
        name
        for function in (base.__init__, backend.__init__, base._from_pretrained)
        for name in re.findall(r"kwargs\.(?:pop|get|setdefault)\(\"(\w+)\"", inspect.getsource(function))
    }
    read |= inspect.signature(transformers.BertTokenizer).parameters.keys() | saved.keys()
    private = {"vocab", "kwargs", "merges", "tokenizer_object", "gguf_file", "fix_mistral_regex", "tokenizer", "unk_id"}
    read -= private | {"post_processor", "tokenizer_truncation", "tokenizer_padding", "model_specific_special_tokens"}
    read = {name for name in read if not name.startswith("_") and not name.endswith("_token")}
    assert len(read) > 20
    assert read - set(TOKENIZER_SETTINGS.names) == set()
    parts = json.loads((tmp_path / "saved" / WHOLE).read_text())
    assert set(TOKENIZER_PARTS.names) == set(parts)
    assert {SPECIAL_MAP, ADDED} == {"special_tokens_map.json", "added_tokens.json"}
    for known in (TOKENIZER_SETTINGS, TOKENIZER_PARTS):
        assert len(known.names) == len(set(known.names))
