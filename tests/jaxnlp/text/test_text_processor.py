import json

import numpy as np
import pytest

from jaxnlp.text.labels import Labels
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat"])
FIELDS = {"mood": Labels("classification", 1, ("good", "bad")), "alike": Labels("similarity", 2, highest=5.0)}
PROCESSOR = TextProcessor(VOCABULARY, 32, tuple(FIELDS.items()))


def test_json_reads_back_equal():
    again = TextProcessor.from_json(json.loads(json.dumps(PROCESSOR.to_json(), sort_keys=True)))
    assert again == PROCESSOR
    assert hash(again) == hash(PROCESSOR)
    assert again.names == ("mood", "alike")


def test_processors_of_other_fields_differ():
    other = WordPieceVocabulary.of_pieces([*SPECIAL, "cat", "the"])
    assert TextProcessor(other, 32, PROCESSOR.parts) != PROCESSOR
    assert TextProcessor(VOCABULARY, 31, PROCESSOR.parts) != PROCESSOR
    assert TextProcessor(VOCABULARY, 32, PROCESSOR.parts[:1]) != PROCESSOR


def test_labels_are_found_by_the_name_of_their_part():
    assert PROCESSOR.labels("alike") == FIELDS["alike"]
    with pytest.raises(ValueError, match="this model does not have the part 'sst'; it has: mood, alike"):
        PROCESSOR.labels("sst")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": None}, "vocabulary is missing or not of type dict"),
        ({"vocabulary": {}}, "wordpiece: expected a tokenizer"),
        ({"max_length": "3"}, "max_length is missing or not of type int"),
        ({"max_length": 2}, "max_length must be at least 3, got 2"),
        ({"parts": []}, "parts must be at least one, with distinct names, got none"),
        ({"parts": [["a"]]}, "a part must be a name and its labels"),
        ({"parts": [["a", {}]]}, "labels: expected kind, texts, names and highest"),
    ],
    ids=str,
)
def test_fields_that_make_no_processor_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        TextProcessor.from_json(PROCESSOR.to_json() | changes)


def test_parts_of_one_name_are_refused():
    with pytest.raises(ValueError, match="with distinct names, got mood, mood"):
        TextProcessor(VOCABULARY, 32, PROCESSOR.parts[:1] * 2)


def test_called_it_makes_what_the_model_reads():
    found = PROCESSOR(["the", "the cat"], ["cat", "the"])
    assert found["tokens"].shape == found["attention_mask"].shape == (2, 2, 4)
    assert VOCABULARY.tokens(found["tokens"][1, 0]) == ["[CLS]", "the", "cat", "[SEP]"]
    assert found["attention_mask"].sum(axis=2).tolist() == [[3, 3], [4, 3]]
    np.testing.assert_array_equal(PROCESSOR("the cat")["tokens"], found["tokens"][1:, :1])
