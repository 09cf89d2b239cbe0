"""Texts have the tokens that Transformers gives them, and tokens the texts."""

import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.tokenizer_classes import SpecialTokens, classes, with_id
from tests.encoder_folders import TEXTS, random_texts, save_tokenizer

MODEL_TYPES = [name for one in classes() for name in one.model_types if "mask_token" in one.named]


@pytest.fixture(scope="module", params=MODEL_TYPES)
def pair(request, tmp_path_factory) -> Iterator:
    """Our vocabulary, and Transformers' tokenizer, of a folder; and the folder."""
    folder = tmp_path_factory.mktemp("tokenizer") / request.param
    save_tokenizer(request.param, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": request.param}))
    return EncoderVocabulary.of_folder(folder), AutoTokenizer.from_pretrained(folder), folder


def assert_alike(ours, theirs, texts):
    """Single texts, pairs, tokens without special ones, and texts of tokens."""
    others = [*texts[1:], "a"]
    expected, expected_pairs = theirs(texts), theirs(texts, others)
    assert [ids.tolist() for ids in ours.tokenize(texts, max_length=10_000).tokens] == expected["input_ids"]
    pairs = ours.tokenize(texts, others, max_length=10_000)
    assert [ids.tolist() for ids in pairs.tokens] == expected_pairs["input_ids"]
    zeros = [[0] * len(ids) for ids in expected_pairs["input_ids"]]
    assert [kinds.tolist() for kinds in pairs.segments] == expected_pairs.get("token_type_ids", zeros)
    plain = theirs(texts, add_special_tokens=False)["input_ids"]
    assert [ids.tolist() for ids in ours.encode_all(texts)] == plain
    for ids in expected["input_ids"]:
        found = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids) == found


def test_random_texts_of_every_script_have_the_tokens_of_transformers(pair):
    ours, theirs, _ = pair
    assert_alike(ours, theirs, [*TEXTS, "", "  ", *random_texts(300)])


@pytest.mark.thorough
def test_ten_thousand_random_texts_have_the_tokens_of_transformers(pair):
    ours, theirs, _ = pair
    assert_alike(ours, theirs, random_texts(10_000, seed=1))


@pytest.mark.parametrize("length", [6, 9, 20])
def test_long_texts_are_cut_as_in_transformers(pair, length):
    ours, theirs, _ = pair
    for second in (None, [*TEXTS[1:], "cat"]):
        found = ours.tokenize(TEXTS, second, max_length=length)
        expected = theirs(TEXTS, second, truncation="longest_first", max_length=length)["input_ids"]
        assert [ids.tolist() for ids in found.tokens] == expected
    least = ours.min_length(2)
    ours.tokenize(["cat"], ["cat"], max_length=least)
    with pytest.raises(ValueError, match=f"max_length must be at least {least}, got {least - 1}"):
        ours.tokenize(["cat"], ["cat"], max_length=least - 1)


def test_a_pair_of_long_texts_costs_what_its_texts_cost(pair):
    """All combinations of the parts that are cut off took gigabytes for two texts of 8,000 tokens."""
    ours, _, _ = pair
    one, other = "cat " * 3000, "dog " * 3000

    def seconds(texts, pairs, max_length):
        start = time.process_time()
        ours.tokenize(texts, pairs, max_length=max_length)
        return time.process_time() - start

    whole = min(seconds([one, other], None, 10_000) for _ in range(3))
    assert min(seconds([one], [other], 40) for _ in range(3)) < 5 * whole


def test_texts_of_several_threads_have_the_tokens_of_one(pair):
    """A tokenizer has settings, which threads would share."""
    ours, _, _ = pair
    texts = [*TEXTS, " ".join(TEXTS)] * 8
    length = ours.min_length() + 8

    def tokens(truncated):
        rows = ours.tokenize(texts, max_length=length).tokens if truncated else ours.encode_all(texts)
        return [row.tolist() for row in rows]

    expected = [tokens(truncated) for truncated in (True, False)] * 16
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokens, [True, False] * 16)) == expected


