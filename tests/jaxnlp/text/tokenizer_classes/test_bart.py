import json

import pytest
from transformers import AutoTokenizer

from jaxnlp.text.generation_constraints import GenerationConstraints
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from tests.bart_folders import save_tokenizer
from tests.encoder_folders import TEXTS, random_texts

TEXTS = [*TEXTS, " blank first", "two  blanks", "one<mask>two <mask>", "a</s>b", "<s>", "", "\n", *random_texts(60)]


@pytest.fixture
def folder(tmp_path):
    save_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    return tmp_path


def change(folder, **changes):
    file = folder / "tokenizer_config.json"
    held = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in held.items() if value != "absent"}))


def assert_alike(folder, texts=TEXTS):
    """The same ids, and the same texts of ids without start, end and padding."""
    ours, theirs = PretrainedSubwords.of_folder(folder, 2), AutoTokenizer.from_pretrained(folder)
    expected = theirs(texts)["input_ids"]
    assert [[*ours.encode(text), ours.end] for text in texts] == expected
    assert ours.size == len(theirs)
    for rows in (expected, [ids[::-1] for ids in expected]):  # backwards, characters are not whole
        whole = [[one for one in ids if one != ours.end] for ids in rows]
        kept = [[one for one in ids if one not in (ours.padding, ours.unknown, *ours.first)] for ids in whole]
        assert list(map(ours.decode, whole)) == [theirs.decode(ids) for ids in kept]
    return ours


@pytest.mark.thorough
def test_ten_thousand_random_texts_of_every_script_have_the_tokens_and_texts_of_transformers(folder):
    assert_alike(folder, random_texts(10_000, seed=1))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"add_prefix_space": True},
        {"tokenizer_class": "BartTokenizer"},
        {"tokenizer_class": "BartTokenizerFast"},
        {"tokenizer_class": "absent"},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"mask_token": "<m>"},
        {"model_max_length": 1024, "trim_offsets": False},
    ],
    ids=str,
)
def test_each_setting_changes_tokens_as_in_transformers(folder, changes, tmp_path):
    change(folder, **changes)
    ours = assert_alike(folder)
    assert ours.first == [0]
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again", max_length=12)
    (tmp_path / "again" / "config.json").write_text('{"model_type": "bart"}')
    assert assert_alike(tmp_path / "again") == ours


def test_a_folder_with_vocabulary_and_merges_is_read(folder):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]))
    (folder / "tokenizer.json").unlink()
    assert_alike(folder)


def test_the_start_of_texts_is_kept_in_json_and_has_no_text(folder):
    subwords = PretrainedSubwords.of_folder(folder, 2, GenerationConstraints(forced_bos=0, forced_eos=True))
    read = PretrainedSubwords.from_json(json.loads(json.dumps(subwords.to_json())))
    assert (read, read.constraints, read.first) == (subwords, GenerationConstraints(forced_bos=0, forced_eos=True), [0])
    assert PretrainedSubwords.from_json(subwords.to_json() | {"forced_end": False}) != subwords
    assert read.decode([*read.encode("the cat"), 2, 5]) == "the cat"
    with pytest.raises(ValueError, match="forced_first: expected the id of a token or null, got '0'"):
        PretrainedSubwords.from_json(subwords.to_json() | {"forced_first": "0"})


@pytest.mark.parametrize("changes", [{"cls_token": "<cls>"}, {"sep_token": "<sep>"}], ids=str)
def test_other_tokens_around_a_text_are_refused(folder, changes):
    change(folder, **changes)
    with pytest.raises(ValueError, match="only </s> may be added to a text, at its end, and bos_token at its start"):
        PretrainedSubwords.of_folder(folder, 2)
