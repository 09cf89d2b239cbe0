import json

import pytest
from transformers import AutoTokenizer

from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from tests.encoder_decoder_folders import save_tokenizer
from tests.encoder_folders import TEXTS, random_texts

MARKS = "A cat , a dog . Is n't it ' big ' ? It 's , they 've ! I 'm .  . we 're"
TEXTS = [
    *TEXTS,
    MARKS,
    " blank first",
    "two  blanks",
    "\ufb01ne \uff26ull",
    "a <extra_id_1> b</s>c",
    "",
    *random_texts(60),
]

CORRUPT = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"


@pytest.fixture
def folder(tmp_path):
    save_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    return tmp_path


def change(folder, **changes):
    file = folder / "tokenizer_config.json"
    held = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in held.items() if value != "absent"}))


def assert_alike(folder, texts=TEXTS):
    """The same ids, and the same texts of ids."""
    ours, theirs = PretrainedSubwords.of_folder(folder, 0), AutoTokenizer.from_pretrained(folder)
    expected = theirs(texts)["input_ids"]
    assert [[*ours.encode(text), ours.end] for text in texts] == expected
    assert ours.size == len(theirs)
    for rows in (expected, [ids[::-1] for ids in expected]):
        whole = [[one for one in ids if one != ours.end] for ids in rows]
        kept = [[one for one in ids if one not in (ours.padding, ours.unknown)] for ids in whole]
        assert list(map(ours.decode, whole)) == [theirs.decode(ids) for ids in kept]
    return ours


@pytest.mark.thorough
def test_ten_thousand_random_texts_of_every_script_have_the_tokens_and_texts_of_transformers(folder):
    assert_alike(folder, random_texts(10_000, seed=1))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tokenizer_class": "T5TokenizerFast"},
        {"tokenizer_class": "absent"},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"tokenizer_class": "MT5Tokenizer", "extra_ids": 7, "extra_special_tokens": "absent"},
        {"extra_ids": 0},
        {"extra_ids": 7},
        {"extra_ids": "absent", "extra_special_tokens": "absent"},
        {"extra_ids": 7, "extra_special_tokens": "absent"},
        {"extra_ids": 7, "extra_special_tokens": []},
        {"extra_ids": 7, "extra_special_tokens": {}},
        {"extra_special_tokens": ["<more>", "cat"]},
        {"extra_special_tokens": {"more_token": "<more>"}, "extra_ids": 6},
        {"additional_special_tokens": [f"<extra_id_{index}>" for index in range(4)], "extra_special_tokens": "absent"},
        {"pad_token": "<none>"},
        {"clean_up_tokenization_spaces": True},
        {"clean_up_tokenization_spaces": True, "tokenizer_class": "PreTrainedTokenizerFast"},
        {"model_max_length": 9, "padding_side": "right", "legacy": False},
    ],
    ids=str,
)
def test_each_setting_changes_tokens_as_in_transformers(folder, changes, tmp_path):
    change(folder, **changes)
    ours = assert_alike(folder)
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again", max_length=12)
    (tmp_path / "again" / "config.json").write_text('{"model_type": "t5"}')
    assert assert_alike(tmp_path / "again") == ours
    assert AutoTokenizer.from_pretrained(tmp_path / "again").model_max_length == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra_ids": -1}, "extra_ids must be a whole number, got -1"),
        ({"extra_ids": 3, "additional_special_tokens": ["<extra_id_0>"]}, "has 1 sentinels, but extra_ids is 3"),
        ({"tokenizer_class": "BertTokenizer"}, "is not a WordPiece tokenizer: expected a WordPiece .*got Unigram"),
        ({CORRUPT: True}, f"{CORRUPT} True, expected False"),
        ({"split_special_tokens": True}, "split_special_tokens True, expected False"),
        ({"tokenizer_class": "RobertaTokenizer"}, "expected a BPE tokenizer"),
        ({"sampling": 0.1}, "unknown settings: sampling"),
    ],
    ids=str,
)
def test_settings_that_would_change_tokens_are_refused_by_name(folder, changes, message):
    change(folder, **changes)
    with pytest.raises(ValueError, match=message):
        PretrainedSubwords.of_folder(folder, 0)


def test_templates_without_an_end_are_refused(folder):
    change(folder, tokenizer_class="PreTrainedTokenizerFast")
    whole = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(whole | {"post_processor": None}))
    with pytest.raises(ValueError, match=r"only </s> may be added to a text, at its end, .*got \['▁a'\]"):
        PretrainedSubwords.of_folder(folder, 0)


def test_a_folder_with_only_a_sentencepiece_model_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "spiece.model").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json"):
        PretrainedSubwords.of_folder(folder, 0)
