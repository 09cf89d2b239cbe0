import json

import pytest
from transformers import AutoTokenizer

from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from tests.clip_folders import END, START, tokenizer
from tests.encoder_folders import TEXTS, random_texts

TEXTS = [*TEXTS, " blank first", "two \t blanks", f"one{END}two {START}", "", "It's WE'LL 1234", *random_texts(60)]


@pytest.fixture
def folder(tmp_path):
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    return tmp_path


def change(folder, name, **changes):
    file = folder / name
    held = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in held.items() if value != "absent"}))


def assert_alike(folder, texts=TEXTS):
    """The same ids, and the same texts of ids."""
    ours, theirs = EncoderVocabulary.of_folder(folder), AutoTokenizer.from_pretrained(folder)
    expected = theirs(texts)["input_ids"]
    assert [ids.tolist() for ids in ours.tokenize(texts, max_length=10_000).tokens] == expected
    return ours, theirs, expected


@pytest.mark.thorough
def test_ten_thousand_random_texts_of_every_script_have_the_tokens_and_texts_of_transformers(folder):
    ours, theirs, expected = assert_alike(folder, random_texts(10_000, seed=1))
    assert [ours.decode(ids) for ids in expected] == [theirs.decode(ids, skip_special_tokens=True) for ids in expected]


def test_tokens_become_the_texts_of_transformers(folder):
    ours, theirs, expected = assert_alike(folder)
    assert [ours.decode(ids) for ids in expected] == [theirs.decode(ids, skip_special_tokens=True) for ids in expected]
    assert ours.decode(expected[0]) == "the cat sat on the mat ."
    assert ours.decode([]) == ""
    cut = theirs(TEXTS, truncation=True, max_length=5)["input_ids"]
    assert [ids.tolist() for ids in ours.tokenize(TEXTS, max_length=5).tokens] == cut
    assert {ids[-1] for ids in cut} == {ours.id_of(END)}


ADDED = {"content": END, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"do_lower_case": False, "add_prefix_space": True, "errors": "replace"},
        {"tokenizer_class": "CLIPTokenizerFast"},
        {"tokenizer_class": "absent"},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"pad_token": "!"},
        {"unk_token": "a</w>"},
        {"eos_token": {"__type": "AddedToken", **ADDED}},
        {
            "added_tokens_decoder": {
                "542": {**ADDED, "content": START, "special": True},
                "544": {**ADDED, "content": "cat"},
            }
        },
    ],
    ids=str,
)
def test_each_setting_changes_tokens_as_in_transformers(folder, changes, tmp_path):
    change(folder, "tokenizer_config.json", **changes)
    ours, _, _ = assert_alike(folder)
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again", max_length=9)
    (tmp_path / "again" / "config.json").write_text('{"model_type": "clip"}')
    again, theirs, _ = assert_alike(tmp_path / "again")
    assert again == ours
    assert theirs.model_max_length == 9
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == (
        ours.special.cls,
        ours.special.sep,
        ours.special.pad,
    )


def test_a_folder_with_vocabulary_and_merges_is_read(folder):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]))
    whole = EncoderVocabulary.of_folder(folder)
    (folder / "tokenizer.json").unlink()
    assert assert_alike(folder)[0] == whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer_class": "BertTokenizer"}, "is not a WordPiece tokenizer: expected a WordPiece .*got BPE"),
        ({"padding_side": "left"}, "padding_side 'left', expected 'right'"),
        ({"dropout": 0.1}, "unknown settings: dropout"),
    ],
    ids=str,
)
def test_settings_that_would_change_tokens_are_refused_by_name(folder, changes, message):
    change(folder, "tokenizer_config.json", **changes)
    with pytest.raises(ValueError, match=message):
        EncoderVocabulary.of_folder(folder)


def test_a_tokenizer_that_adds_no_token_at_the_end_is_refused(folder):
    change(folder, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    change(folder, "tokenizer.json", post_processor=None)
    with pytest.raises(ValueError, match=r"its post-processor must give <\|startoftext\|> A <\|endoftext\|> and"):
        EncoderVocabulary.of_folder(folder)
