from pathlib import Path

import pytest

from data import DataConfig, DataError, refuse_path, require_processor
from data.names import NamesQuestions
from data.number_words import NumberWords
from data.squad import QuestionContexts
from data.tagged_sentences import TaggedSentences
from data.treebank import Treebank
from data.word_text import WordText
from jaxnlp.corpus import one_of_each_shape
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.words import WordVocabulary


def test_a_data_set_has_no_length_and_no_parts_and_carries_nothing_unless_it_says_so():
    config = DataConfig()
    assert (config.max_length, config.parts, config.joint, config.stateful) == (None, (), False, False)


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (NamesQuestions(source="invented", batch_size=8, few_lengths=True), 1),
        pytest.param(NumberWords(epoch_pairs=400, held_out_pairs=50, few_lengths=True), 3, marks=pytest.mark.thorough),
        pytest.param(QuestionContexts(people=60, vocabulary_size=400, few_lengths=True), 1, marks=pytest.mark.thorough),
        (TaggedSentences(source="small_grammar", sentences=600, few_lengths=True), 1),
        (Treebank(source="small_grammar", sentences=200, few_lengths=True), 3),
        (WordText(source="python_docs", batch_size=4, few_lengths=True), 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_batches_have_few_shapes_where_that_is_wanted(config, most):
    corpus = config.load(0)
    assert 1 <= len(corpus.training_shapes()) <= most
    # The longest example of validation may need one more.
    assert 1 <= len(one_of_each_shape(corpus.split("validation").batches)) <= most + 1


def test_a_batch_has_at_least_one_example():
    with pytest.raises(ValueError, match=r"^data\.batch_size must be at least 1, got 0$"):
        DataConfig(batch_size=0)


def test_not_a_number_is_not_enough():
    with pytest.raises(ValueError, match=r"^data\.batch_size must be a whole number, got nan$"):
        DataConfig(batch_size=float("nan"))


def test_a_config_without_a_data_set_says_so():
    with pytest.raises(TypeError, match=r"DataConfig .*: it does not define "):
        DataConfig().load(0)


def test_a_file_is_refused_where_the_data_set_reads_none():
    with pytest.raises(DataError, match=r"x\.csv: this run's data, DataConfig, does not read files; score one of its"):
        DataConfig().read_file(Path("x.csv"), None)


def test_a_path_is_refused_where_a_source_reads_none():
    refuse_path("toy", None, "remove it")
    with pytest.raises(DataError, match=r"^data\.source toy takes no path, got x\.csv; remove it$"):
        refuse_path("toy", "x.csv", "remove it")


def test_a_processor_of_another_kind_is_refused():
    words = WordVocabulary(["a"])
    assert require_processor(words, WordVocabulary) is words
    with pytest.raises(DataError, match="this data set needs a CharacterVocabulary, got a WordVocabulary; use a model"):
        require_processor(words, CharacterVocabulary)
