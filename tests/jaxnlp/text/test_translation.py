import numpy as np
import pytest

from jaxnlp.saving.serialization import processor_from_json, processor_to_json
from jaxnlp.text.subwords import END, START, Subwords
from jaxnlp.text.translation import TranslationProcessor

WORDS = Subwords("words", ("▁the", "▁sea"))
CHARACTERS = Subwords("characters", ("a", "b"))


def test_texts_that_are_read_and_written_end_with_the_end_symbol():
    processor = TranslationProcessor(WORDS, CHARACTERS)
    assert processor.encode_source("the sea") == [4, 5, END]
    assert processor.encode_target("ba") == [5, 4, END]
    assert processor.encode_source("") == [END]


def test_a_vocabulary_is_shared_where_both_are_equal():
    assert not TranslationProcessor(WORDS, CHARACTERS).shared
    assert TranslationProcessor(WORDS, Subwords("words", ("▁the", "▁sea"))).shared


@pytest.mark.parametrize("target", [WORDS, CHARACTERS])
def test_a_processor_survives_its_file(target):
    processor = TranslationProcessor(WORDS, target)
    fields = processor_to_json(processor)
    assert processor_from_json(fields) == processor
    assert (fields["target"] is None) == processor.shared


def test_fields_that_make_no_processor_are_named():
    with pytest.raises(ValueError, match="translation processor: expected source and target, got"):
        TranslationProcessor.from_json({"source": WORDS.to_json()})
    with pytest.raises(ValueError, match="vocabulary: expected a list of strings"):
        TranslationProcessor.from_json({"source": {}, "target": None})


def test_called_it_makes_what_the_encoder_and_the_decoder_read():
    processor = TranslationProcessor(WORDS, CHARACTERS)
    found = processor(["the sea", ""], ["ba", "a"])
    assert list(found) == ["source", "inputs", "source_mask"]
    assert found["source"].tolist() == [[4, 5, END], [END, 0, 0]]
    assert found["source_mask"].tolist() == [[True] * 3, [True, False, False]]
    assert found["inputs"].tolist() == [[START, 5, 4], [START, 4, 0]]
    one = processor("the sea")
    assert one.keys() == {"source", "source_mask"}
    np.testing.assert_array_equal(one["source"], found["source"][:1])
