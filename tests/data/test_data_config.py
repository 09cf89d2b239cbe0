import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from data import DataConfig, DataError, refuse_path, require_processor, require_same_options
from data.character_text import CharacterText
from data.names import NamesPretraining, NamesQuestions
from data.number_words import NumberWords
from data.squad import QuestionContexts
from data.tagged_sentences import TaggedSentences
from data.treebank import Treebank
from data.word_text import WordText
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.words import WordVocabulary
from train.parallel.rows import rows_at

EARLIER = SimpleNamespace(lowercase=True, tag_column="upos")
SLOW = ("numbers", "bpe_dropout", "contexts", "names_pretraining")


def test_a_data_set_has_no_length_and_no_parts_and_carries_nothing_unless_it_says_so():
    config = DataConfig()
    assert (config.max_length, config.parts, config.joint, config.stateful) == (None, (), False, False)


DATA = {
    "names": (NamesQuestions(source="invented", batch_size=8), 1, 1),
    "names_pretraining": (NamesPretraining(source="invented", batch_size=8, sequence_length=64), 1, 1),
    "numbers": (NumberWords(training_pairs=400, held_out_pairs=50, batch_size=16), 3, 3),
    "bpe_dropout": (NumberWords(training_pairs=400, held_out_pairs=50, batch_size=16, bpe_dropout=0.3), 3, 3),
    "contexts": (QuestionContexts(people=40, vocabulary_size=400, batch_size=8), 1, 1),
    "tags": (TaggedSentences(source="small_grammar", sentences=300, batch_size=8), 1, 1),
    "trees": (Treebank(source="small_grammar", sentences=200, held_out_sentences=50, batch_words=128), 3, 3),
    "streams": (WordText(source="python_docs", batch_size=40), 2, 1),
    "windows": (CharacterText(source="python_docs", batch_size=8), 1, 1),
}


def shapes_of(batches):
    """The name, shape and type of each array, for each batch."""
    return {tuple((name, x.shape, x.dtype) for name, x in sorted(batch.items())) for batch in batches}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("few_lengths", [True, False])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name in SLOW else []) for name in DATA]
)
def test_the_shapes_of_all_batches_are_known_and_few_where_that_is_wanted(name, few_lengths):
    config, most, most_in_evaluation = DATA[name]
    corpus = dataclasses.replace(config, few_lengths=few_lengths).load(0)
    # Without one training batch: its iterator might start processes.
    train, evaluation = map(shapes_of, dataclasses.replace(corpus, train=()).shapes)
    assert shapes_of(itertools.islice(corpus.train, 300)) <= train
    assert shapes_of(corpus.split("validation").batches) == evaluation
    if few_lengths:
        assert len(train) <= most
        assert len(evaluation) <= most_in_evaluation


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name in SLOW else []) for name in DATA]
)
def test_a_process_that_makes_some_rows_of_each_batch_makes_the_rows_of_the_whole_batches(name):
    config, _, _ = DATA[name]
    for whole, batch in itertools.islice(zip(*(config.load(0).train for _ in range(2)), strict=False), 5):
        size = len(whole["loss_mask"])
        for rows in (np.arange(size)[size // 2 :], np.array([0, size - 1])):
            found = rows_at(batch, rows)
            assert found.keys() == dict(whole).keys()
            for key, x in found.items():
                np.testing.assert_array_equal(x, whole[key][rows], err_msg=key)
        assert name == "streams" or "whole" not in vars(batch)  # only those rows were made; streams are views


@pytest.mark.parametrize("name", ["names", "tags", "contexts"])
def test_one_length_is_that_of_the_longest_example_of_all_splits(name):
    config, _, _ = DATA[name]
    corpora = [dataclasses.replace(config, few_lengths=few).load(0) for few in (True, False)]
    (one,), most = (
        {batch["loss_mask" if name != "contexts" else "tokens"].shape[1] for part in corpus.shapes for batch in part}
        for corpus in corpora
    )
    assert one == max(most) < config.max_length


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
    with pytest.raises(
        DataError, match="this data set needs the class CharacterVocabulary, got WordVocabulary; use a model"
    ):
        require_processor(words, CharacterVocabulary)


def test_an_option_with_another_value_is_named_as_the_field_of_the_data():
    require_same_options(EARLIER, {"lowercase": True, "tag_column": "upos"})
    with pytest.raises(DataError, match=r"^data.lowercase is False, but True in the earlier run; set it to True$"):
        require_same_options(EARLIER, {"lowercase": False})
    with pytest.raises(DataError, match=r"^data.tags is xpos, but upos in the earlier run"):
        require_same_options(EARLIER, {"tag_column": "xpos"}, {"tag_column": "tags"})