def test_what_is_written_and_json_read_back_equal(pair, tmp_path):
    ours, theirs, folder = pair
    ours.save(tmp_path, max_length=40)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    again = EncoderVocabulary.of_folder(tmp_path)
    assert again == ours
    assert EncoderVocabulary.from_json(json.loads(json.dumps(ours.to_json()))) == ours
    exported, texts = AutoTokenizer.from_pretrained(tmp_path), random_texts(50)
    assert exported(texts)["input_ids"] == theirs(texts)["input_ids"]
    assert exported(TEXTS, truncation=True)["input_ids"] == theirs(TEXTS, truncation=True, max_length=40)["input_ids"]


def test_added_tokens_and_special_tokens_are_those_of_transformers(pair, tmp_path):
    _, theirs, folder = pair
    theirs.add_tokens(["[drug]", "Special"])
    theirs.add_special_tokens({"additional_special_tokens": ["<img>"]})
    theirs.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    ours, again = EncoderVocabulary.of_folder(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    texts = ["a [drug] b[drug]c", "Special<img> x", *random_texts(30)]
    assert_alike(ours, again, texts)
    assert ours.size == len(again)
    assert ours.decode(again("a <img> b")["input_ids"]).split() == ["a", "b"]


def test_words_are_tokenized_as_transformers_tokenizes_split_texts(pair):
    ours, theirs, folder = pair
    if json.loads((folder / "config.json").read_text())["model_type"] == "roberta":
        theirs = AutoTokenizer.from_pretrained(folder, add_prefix_space=True)
    words = ["The", "cat's", "mats", ",", "(Rome)", "猫", "<mask>", "1,000", "naïve"]
    expected = theirs(words, is_split_into_words=True, add_special_tokens=False)
    found = [ids.tolist() for ids in ours.encode_words(words)]
    assert [*itertools.chain.from_iterable(found)] == expected["input_ids"]
    assert [len(ids) for ids in found] == [expected.word_ids().count(index) for index in range(len(words))]
    assert ours.of_words.of_words is ours.of_words


def test_lowercased_texts_have_the_tokens_of_lowercased_texts(pair):
    ours, theirs, _ = pair
    lowered = ours.lowercased()
    assert [ids.tolist() for ids in lowered.encode_all(TEXTS)] == (
        theirs([text.lower() for text in TEXTS], add_special_tokens=False)["input_ids"]
    )


def test_special_tokens_that_a_tokenizer_does_not_have_are_named(pair):
    ours, _, _ = pair
    with pytest.raises(ValueError, match=r"the vocabulary needs <p>, .*; missing: <p>"):
        EncoderVocabulary(Tokenizer.from_str(ours.tokenizer.to_str()), ours.special._replace(pad="<p>"))
    with pytest.raises(ValueError, match="the tokenizer does not have the token <p>"):
        with_id(ours.tokenizer, "<p>")
    with pytest.raises(ValueError, match="an encoder's tokenizer needs special tokens; missing: cls_token"):
        SpecialTokens.of({**ours.special.settings(), "cls_token": None})


def test_without_segments_only_the_segments_change(pair):
    ours, _, _ = pair
    whole, bare = (one.tokenize(["a cat", "b"], ["c", "d"], max_length=20) for one in (ours, ours.without_segments()))
    assert [ids.tolist() for ids in bare.tokens] == [ids.tolist() for ids in whole.tokens]
    assert {kind for kinds in bare.segments for kind in kinds.tolist()} == {0}


def test_the_hash_is_computed_once_since_each_call_of_a_model_needs_it(pair, monkeypatch):
    ours, _, folder = pair
    made = EncoderVocabulary.of_folder(folder)
    assert hash(made) == hash(ours)
    monkeypatch.setattr(made, "tokenizer", None)
    assert hash(made) == hash(ours)
