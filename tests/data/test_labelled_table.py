import gzip
import itertools

import numpy as np
import pytest

from data import DataError
from data.labelled_table import LabelledTable
from jaxnlp.text.labels import Labels
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

WORDS = ["the", "cat", "sat", "on", "mat"]
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
CLASSES = ["sport", "arts", "world news"]
LABELS = Labels("classification", 1, tuple(sorted(CLASSES)))


def rows(count, seed):
    generator = np.random.default_rng(seed)
    return [
        (" ".join(generator.choice(WORDS, generator.integers(1, 9))), CLASSES[number % 3]) for number in range(count)
    ]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows(24, 0)))
    (tmp_path / "dev.tsv").write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for text, label in rows(7, 1)))
    (tmp_path / "test.csv.gz").write_bytes(gzip.compress(b"text\nthe cat\nthe mat sat\n"))
    return tmp_path


def config(folder, **fields):
    paths = {"train_path": str(folder / "train.csv"), "validation_path": str(folder / "dev.tsv")}
    return LabelledTable(**{**paths, "batch_size": 4, "evaluation_batch_size": 4} | fields)


def test_classes_are_the_sorted_labels_of_the_training_file(folder):
    corpus = config(folder, max_length=32).load(0, VOCABULARY)
    assert corpus.processor == TextProcessor(VOCABULARY, 32, (("text", LABELS),))
    assert config(folder, max_length=32).load(0, corpus.processor).processor == corpus.processor


def test_training_sees_every_row_with_its_label(folder):
    corpus = config(folder, batch_size=1).load(0, VOCABULARY)
    found = [
        (VOCABULARY.decode(batch["tokens"][0, 0]), LABELS.names[int(batch["text"][0])])
        for batch in itertools.islice(iter(corpus.train), 48)
    ]
    assert sorted(found) == sorted(rows(24, 0) * 2)


def test_splits_are_validation_and_test_and_rows_can_be_put_back(folder):
    corpus = config(folder, test_path=str(folder / "test.csv.gz")).load(0, VOCABULARY)
    assert list(corpus.splits) == ["validation", "test"]
    part = corpus.split("validation").parts["text"]
    assert [(example.text, LABELS.names[int(example.label)]) for example in part.examples] == rows(7, 1)
    assert [example.id for example in part.examples] == ["1", "2", "3", "4", "5", "6", "7"]
    shown = np.concatenate([batch["text"][batch["loss_mask"]] for batch in part.batches])
    assert shown.tolist() == [part.examples[number].label for number in part.rows]
    test = corpus.split("test")
    assert (test.scored, len(test.batches), len(test.parts["text"].batches)) == (False, 0, 1)


def test_pairs_have_two_texts(folder):
    (folder / "pairs.csv").write_text("a,b,same\n" + "the cat,the mat,no\nthe cat,the cat,yes\n" * 4)
    columns = {"text_column": "a", "pair_column": "b", "label_column": "same"}
    paths = {"train_path": str(folder / "pairs.csv"), "validation_path": str(folder / "pairs.csv")}
    corpus = config(folder, **columns, **paths).load(0, VOCABULARY)
    assert next(iter(corpus.train))["tokens"].shape == (4, 2, 16)
    assert corpus.processor.labels("text") == Labels("classification", 2, ("no", "yes"))


def test_a_label_that_training_does_not_have_is_named_with_file_and_line(folder):
    (folder / "dev.tsv").write_text("label\ttext\nsport\tthe cat\nweather\tthe mat\n")
    message = r"dev.tsv, line 3: label must be one of arts, sport, world news, got 'weather'"
    with pytest.raises(DataError, match=message):
        config(folder).load(0, VOCABULARY)
    processor = TextProcessor(VOCABULARY, 32, (("text", LABELS),))
    with pytest.raises(DataError, match=message):
        config(folder).read_file(folder / "dev.tsv", processor)


def test_a_file_is_scored_with_the_labels_of_the_processor(folder):
    processor = TextProcessor(VOCABULARY, 32, (("text", LABELS),))
    scored = LabelledTable().read_file(folder / "dev.tsv", processor)
    assert [example.label for example in scored.parts["text"].examples] == [1.0, 0.0, 2.0, 1.0, 0.0, 2.0, 1.0]
    bare = LabelledTable().read_file(folder / "test.csv.gz", processor)
    assert not bare.scored
    assert [example.label for example in bare.parts["text"].examples] == [None, None]


def test_the_fingerprint_changes_with_texts_and_labels(folder):
    first = config(folder).load(0, VOCABULARY).fingerprint
    assert config(folder).load(1, VOCABULARY).fingerprint == first
    path = folder / "train.csv"
    path.write_text(path.read_text().replace("sport", "sports"))
    (folder / "dev.tsv").write_text((folder / "dev.tsv").read_text().replace("sport", "sports"))
    assert config(folder).load(0, VOCABULARY).fingerprint != first


def test_what_is_missing_is_named(folder):
    with pytest.raises(DataError, match=r"text tasks need a pretrained tokenizer"):
        config(folder).load(0)
    with pytest.raises(DataError, match=r"data.validation_path is required: give the file with --data.validation-path"):
        config(folder, validation_path=None).load(0, VOCABULARY)
    with pytest.raises(DataError, match=r"train.csv has 24 examples, fewer than a batch; set --data.batch-size to 24"):
        config(folder, batch_size=25).load(0, VOCABULARY)
    with pytest.raises(DataError, match=r"must end in .csv .*, .tsv .* or .jsonl"):
        config(folder, train_path="train.txt").load(0, VOCABULARY)
    (folder / "train.csv").write_text("text,label\na,x\nb,x\n")
    with pytest.raises(DataError, match="the column label has 1 distinct labels; at least 2 are needed"):
        config(folder).load(0, VOCABULARY)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_length": 2}, "data.max_length must be at least 3, got 2"),
        ({"pair_column": "text"}, "must differ, got text, text, label"),
        ({"length_multiple": 0}, "data.length_multiple must be at least 1, got 0"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=message):
        LabelledTable(**fields)


def test_facts_of_the_data():
    data = LabelledTable(max_length=64)
    assert (data.max_length, data.parts, data.together, data.carries) == (64, ("text",), False, False)
