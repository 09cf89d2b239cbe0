import json

import pytest
from transformers import AutoTokenizer

from jaxnlp.text.byte_pairs import BytePairs
from tests.decoder_folders import save_tokenizer
from tests.encoder_folders import TEXTS, random_texts
from tests.jaxnlp.text.tokenizer_classes.test_gpt2 import change

ALL = [*TEXTS, "", " ", " blank first", "two  blanks ", "one</s>two </s>", "\n\t", "\U0001f600", *random_texts(60)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder, "llama")
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


def assert_alike(folder, texts=ALL):
    """The same ids, and for whole texts the same texts of ids."""
    ours, theirs = BytePairs.of_folder(folder), AutoTokenizer.from_pretrained(folder)
    expected = theirs(texts)["input_ids"]
    assert [ours.encode(text).tolist() for text in texts] == expected
    found = [ours.decode(ids) for ids in expected]
    assert found == [theirs.decode(ids[1:] if ours.start is not None else ids) for ids in expected]
    return ours


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"add_bos_token": False},
        {"legacy": True},
        {"add_prefix_space": False},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
    ],
    ids=str,
)
def test_each_setting_changes_tokens_as_in_transformers(folder, changes, tmp_path):
    change(folder, "tokenizer_config.json", **changes)
    ours = assert_alike(folder)
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again", max_length=9)
    (tmp_path / "again" / "config.json").write_text('{"model_type": "llama"}')
    assert assert_alike(tmp_path / "again") == ours
    assert BytePairs.from_json(json.loads(json.dumps(ours.to_json()))) == ours


EARLIER = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ],
    },
    "pre_tokenizer": None,
}
"""Parts of tokenizer.json as Transformers 4 wrote it: a blank at the start of a text becomes two."""


def test_without_the_name_of_its_class_tokenizer_json_is_used_unchanged(folder):
    whole = json.loads((folder / "tokenizer.json").read_text()) | EARLIER
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    found = []
    for name in ("LlamaTokenizer", "absent"):
        change(folder, "tokenizer_config.json", tokenizer_class=name)
        found.append(assert_alike(folder).encode(" The").size)
    assert found[1] == found[0] + 1


def test_a_text_starts_with_its_token_and_what_continues_it_keeps_its_blank(folder):
    ours = BytePairs.of_folder(folder)
    whole = ours.encode("The cat sat.")
    assert whole[0] == ours.start == ours.id_of("<s>")
    assert ours.encode(" The cat sat.", starts=False).tolist() == whole[1:].tolist()
    for first, second in (
        ("The cat", " sat."),
        ("The c", "at"),
        ("The cat sat", "."),
        ("a", "\n"),
        ("a\n", "b"),
        ("a", ""),
    ):
        ids = [*ours.encode(first), *ours.encode(second, starts=False)]
        assert ours.decode(ids) == first + second
        assert len(ours.encode(second, starts=False)) <= len(second)
    assert ours.encode("").tolist() == [ours.start]
    for cut in range(2, len(whole)):
        assert ours.decode(whole[:cut]) + ours.decode(whole[cut:]) == "The cat sat."


def test_a_start_token_within_a_text_is_part_of_it(folder):
    ours, theirs = BytePairs.of_folder(folder), AutoTokenizer.from_pretrained(folder)
    first, second = ours.encode("The cat", starts=False).tolist(), ours.encode("sat.").tolist()
    assert ours.decode(second) == "sat."
    for split in range(len(second) + 1):
        parts = [ours.decode(part, starts=False) for part in (second[:split], second[split:])]
        assert "The cat" + "".join(parts) == theirs.decode(first + second)


def test_a_start_token_that_the_tokenizer_lacks_is_refused(folder):
    fields = BytePairs.of_folder(folder).to_json()
    with pytest.raises(ValueError, match=r"expected a tokenizer with its start token, got .*<none>"):
        BytePairs.from_json(fields | {"named": {"bos_token": "<none>"}})


def test_tokens_around_a_text_are_refused_unless_it_is_the_start(folder):
    change(folder, "tokenizer_config.json", bos_token="<begin>")
    with pytest.raises(ValueError, match=r"except bos_token at its start, got \['<s>', "):
        BytePairs.of_folder(folder)


def test_texts_without_a_start_token_are_read_as_in_transformers(folder):
    whole = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(whole | {"post_processor": None}))
    assert assert_alike(folder).start is None


def test_a_file_of_byte_level_bpe_is_used_unchanged_as_by_transformers(folder, tmp_path):
    save_tokenizer(tmp_path / "bytes")
    whole = json.loads((tmp_path / "bytes" / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    change(folder, "tokenizer_config.json", bos_token="absent", eos_token="absent", unk_token="absent")
    change(folder, "tokenizer_config.json", extra_special_tokens="absent")
    assert assert_alike(folder).start is None


@pytest.mark.thorough
def test_ten_thousand_random_texts_of_every_script_have_the_tokens_and_texts_of_transformers(folder):
    assert_alike(folder, random_texts(10_000, seed=1))
