import json

import pytest
from transformers import AutoTokenizer

from jaxnlp.text.byte_pairs import BytePairs
from tests.decoder_folders import END, save_tokenizer
from tests.encoder_folders import TEXTS, random_texts

TEXTS = [*TEXTS, " blank first", "two  blanks", f"one{END}two {END}", "", "\n", *random_texts(60)]


@pytest.fixture
def folder(tmp_path):
    save_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    return tmp_path


def change(folder, name, **changes):
    file = folder / name
    held = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in held.items() if value != "absent"}))


def assert_alike(folder, texts=TEXTS):
    """The same ids, and the same texts of ids."""
    ours, theirs = BytePairs.of_folder(folder), AutoTokenizer.from_pretrained(folder)
    expected = theirs(texts)["input_ids"]
    assert [ours.encode(text).tolist() for text in texts] == expected
    assert [ours.decode(ids) for ids in expected] == [theirs.decode(ids) for ids in expected]
    backwards = [ids[::-1] for ids in expected]  # characters that are not whole
    assert [ours.decode(ids) for ids in backwards] == [theirs.decode(ids) for ids in backwards]
    return ours


@pytest.mark.thorough
def test_ten_thousand_random_texts_of_every_script_have_the_tokens_and_texts_of_transformers(folder):
    assert_alike(folder, random_texts(10_000, seed=1))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"add_prefix_space": True},
        {"add_bos_token": True, "add_eos_token": True},
        {"tokenizer_class": "GPT2TokenizerFast"},
        {"tokenizer_class": "absent"},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"eos_token": "<end>", "pad_token": "<pad>"},
        {"padding_side": "left", "truncation_side": "left"},
        {"vocab_size": 49_152},
        {
            "added_tokens_decoder": {
                "340": {"content": END, "special": True},
                "341": {"content": "cat", "special": False},
            }
        },
    ],
    ids=str,
)
def test_each_setting_changes_tokens_as_in_transformers(folder, changes, tmp_path):
    change(folder, "tokenizer_config.json", **changes)
    ours = assert_alike(folder)
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again", max_length=9)
    (tmp_path / "again" / "config.json").write_text('{"model_type": "gpt2"}')
    assert assert_alike(tmp_path / "again") == ours
    assert AutoTokenizer.from_pretrained(tmp_path / "again").model_max_length == 9


def test_a_folder_with_vocabulary_and_merges_is_read(folder):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"] | {END: 340}))
    lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]))
    whole = BytePairs.of_folder(folder)
    (folder / "tokenizer.json").unlink()
    ours = assert_alike(folder)
    assert (ours.size, ours.id_of(END), ours.id_of("no token")) == (whole.size, 340, None)
    change(folder, "tokenizer_config.json", add_bos_token=True)
    theirs = AutoTokenizer.from_pretrained(folder)
    ours = BytePairs.of_folder(folder)
    assert ours.encode("a cat").tolist() == theirs("a cat")["input_ids"]
    assert ours.start == 340
    change(folder, "tokenizer_config.json", add_eos_token=True)
    with pytest.raises(ValueError, match=r"no token may be added to a text, except bos_token at its start, got"):
        BytePairs.of_folder(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_prefix_space": "yes"}, "add_prefix_space must be true or false, got 'yes'"),
        ({"tokenizer_class": "BloomTokenizer"}, "BloomTokenizer is not supported; .*set tokenizer_class to it in"),
        ({"tokenizer_class": "BertTokenizer"}, "is not a WordPiece tokenizer: expected a WordPiece .*got BPE"),
        ({"split_special_tokens": True}, "split_special_tokens True, expected False"),
        ({"dropout": 0.1}, "unknown settings: dropout"),
    ],
    ids=str,
)
def test_settings_that_would_change_tokens_are_refused_by_name(folder, changes, message):
    change(folder, "tokenizer_config.json", **changes)
    with pytest.raises(ValueError, match=message):
        BytePairs.of_folder(folder)
