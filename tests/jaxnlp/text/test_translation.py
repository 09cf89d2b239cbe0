import pytest

from jaxnlp.serialization import processor_from_json, processor_to_json
from jaxnlp.text.subwords import END, Subwords
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
