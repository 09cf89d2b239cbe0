import dataclasses
import json

import numpy as np
import pytest

from jaxnlp.targets import Number, OneClass
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor, TextPart, one_part
from jaxnlp.text.embedding_settings import EmbeddingSettings
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat", "sat"])
TARGETS = OneClass(("no", "yes"))
SINGLE = TextClassifierProcessor(VOCABULARY, 5, one_part(TARGETS))
PAIRS = TextClassifierProcessor(VOCABULARY, 8, one_part(Number(0.0, 5.0), 2))
APART = TextClassifierProcessor(VOCABULARY, 4, one_part(TARGETS, 2), "apart")
PARTS = TextClassifierProcessor(
    VOCABULARY, 8, (("mood", TextPart(TARGETS)), ("alike", TextPart(Number(0.0, 5.0), 2))), "apart"
)


EITHER = TextClassifierProcessor(VOCABULARY, 8, one_part(TARGETS), "optional")
PROMPTED = dataclasses.replace(APART, embeddings=EmbeddingSettings((("q", "cat "),), "q"))


@pytest.mark.parametrize("processor", [SINGLE, PAIRS, APART, PARTS, PROMPTED, EITHER])
def test_what_is_written_reads_back(processor):
    again = TextClassifierProcessor.from_json(json.loads(json.dumps(processor.to_json(), sort_keys=True)))
    assert (again, hash(again)) == (processor, hash(processor))


def test_each_part_has_a_processor_that_reads_its_texts():
    whole = PARTS.by_part
    assert {name: (one.name, one.targets, one.texts, one.apart) for name, one in whole.items()} == {
        "mood": ("mood", TARGETS, 1, False),
        "alike": ("alike", Number(0.0, 5.0), 2, True),
    }
    assert VOCABULARY.tokens(whole["mood"]("the cat")["tokens"][0]) == ["[CLS]", "the", "cat", "[SEP]"]
    assert whole["alike"]("the cat", "cat")["tokens"].shape == (1, 2, 4)
    assert SINGLE.by_part == {"": SINGLE}
    with pytest.raises(ValueError, match=r"choose a part, .*: mood, alike"):
        PARTS("the cat")


def test_the_prompt_of_an_encoder_goes_before_each_text():
    found = dataclasses.replace(PROMPTED, max_length=8).tokenize([("the", "sat")]).tokens[0]
    assert VOCABULARY.tokens(found) == ["[CLS]", "cat", "the", "[SEP]", "[CLS]", "cat", "sat", "[SEP]"]


def test_a_text_and_a_pair_are_read_as_bert_reads_them():
    found = SINGLE.tokenize([("The cat",), ("the cat sat the cat",)])
    assert [VOCABULARY.tokens(ids) for ids in found.tokens] == [
        ["[CLS]", "the", "cat", "[SEP]"],
        ["[CLS]", "the", "cat", "sat", "[SEP]"],
    ]
    assert found.truncated_rows == [1]
    found = PAIRS.tokenize([("the cat", "sat")])
    assert VOCABULARY.tokens(found.tokens[0]) == ["[CLS]", "the", "cat", "[SEP]", "sat", "[SEP]"]
    assert found.segments[0].tolist() == [0, 0, 0, 0, 1, 1]
    assert PAIRS.tokenize([]).tokens == []


def test_a_batch_is_padded_in_both_directions():
    found = PAIRS.tokenize([("the cat", "sat"), ("cat", "cat")])
    batch = PAIRS.batch(found.tokens, found.segments, 3, 8)
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "tokens": ((3, 8), "int32"),
        "segments": ((3, 8), "int32"),
        "attention_mask": ((3, 8), "bool"),
        "loss_mask": ((3,), "bool"),
    }
    assert batch["attention_mask"].sum(axis=1).tolist() == [6, 5, 1]
    assert batch["loss_mask"].tolist() == [True, True, False]
    assert np.array_equal(batch["tokens"][0, :6], found.tokens[0])
    assert not batch["tokens"][0, 6:].any()


