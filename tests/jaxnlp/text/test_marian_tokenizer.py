"""Pieces that are looked up in a table have the ids and the texts of Transformers."""

import json
import random

import pytest
import transformers

from jaxnlp.saving.serialization import processor_from_json, processor_to_json
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.marian_tokenizer import MarianTokenizer
from jaxnlp.text.translation import TranslationProcessor
from tests.encoder_folders import TEXTS, random_texts
from tests.jaxnlp.text.test_sentencepiece import random_text
from tests.marian_folders import save_tokenizer

CASES = [
    *TEXTS,
    *(">>fra<< the cat", ">>xyz<< the cat", "the</s>cat >>fra<<dog", "<pad>a<unk> b ÿÿÿ zz", "", "  ", ">>fra<<"),
    *("<unk>>>fra<<the", "a<<b >> c", ">> the cat << x", ">>the\ncat<< x", "<unk><unk> ▁ x", ">>\ud7ff<<"),
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = save_tokenizer(folder)
    return folder, tokenizer, MarianTokenizer.of_folder(folder, len(tokenizer) - 1)


def assert_same_text(tokenizer, held, ids):
    ids = [one for one in ids if one != held.end]
    assert held.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True), ids


def assert_equal(tokenizer, held, texts):
    """Ids of sources and targets, and texts of ids, are those of Transformers."""
    for text in texts:
        sources, targets = tokenizer(text)["input_ids"], tokenizer(text_target=text)["input_ids"]
        assert [*held.encode(text), held.end] == sources, text
        assert [*held.encode_target(text), held.end] == targets, text
        for ids in (sources, targets):
            assert_same_text(tokenizer, held, ids)


def test_tokens_and_texts_are_those_of_transformers(tiny):
    _, tokenizer, held = tiny
    assert_equal(tokenizer, held, CASES)
    assert held.encode(TEXTS[1]) != held.encode_target(TEXTS[1])
    assert held.unknown in held.encode("ÿÿÿ zz")
    assert held.tokens([held.id_of(">>fra<<"), 999]) == [">>fra<<", "<id 999>"]


def test_texts_of_random_ids_are_those_of_transformers_without_special_tokens(tiny):
    _, tokenizer, held = tiny
    generator = random.Random(0)
    for _ in range(100):
        assert_same_text(tokenizer, held, [*generator.choices(range(held.size), k=9), held.unknown, 5])


@pytest.mark.thorough
@pytest.mark.parametrize("kinds", [("unigram", "bpe"), ("bpe", "unigram")], ids=str)
def test_tokens_and_texts_of_random_texts_are_those_of_transformers(kinds, tmp_path):
    tokenizer = save_tokenizer(tmp_path, kinds=kinds, clean_up_tokenization_spaces=True)
    held = MarianTokenizer.of_folder(tmp_path, len(tokenizer) - 1)
    generator = random.Random(0)
    texts = [random_text(generator) + generator.choice(["", " .", "</s>", "<unk>", " n't"]) for _ in range(1000)]
    texts += [" ".join(generator.choice(TEXTS).split()[::-1]) for _ in range(100)]
    assert_equal(tokenizer, held, [*CASES, *texts])


@pytest.mark.thorough
def test_tokens_and_texts_of_every_script_are_those_of_transformers(tiny):
    _, tokenizer, held = tiny
    assert_equal(tokenizer, held, random_texts(10_000, seed=1))


def test_a_processor_is_read_back_equal_and_written_again_with_the_same_files(tiny, tmp_path):
    folder, tokenizer, held = tiny
    processor = TranslationProcessor(held, held)
    read = processor_from_json(json.loads(json.dumps(processor_to_json(processor))))
    assert read == processor
    assert read.shared
    assert list(read("the cat", "the cat")["inputs"][0]) == [held.start, *held.encode_target("the cat")]
    read.target.save(tmp_path, max_length=77)
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.model_max_length, theirs.get_vocab()) == (77, tokenizer.get_vocab())
    assert MarianTokenizer.of_folder(tmp_path, held.start) == held


def test_two_tables_have_the_ids_of_transformers_and_are_written_again(tmp_path):
    tokenizer = save_tokenizer(tmp_path, separate=True)
    target = MarianTokenizer.of_folder(tmp_path, tokenizer.pad_token_id)
    source = target.of_sources()
    processor = TranslationProcessor(source, target)
    assert not processor.shared
    assert processor_from_json(json.loads(json.dumps(processor_to_json(processor)))) == processor
    assert (source.size, target.size) == (len(tokenizer.encoder), len(tokenizer.target_encoder))
    for text in CASES:
        assert processor.encode_source(text) == tokenizer(text)["input_ids"], text
        ids = processor.encode_target(text)
        assert ids == tokenizer(text_target=text)["input_ids"], text
        assert_same_text(tokenizer, target, ids)
    target.save(tmp_path, max_length=77)
    assert MarianTokenizer.of_folder(tmp_path, target.start) == target
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).target_encoder == tokenizer.target_encoder
    (tmp_path / "target_vocab.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no target_vocab\.json, which MarianTokenizer needs with separate"):
        MarianTokenizer.of_folder(tmp_path, 3)


REFUSED = [
    ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs"),
    ({"tokenizer_class": "T5Tokenizer"}, "tokenizer_class 'T5Tokenizer', expected 'MarianTokenizer'"),
    ({"additional_special_tokens": ["<eop>"]}, "additional_special_tokens"),
    ({"unk_token": "<none>"}, "<none>"),
    ({"eos_token": {"content": "</s>", "lstrip": True}}, "without lstrip"),
    ({"added_tokens_decoder": {"94": {"content": "<x>"}}}, "'<x>'} is not supported"),
    ({"added_tokens_decoder": {"5": {"content": "</s>"}}}, "with their ids in vocab.json"),
    ({"window": 3}, "unknown settings: window"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_settings_that_change_tokens_and_are_not_supported_are_refused_by_name(changes, message, tiny, tmp_path):
    for file in tiny[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ValueError, match=message):
        MarianTokenizer.of_folder(tmp_path, 3)


def test_files_that_are_missing_or_damaged_are_named(tiny, tmp_path):
    for file in tiny[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "source.spm").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"source\.spm is not a SentencePiece model"):
        MarianTokenizer.of_folder(tmp_path, 3)
    (tmp_path / "source.spm").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no source\.spm"):
        MarianTokenizer.of_folder(tmp_path, 3)


def test_half_characters_and_wrong_fields_are_refused(tiny):
    held = tiny[2]
    with pytest.raises(UnknownTokenError, match="not Unicode"):
        held.encode_target("\ud800")
    fields = held.to_json()
    for name, value in (("models", ["a"]), ("models", [1, 2]), ("never", ["a"]), ("pieces", []), ("clean_up", None)):
        with pytest.raises(ValueError, match="subwords"):
            MarianTokenizer.from_json(fields | {name: value})
