import json

import pytest

from tests.decoder_folders import END, save_tokenizer
from tests.encoder_folders import TEXTS, random_texts
from tests.jaxnlp.text.tokenizer_classes.test_gpt2 import assert_alike, change

STRANGE = [
    "don't WE'LL x_y 12345 3.14\r\n\r\nnext  \n line \t",
    "cafe\u0301 \u1e9b\u0323 \u2126 \ufb01n",
    *TEXTS,
    *random_texts(60),
]


@pytest.fixture
def folder(tmp_path):
    save_tokenizer(tmp_path, "qwen2")
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    return tmp_path


@pytest.mark.parametrize(
    "changes",
    [{}, {"add_prefix_space": None}, {"tokenizer_class": "absent"}, {"eos_token": "<|im_end|>"}, {"unk_token": None}],
    ids=str,
)
def test_each_setting_changes_tokens_as_in_transformers(folder, changes, tmp_path):
    change(folder, "tokenizer_config.json", **changes)
    ours = assert_alike(folder, STRANGE)
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again", max_length=9)
    (tmp_path / "again" / "config.json").write_text('{"model_type": "qwen3"}')
    assert assert_alike(tmp_path / "again", STRANGE) == ours
    assert ours.start is None


def test_qwen2_has_this_class_whatever_its_files_say(folder):
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    change(folder, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    whole = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(whole | {"normalizer": None}))
    ours = assert_alike(folder, STRANGE)
    assert ours.decode(ours.encode("cafe\u0301")) == "caf\u00e9"


def test_a_token_that_a_setting_says_is_none_is_no_token_with_this_name(folder):
    none = {"341": {"content": "None", "special": False}}
    change(folder, "tokenizer_config.json", bos_token=None, added_tokens_decoder=none)
    ours = assert_alike(folder, [*STRANGE, "None of them"])
    assert ours.id_of("None") is not None
    assert "bos_token" not in ours.named


def test_a_tokenizer_without_the_tokens_of_its_class_is_written_without_them(folder, tmp_path):
    """As that of a Qwen2 that was trained further with other special tokens."""
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    names = {"bos_token": "<begin>", "eos_token": "<end>", "pad_token": "<end>", "unk_token": None}
    change(folder, "tokenizer_config.json", **names, added_tokens_decoder="absent")
    whole = json.loads((folder / "tokenizer.json").read_text())
    del whole["model"]["vocab"][END]
    (folder / "tokenizer.json").write_text(json.dumps(whole | {"added_tokens": []}))
    ours = assert_alike(folder, STRANGE)
    assert ours.id_of(END) is None
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again", max_length=9)
    (tmp_path / "again" / "config.json").write_text('{"model_type": "qwen2"}')
    assert assert_alike(tmp_path / "again", [*STRANGE, END]) == ours


def test_accents_become_one_character_with_their_letter(folder):
    ours = assert_alike(folder, STRANGE)
    assert ours.decode(ours.encode("cafe\u0301")) == "caf\u00e9"


@pytest.mark.thorough
def test_ten_thousand_random_texts_of_every_script_have_the_tokens_and_texts_of_transformers(folder):
    assert_alike(folder, random_texts(10_000, seed=1))