def test_texts_that_are_read_apart_are_an_input_each():
    found = APART.tokenize([("the cat", "sat"), ("cat", "the cat sat the")])
    assert VOCABULARY.tokens(found.tokens[0]) == ["[CLS]", "the", "cat", "[SEP]", "[CLS]", "sat", "[SEP]"]
    assert found.segments[0].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert found.truncated_rows == [1]
    assert [APART.length(kinds) for kinds in found.segments] == [4, 4]
    assert APART.tokenize([]).tokens == []
    batch = APART.batch(found.tokens, found.segments, 3, 6)
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "tokens": ((3, 2, 6), "int32"),
        "segments": ((3, 2, 6), "int32"),
        "attention_mask": ((3, 2, 6), "bool"),
        "loss_mask": ((3,), "bool"),
    }
    assert batch["attention_mask"].sum(axis=2).tolist() == [[4, 3], [3, 4], [1, 1]]
    assert VOCABULARY.tokens(batch["tokens"][1, 1]) == ["[CLS]", "the", "cat", "[SEP]", "[PAD]", "[PAD]"]
    assert batch["loss_mask"].tolist() == [True, True, False]
    assert not batch["segments"].any()


def test_what_tables_and_models_ask_for():
    assert (SINGLE.counted, PAIRS.counted) == ("texts", "pairs")
    assert PAIRS.cells(LabelledText("1", ("a", "b"))) == ("a", "b")
    assert len(PAIRS.columns) == 2
    assert (SINGLE.vocabulary_size, SINGLE.outputs, PAIRS.outputs) == (8, 2, 1)
    assert SINGLE.words[5:] == ("the", "cat", "sat")


def test_optional_pairs_are_read_as_those_of_a_model_of_pairs():
    together = dataclasses.replace(EITHER, parts=one_part(TARGETS, 2), pairs="together")
    assert EITHER.of_texts(2) == together == together.of_texts(1)
    for one, other, texts in ((EITHER, together, ("the cat", "sat")), (EITHER, SINGLE, ("the cat",))):
        np.testing.assert_array_equal(one(*texts)["tokens"], other(*texts)["tokens"])
        np.testing.assert_array_equal(one(*texts)["segments"], other(*texts)["segments"])


def test_another_number_of_texts_is_refused():
    with pytest.raises(ValueError, match="this model reads one text per example; remove pairs"):
        SINGLE.tokenize([("a", "b")])
    with pytest.raises(ValueError, match="this model reads two texts per example; give pairs"):
        PAIRS.tokenize([("a",)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_length": 4, "parts": one_part(TARGETS, 2)}, "max_length must be at least 5, got 4"),
        ({"max_length": 2}, "max_length must be at least 3, got 2"),
        ({"parts": one_part(TARGETS, 3)}, "texts must be 1, or 2 for pairs, got 3"),
        ({"pairs": "apart"}, "pairs must be together, or apart if there are 2 texts, got 'apart'"),
        ({"parts": one_part(TARGETS, 2), "pairs": "both"}, r"pairs must be together, or apart .*, got 'both'"),
        ({"parts": one_part(TARGETS, 2), "pairs": "optional"}, "only for a single part of single texts"),
        ({"parts": ()}, "parts must be at least one, with distinct names, got none"),
        ({"parts": PARTS.parts[:1] * 2}, "with distinct names, got mood, mood"),
    ],
    ids=str,
)
def test_a_processor_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SINGLE, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": None}, "vocabulary is missing or not of type dict"),
        ({"vocabulary": {}}, "tokenizer: expected a tokenizer"),
        ({"max_length": "3"}, "max_length is missing or not of type int"),
        ({"parts": None}, "parts is missing or not of type list"),
        ({"parts": [3]}, "parts must be names, targets and texts"),
        ({"parts": [["a", {}, 1]]}, "targets: expected a kind"),
        ({"pairs": None}, "pairs is missing or not of type str"),
    ],
    ids=str,
)
def test_fields_that_make_no_processor_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        TextClassifierProcessor.from_json(SINGLE.to_json() | changes)


def test_called_it_makes_the_batch_that_the_model_reads():
    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat"])
    single = TextClassifierProcessor(vocabulary, 8, one_part(OneClass(("no", "yes"))))
    batch = single(["the", "the cat"])
    assert [vocabulary.tokens(row) for row in batch["tokens"]] == [
        ["[CLS]", "the", "[SEP]", "[PAD]"],
        ["[CLS]", "the", "cat", "[SEP]"],
    ]
    assert batch["attention_mask"].sum(axis=1).tolist() == [3, 4]
    np.testing.assert_array_equal(single("the cat")["tokens"], batch["tokens"][1:])
    pairs = TextClassifierProcessor(vocabulary, 8, one_part(OneClass(("no", "yes")), 2))
    assert pairs("the", "cat")["segments"].tolist() == [[0, 0, 0, 1, 1]]
    for texts, message in (([], "there are no texts"), ([3], "expected texts, got int"), ("a", "reads one text")):
        with pytest.raises(ValueError, match=message):
            single(texts, "b") if texts == "a" else single(texts)
