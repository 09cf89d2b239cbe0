import json

import numpy as np
import pytest

from jaxnlp.targets import Classes, Scale
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat", "sat"])
TARGETS = Classes(("no", "yes"))
SINGLE = TextClassifierProcessor(VOCABULARY, 5, 1, TARGETS)
PAIRS = TextClassifierProcessor(VOCABULARY, 8, 2, Scale(0.0, 5.0))
APART = TextClassifierProcessor(VOCABULARY, 4, 2, TARGETS, "apart")


@pytest.mark.parametrize("processor", [SINGLE, PAIRS, APART])
def test_what_is_written_reads_back(processor):
    assert TextClassifierProcessor.from_json(json.loads(json.dumps(processor.to_json()))) == processor


def test_a_processor_that_does_not_say_how_pairs_are_read_reads_them_together():
    fields = PAIRS.to_json()
    assert fields.pop("pairs") == "together"
    assert TextClassifierProcessor.from_json(fields) == PAIRS


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


def test_other_inputs_and_fields_are_refused():
    with pytest.raises(ValueError, match="this model reads one text per example; remove pairs"):
        SINGLE.tokenize([("a", "b")])
    with pytest.raises(ValueError, match="this model reads two texts per example; give pairs"):
        PAIRS.tokenize([("a",)])
    with pytest.raises(ValueError, match="max_length must be at least 5, got 4"):
        TextClassifierProcessor(VOCABULARY, 4, 2, TARGETS)
    with pytest.raises(ValueError, match="texts must be 1, or 2 for pairs, got 3"):
        TextClassifierProcessor(VOCABULARY, 9, 3, TARGETS)
    with pytest.raises(ValueError, match="pairs must be together, or apart if there are 2 texts, got 'apart'"):
        TextClassifierProcessor(VOCABULARY, 9, 1, TARGETS, "apart")
    with pytest.raises(ValueError, match=r"pairs must be together, or apart .*, got 'both'"):
        TextClassifierProcessor(VOCABULARY, 9, 2, TARGETS, "both")
    for name in ("vocabulary", "max_length", "texts", "targets"):
        with pytest.raises(ValueError, match=f"text classifier: {name} is missing or not of type"):
            TextClassifierProcessor.from_json(SINGLE.to_json() | {name: None})


def test_called_it_makes_the_batch_that_the_model_reads():
    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat"])
    single = TextClassifierProcessor(vocabulary, 8, 1, Classes(("no", "yes")))
    batch = single(["the", "the cat"])
    assert [vocabulary.tokens(row) for row in batch["tokens"]] == [
        ["[CLS]", "the", "[SEP]", "[PAD]"],
        ["[CLS]", "the", "cat", "[SEP]"],
    ]
    assert batch["attention_mask"].sum(axis=1).tolist() == [3, 4]
    np.testing.assert_array_equal(single("the cat")["tokens"], batch["tokens"][1:])
    pairs = TextClassifierProcessor(vocabulary, 8, 2, Classes(("no", "yes")))
    assert pairs("the", "cat")["segments"].tolist() == [[0, 0, 0, 1, 1]]
    for texts, message in (([], "there are no texts"), ([3], "expected texts, got int"), ("a", "reads one text")):
        with pytest.raises(ValueError, match=message):
            single(texts, "b") if texts == "a" else single(texts)
