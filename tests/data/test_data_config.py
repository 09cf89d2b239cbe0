from pathlib import Path

import pytest

from data import DataConfig, DataError, refuse_path, require_processor
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.words import WordVocabulary


def test_a_data_set_has_no_length_and_no_parts_and_carries_nothing_unless_it_says_so():
    config = DataConfig()
    assert (config.max_length, config.parts, config.joint, config.stateful) == (None, (), False, False)


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
