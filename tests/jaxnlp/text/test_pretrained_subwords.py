import json
import random

import pytest

from jaxnlp.text import UnknownTokenError
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from jaxnlp.text.translation import Symbols, TranslationProcessor
from tests import bart_folders
from tests.encoder_decoder_folders import save_tokenizer


@pytest.fixture(scope="module")
def subwords(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subwords")
    save_tokenizer(folder)
    (folder / "config.json").write_text('{"model_type": "t5"}')
    return PretrainedSubwords.of_folder(folder, 0)


def test_special_tokens_have_the_ids_of_the_model_and_sentinels_are_last(subwords):
    assert (subwords.padding, subwords.end, subwords.unknown, subwords.start) == (0, 1, 2, 0)
    assert [subwords.extra_id(index) for index in range(subwords.extra)] == [98, 97, 96, 95]
    assert subwords.tokens([0, 1, 2, 98, 103]) == ["<pad>", "</s>", "<unk>", "<extra_id_0>", "<id 103>"]
    with pytest.raises(ValueError, match="extra symbol 4 does not exist: this vocabulary has 4"):
        subwords.extra_id(4)


def test_a_text_ends_at_the_first_end_and_has_no_padding(subwords):
    ids = subwords.encode("the cat")
    assert subwords.decode([0, *ids, 0, 1, *ids]) == "the cat"
    assert subwords.decode([*ids, 98]) == "the cat<extra_id_0>"
    assert subwords.decode([]) == subwords.decode([103]) == ""


@pytest.mark.parametrize(("save", "model_type"), [(save_tokenizer, "t5"), (bart_folders.save_tokenizer, "bart")])
def test_texts_of_random_ids_are_those_of_transformers_without_special_tokens(save, model_type, tmp_path):
    theirs = save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    ours = PretrainedSubwords.of_folder(tmp_path, theirs.pad_token_id)
    written = {theirs.mask_token_id, *map(ours.extra_id, range(ours.extra))}  # ours has the text of these
    ids = [one for one in range(ours.size) if one not in (ours.end, *written)]
    generator = random.Random(0)
    rows = [[*generator.choices(ids, k=9), ours.unknown, ids[-1]] for _ in range(100)]
    assert list(map(ours.decode, rows)) == theirs.batch_decode(rows, skip_special_tokens=True)


def test_json_gives_an_equal_tokenizer_whose_json_is_the_same(subwords):
    read = PretrainedSubwords.from_json(json.loads(json.dumps(subwords.to_json())))
    assert (read, hash(read)) == (subwords, hash(subwords))
    assert json.dumps(read.to_json()) == json.dumps(subwords.to_json())
    assert read.encode("Der große Hund") == subwords.encode("Der große Hund")
    assert PretrainedSubwords.from_json(subwords.to_json() | {"start": 1}) != subwords
    assert subwords != "subwords"


def test_a_processor_puts_its_start_and_end_around_texts(subwords):
    processor = TranslationProcessor(subwords, subwords)
    ids = subwords.encode("the cat")
    batch = processor(["the cat"], ["the cat"])
    assert batch["source"].tolist() == [[*ids, 1]]
    assert batch["inputs"].tolist() == [[0, *ids]]
    assert processor.encode_target("the cat") == [*ids, 1]
    assert (processor.symbols, processor.shared) == (Symbols(0, 1), True)
    assert TranslationProcessor.from_json(json.loads(json.dumps(processor.to_json()))) == processor


def test_texts_and_options_that_do_not_fit_are_refused(subwords):
    with pytest.raises(UnknownTokenError, match="is not Unicode"):
        subwords.encode("\ud800")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": {}}, "subwords: not a tokenizer"),
        ({"named": {"pad_token": "<pad>"}}, "expected a tokenizer with the tokens pad_token, eos_token, unk_token"),
        ({"named": {"pad_token": "<pad>", "eos_token": "<e>", "unk_token": "<unk>"}}, "expected a tokenizer with"),
        ({"start": -1}, "expected the id of the start symbol, got -1"),
        ({"start": "0"}, "start"),
    ],
)
def test_json_that_is_not_such_a_tokenizer_is_refused(changes, message, subwords):
    with pytest.raises(ValueError, match=message):
        PretrainedSubwords.from_json(subwords.to_json() | changes)
