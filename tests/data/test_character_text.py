import dataclasses
import itertools
import re
from collections import Counter

import numpy as np
import pytest

from data import DataConfig, DataError
from data.character_text import CharacterText
from jaxnlp.text.characters import CharacterVocabulary


def text_config(folder, text, **changes):
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")
    return CharacterText(
        **{"source": "text_file", "path": str(path), "batch_size": 4, "sequence_length": 5, "evaluation_batch_size": 3}
        | changes
    )


def scored_text(corpus, split):
    """The text that a split's batches score, and the text that its targets follow."""
    batches = list(corpus.split(split).batches)
    masks = [batch["loss_mask"] for batch in batches]
    return tuple(
        corpus.processor.decode(
            itertools.chain.from_iterable(batch[name][mask] for batch, mask in zip(batches, masks, strict=True))
        )
        for name in ("targets", "tokens")
    )


def several_files(folder, texts, **changes):
    for name, text in texts.items():
        (folder / name).write_text(text)
    return text_config(folder, "", path=str(folder / "?.txt"), **changes)


def test_the_end_of_each_file_is_held_out(tmp_path):
    corpus = several_files(tmp_path, {"b.txt": "c" * 45 + "defgh", "a.txt": "a" * 90 + "b" * 10}).load(0)
    assert scored_text(corpus, "train")[0] == "a" * 89 + "c" * 44
    assert scored_text(corpus, "validation") == ("b" * 9 + "efgh", "b" * 9 + "defg")
    assert corpus.description == (
        "text_file: 2 files, each a document; 150 characters, 8 distinct; 135 for training, 15 for validation"
    )


def test_the_fingerprint_of_files_knows_where_one_ends(tmp_path):
    found = set()
    for number, texts in enumerate(
        [("ab" * 30, "ba" * 30), ("ab" * 30 + "b", "a" + "ba" * 29), ("ab" * 30 + "ba" * 30,)]
    ):
        (tmp_path / str(number)).mkdir()
        named = {f"{place}.txt": text for place, text in enumerate(texts)}
        found.add(several_files(tmp_path / str(number), named).load(0).fingerprint)
    assert len(found) == 3


def test_files_that_are_each_shorter_than_a_window_are_enough_together(tmp_path):
    corpus = several_files(tmp_path, {f"{letter}.txt": letter * 20 for letter in "abcdef"}, sequence_length=11).load(0)
    assert next(iter(corpus.train))["tokens"].shape == (4, 11)
    assert scored_text(corpus, "validation")[0] == "abcdef"


def test_text_is_split_by_position_nine_to_one(tmp_path):
    text = "".join(np.random.default_rng(0).choice(list("abcdé\n"), size=200))
    corpus = text_config(tmp_path, text).load(0)
    assert scored_text(corpus, "train") == (text[1:180], text[:179])
    assert scored_text(corpus, "validation") == (text[181:], text[180:199])


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_validation_fraction_moves_the_border(tmp_path, fraction):
    text = "ab" * 50 + "cd" * 50
    corpus = text_config(tmp_path, text, validation_fraction=fraction).load(0)
    border = int(200 * (1 - fraction))
    assert scored_text(corpus, "train")[0] == text[1:border]
    assert scored_text(corpus, "validation")[0] == text[border + 1 :]


