import json

import pytest
from transformers import AutoTokenizer

from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from tests.encoder_folders import TEXTS, random_texts, save_tokenizer

TEXTS = [*TEXTS, " blank first", "two  blanks", *random_texts(60)]


@pytest.fixture
def folder(tmp_path):
    save_tokenizer("roberta", tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    return tmp_path


def change(folder, name, **changes):
    file = folder / name
    held = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in held.items() if value != "absent"}))


def assert_alike(folder):
    ours, theirs = EncoderVocabulary.of_folder(folder), AutoTokenizer.from_pretrained(folder)
    found = [ids.tolist() for ids in ours.tokenize(TEXTS, [*TEXTS[1:], "a"], max_length=10_000).tokens]
    assert found == theirs(TEXTS, [*TEXTS[1:], "a"])["input_ids"]
    offsets = [ours.tokenizer.encode(text).offsets for text in TEXTS]
    assert offsets == theirs(TEXTS, return_offsets_mapping=True)["offset_mapping"]
    return ours


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"add_prefix_space": True},
        {"trim_offsets": False},
        {"tokenizer_class": "RobertaTokenizerFast"},
        {"tokenizer_class": "absent"},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"mask_token": "<m>"},
        {"add_bos_token": False},
        {"cls_token": "<cls>", "sep_token": "<sep>"},
    ],
    ids=str,
)
def test_each_setting_changes_tokens_and_offsets_as_in_transformers(folder, changes, tmp_path):
    change(folder, "tokenizer_config.json", **changes)
    ours = assert_alike(folder)
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again")
    (tmp_path / "again" / "config.json").write_text('{"model_type": "roberta"}')
    assert assert_alike(tmp_path / "again") == ours


def test_a_folder_with_vocabulary_and_merges_is_read(folder):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]))
    whole = EncoderVocabulary.of_folder(folder)
    (folder / "tokenizer.json").unlink()
    ours = assert_alike(folder)
    assert ours.tokenizer.get_vocab() == whole.tokenizer.get_vocab()
    (folder / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"has neither tokenizer.json nor vocab.json and merges.txt"):
        EncoderVocabulary.of_folder(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_prefix_space": "yes"}, "add_prefix_space must be true or false, got 'yes'"),
        ({"tokenizer_class": "BloomTokenizer"}, "BloomTokenizer is not supported; .*set tokenizer_class to it in"),
        ({"tokenizer_class": "BertTokenizer"}, "is not a WordPiece tokenizer: expected a WordPiece .*got BPE"),
        ({"dropout": 0.1}, "unknown settings: dropout"),
    ],
    ids=str,
)
def test_settings_that_would_change_tokens_are_refused_by_name(folder, changes, message):
    change(folder, "tokenizer_config.json", **changes)
    with pytest.raises(ValueError, match=message):
        EncoderVocabulary.of_folder(folder)
