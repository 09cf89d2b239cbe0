import json

import pytest
from transformers import AutoTokenizer

from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from tests.encoder_folders import TEXTS, random_texts, save_tokenizer

TEXTS = [*TEXTS, " blank first", "two  blanks", "\ufb01ne \uff26ull", *random_texts(60)]


@pytest.fixture
def folder(tmp_path):
    save_tokenizer("xlm-roberta", tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    return tmp_path


def assert_alike(folder):
    ours, theirs = EncoderVocabulary.of_folder(folder), AutoTokenizer.from_pretrained(folder)
    found = [ids.tolist() for ids in ours.tokenize(TEXTS, [*TEXTS[1:], "a"], max_length=10_000).tokens]
    assert found == theirs(TEXTS, [*TEXTS[1:], "a"])["input_ids"]
    return ours


def test_ids_start_with_the_special_tokens_of_fairseq_and_texts_are_normalised(folder):
    ours = assert_alike(folder)
    assert ours.tokens(range(4)) == ["<s>", "<pad>", "</s>", "<unk>"]
    assert ours.tokens([ours.size - 1]) == ["<mask>"]
    assert json.loads((folder / "tokenizer.json").read_text())["normalizer"] is not None
    assert ours.encode("\uff41").tolist() == ours.encode("a").tolist()


@pytest.mark.parametrize(
    "changes", [{"add_prefix_space": False}, {"tokenizer_class": "PreTrainedTokenizerFast"}, {"cls_token": "<cls>"}]
)
def test_each_setting_changes_tokens_as_in_transformers(folder, changes):
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    if "cls_token" in changes:  # Transformers' template has bos_token in its place
        with pytest.raises(ValueError, match="its post-processor must give <cls> A </s>"):
            EncoderVocabulary.of_folder(folder)
    else:
        assert_alike(folder)


@pytest.mark.parametrize("normalizer", [None, {"type": "Sequence", "normalizers": []}])
def test_the_map_of_characters_is_found_or_there_is_none(folder, normalizer):
    whole = json.loads((folder / "tokenizer.json").read_text())
    held = whole["normalizer"]
    inside = None if normalizer is None else normalizer | {"normalizers": [{"type": "Lowercase"}, held]}
    (folder / "tokenizer.json").write_text(json.dumps(whole | {"normalizer": inside}))
    assert_alike(folder)


def test_a_folder_with_only_a_sentencepiece_model_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "sentencepiece.bpe.model").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json"):
        EncoderVocabulary.of_folder(folder)