def test_training_batches_never_show_the_validation_text(tmp_path):
    corpus = text_config(tmp_path, "ab" * 90 + "yz" * 10).load(0)
    seen = Counter()
    for batch in itertools.islice(corpus.train, 2 * 180 // 4):
        seen.update(corpus.processor.decode(np.concatenate([batch["tokens"].ravel(), batch["targets"].ravel()])))
    assert set(seen) == {"a", "b"}


def test_vocabulary_is_the_sorted_alphabet_of_both_parts(tmp_path):
    corpus = text_config(tmp_path, "ba\n" * 60 + "ßz" * 10).load(0)
    assert corpus.processor.characters == ("\n", "a", "b", "z", "ß")


def test_description_counts_characters_and_parts(tmp_path):
    description = text_config(tmp_path, "ab" * 1000).load(0).description
    assert description == "text_file: 2,000 characters, 2 distinct; 1,800 for training, 200 for validation"


@pytest.mark.parametrize(
    ("characters", "length", "part", "held"),
    [(50, 5, "validation", 5), (40, 36, "training", 36), (1, 5, "training", 0)],
)
def test_too_short_text_is_refused_with_both_lengths(tmp_path, characters, length, part, held):
    expected = f"the {part} text has {held} characters, but one window needs {length + 1}; .*--data.sequence-length"
    with pytest.raises(DataError, match=expected):
        text_config(tmp_path, "a" * characters, sequence_length=length).load(0)


def test_shortest_possible_text_loads(tmp_path):
    corpus = text_config(tmp_path, "ab" * 30).load(0)
    assert scored_text(corpus, "validation")[0] == "babab"


def test_fingerprint_tells_texts_apart_and_ignores_where_they_lie(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    here, there, other = (
        text_config(folder, text).load(0).fingerprint
        for folder, text in [(tmp_path, "ab" * 50), (tmp_path / "elsewhere", "ab" * 50), (tmp_path, "ab" * 49 + "ba")]
    )
    assert here == there != other


def test_unknown_split_is_named_beside_those_there_are(tmp_path):
    with pytest.raises(DataError, match="this data set does not have the split 'test'; it has: train, validation"):
        text_config(tmp_path, "ab" * 50).load(0).split("test")


def test_other_files_are_scored_with_the_same_vocabulary(tmp_path):
    config = text_config(tmp_path, "abc" * 50)
    vocabulary = config.load(0).processor
    path = tmp_path / "other.txt"
    path.write_text("cabbage"[:4] + "cab")
    batches = list(config.read_file(path, vocabulary).batches)
    scored = np.concatenate([batch["targets"][batch["loss_mask"]] for batch in batches])
    assert vocabulary.decode(scored) == "abbcab"


def test_lines_with_unknown_characters_are_not_scored_and_the_first_is_named(tmp_path, caplog):
    path = tmp_path / "other.txt"
    path.write_text("ab\nxa\n\nba\nyy\n")
    vocabulary = CharacterVocabulary("ab\n")
    batches = list(text_config(tmp_path, "ab\n" * 50).read_file(path, vocabulary).batches)
    scored = np.concatenate([batch["targets"][batch["loss_mask"]] for batch in batches])
    assert vocabulary.decode(scored) == "b\n\nba\n"
    assert caplog.messages == [
        f"{path}: lines with characters outside the vocabulary, which are skipped: 2 of 5, the first in line 2"
    ]


@pytest.mark.parametrize(
    ("text", "reason"), [("abx", r"not in the vocabulary of 2 characters: 'x'"), ("a", "has one character")]
)
def test_file_that_cannot_be_scored_is_named(tmp_path, text, reason):
    path = tmp_path / "other.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=f"{re.escape(str(path))}.*{reason}"):
        text_config(tmp_path, "ab" * 50).read_file(path, CharacterVocabulary("ab"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("batch_size", 0, "data.batch_size must be at least 1, got 0"),
        ("sequence_length", 0, "data.sequence_length must be at least 1, got 0"),
        ("evaluation_batch_size", -1, "data.evaluation_batch_size must be at least 1, got -1"),
        ("validation_fraction", 0.0, "data.validation_fraction must be in (0, 1), got 0.0"),
        ("validation_fraction", 1.0, "data.validation_fraction must be in (0, 1), got 1.0"),
        ("num_workers", -1, "data.num_workers must be at least 0, got -1"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(field, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CharacterText(**{field: value})


def test_config_without_a_loader_says_so():
    @dataclasses.dataclass(frozen=True)
    class Empty(DataConfig):
        pass

    with pytest.raises(TypeError, match=r"Empty cannot be loaded: it does not define load\(\)"):
        Empty().load(0)


@pytest.mark.realdata
def test_tiny_shakespeare_is_split_as_nanogpt_splits_it():
    corpus = CharacterText(source="tiny_shakespeare").load(0)
    assert corpus.processor.size == 65
    assert corpus.description.endswith("1,003,854 for training, 111,540 for validation")


def test_a_table_that_is_scored_as_text_is_reported(tmp_path, caplog):
    path = tmp_path / "other.jsonl"
    path.write_text("abba")
    text_config(tmp_path, "ab" * 90).read_file(path, CharacterVocabulary("ab"))
    assert [message.split(":")[0] for message in caplog.messages] == [str(path)]
