"""Several parts of labelled texts: CS224N's data sets and tables of the user's."""

import gzip
import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from data import DataError
from data.readers.labelled_data_sets import LABELLED
from data.readers.labelled_texts import PARTS
from data.text_table import TextTable
from jaxnlp.targets import Number, OneClass
from jaxnlp.text.classifier_processor import TextClassifierProcessor, TextPart
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far", "so", "well"]
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
PROJECT = ("sst", "cfimdb", "quora", "sts")


def files_of(name):
    return LABELLED[PARTS[name]]


def table(name, rows, seed, *, labelled=True):
    """Rows of random sentences of 1 to 20 words."""
    files, generator = files_of(name), np.random.default_rng(seed)
    header, lines = ["", *files.columns.needed(labelled=labelled)], []
    for number in range(rows):
        texts = [" ".join(generator.choice(WORDS, generator.integers(1, 21))) for _ in files.columns.texts]
        label = generator.integers(51) / 10 if name == "sts" else generator.integers(files.targets.outputs)
        lines.append([str(number), f"{name}{seed}-{number}", *texts, *([str(label)] if labelled else [])])
    return "".join("\t".join(line) + "\n" for line in [header, *lines])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The project's files, small; of Quora the first 70 rows are for training."""
    monkeypatch.setitem(LABELLED, "cs224n_quora", LABELLED["cs224n_quora"]._replace(training_rows=70))
    for name in PROJECT:
        (tmp_path / files_of(name).train).write_text(table(name, 90, 0))
        (tmp_path / files_of(name).validation).write_text(table(name, 21, 1))
        (tmp_path / files_of(name).test).write_text(table(name, 9, 2, labelled=False))
    (tmp_path / "quora-train.csv").replace(tmp_path / "quora-dev.csv")
    (tmp_path / "quora-test-student.csv").unlink()
    return tmp_path


def config(folder, *parts, **fields):
    pairs = {"pairs": "apart"} if {"quora", "sts"} & {*parts} else {}
    plain = {"path": str(folder), "batch_size": 4, "evaluation_batch_size": 8} | pairs
    return TextTable(**plain | {"parts": parts} | fields)


def first_batches(corpus, count):
    return list(itertools.islice(iter(corpus.train), count))


def part_of(batch):
    (labels,) = [name for name in batch if name.endswith("/labels")]
    return labels.removesuffix("/labels")


def test_a_corpus_has_a_head_for_each_part_and_takes_the_vocabulary_of_a_run(folder):
    first = config(folder, "sst", "sts", max_length=64).load(0, VOCABULARY)
    parts = ("sst", TextPart(OneClass(tuple("01234")))), ("sts", TextPart(Number(0.0, 5.0), 2))
    assert first.processor == TextClassifierProcessor(VOCABULARY, 64, parts, "apart")
    assert first.token_counts is None
    again = config(folder, "sst", "sts", max_length=64).load(0, config(folder, "cfimdb").load(0, VOCABULARY).processor)
    assert (again.processor, again.fingerprint) == (first.processor, first.fingerprint)
    assert "sst: texts: 90 for training, 21 for validation, 9 for test\n" in first.description
    assert "\nsts: pairs: 90 for training" in first.description


def test_facts_of_the_data(folder):
    data = config(folder, "sst", "sts", schedule="together", max_length=64)
    assert (data.max_length, data.parts, data.joint, data.stateful) == (64, ("sst", "sts"), True, False)
    assert (data.needs, TextTable(parts=("a",), tables=("a=b.csv",)).needs) == ("cs224n_minbert", "your tables")
    assert not config(folder, "sst", "sts").joint


@pytest.mark.sweep(1)
@pytest.mark.parametrize("part", PROJECT)
def test_an_epoch_has_every_example_once_and_the_next_another_order(folder, part):
    # A pool of sixteen batches of one: as the order is, but for the pool's sorting.
    corpus = config(folder, part, batch_size=1).load(0, VOCABULARY)
    count = 70 if part == "quora" else 90
    rows = [
        (batch["tokens"].tobytes(), float(batch[f"{part}/labels"][0])) for batch in first_batches(corpus, 16 * count)
    ]
    assert sorted(rows) == sorted(sorted(rows)[::16] * 16)
    assert rows[:count] != rows[count : 2 * count]


def test_a_batch_is_padded_to_a_multiple_and_no_longer_than_the_maximum(folder):
    for part, shape in (("sst", (4,)), ("sts", (4, 2))):
        batch = first_batches(config(folder, part, length_multiple=4).load(0, VOCABULARY), 1)[0]
        assert batch.keys() == {"tokens", "segments", "attention_mask", "loss_mask", f"{part}/labels"}
        *rows, length = batch["tokens"].shape
        assert (tuple(rows), length % 4) == (shape, 0)
        assert batch["attention_mask"][..., length - 4 :].any()
        assert (batch["tokens"][~batch["attention_mask"]] == 0).all()
    corpus = config(folder, "sst", max_length=10).load(0, VOCABULARY)
    batches = [*first_batches(corpus, 5), *corpus.split("validation").batches]
    assert {batch["tokens"].shape[1] for batch in batches} == {10}


def test_a_part_has_the_batches_of_the_same_data_without_parts(folder):
    alone = TextTable(source="cs224n_sst", path=str(folder), batch_size=4).load(3, VOCABULARY)
    for found, expected in zip(first_batches(config(folder, "sst").load(3, VOCABULARY), 9), alone.train, strict=False):
        np.testing.assert_array_equal(found["tokens"], expected["tokens"])
        np.testing.assert_array_equal(found["sst/labels"], expected["labels"])


def test_several_parts_take_turns(folder):
    corpus = config(folder, "sst", "quora", "sts").load(0, VOCABULARY)
    assert [part_of(batch) for batch in first_batches(corpus, 6)] == ["sst", "quora", "sts"] * 2
    alone = config(folder, "sst").load(0, VOCABULARY)
    np.testing.assert_array_equal(first_batches(corpus, 4)[3]["tokens"], first_batches(alone, 2)[1]["tokens"])


def test_parts_together_have_a_batch_each_in_every_step_all_of_one_shape(folder):
    names = ("sst", "quora", "sts")
    together, in_turn = (
        config(folder, *names, schedule=name, few_lengths=True).load(0, VOCABULARY)
        for name in ("together", "round_robin")
    )
    turns = first_batches(in_turn, 15)
    for step, found in enumerate(first_batches(together, 5)):
        assert_equal_batches(found, dict(zip(names, turns[3 * step : 3 * step + 3], strict=True)))
    (known,) = config(folder, *names, schedule="together").load(0, VOCABULARY).shapes.train
    for name, found in first_batches(together, 1)[0].items():
        assert {array: x.shape for array, x in found.items()} == {array: x.shape for array, x in known[name].items()}


def assert_equal_batches(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_equal_batches(found[name], value)
        else:
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("schedule", ["round_robin", "proportional", "annealed", "sequential", "together"])
def test_saved_and_set_state_gives_the_same_continuation(folder, schedule):
    steps = {"schedule_steps": 3} if schedule in ("annealed", "sequential") else {}
    data = config(folder, "sst", "sts", schedule=schedule, **steps)
    batches = iter(data.load(0, VOCABULARY).train)
    for _ in range(5):
        next(batches)
    state, expected = batches.get_state(), [next(batches) for _ in range(4)]
    again = iter(data.load(0, VOCABULARY).train)
    again.set_state(state)
    for found, batch in zip([next(again) for _ in range(4)], expected, strict=True):
        assert_equal_batches(found, batch)


def test_splits_have_a_split_of_each_part_and_test_only_of_those_with_a_file(folder):
    corpus = config(folder, "sst", "quora", max_length=6).load(0, VOCABULARY)
    split = corpus.split("validation")
    assert {name: (len(part.examples), part.scored) for name, part in split.parts.items()} == {
        "sst": (21, True),
        "quora": (20, True),  # the rows of its file that are not for training
    }
    assert [example.name for example in split.parts["quora"].examples][:1] == ["quora0-70"]
    assert len(split.batches) == sum(len(part.batches) for part in split.parts.values())
    assert [note.partition(":")[0] for note in split.notes] == ["sst", "quora"]
    test = corpus.split("test")
    assert {name: [row.label for row in part.examples] for name, part in test.parts.items()} == {"sst": [None] * 9}
    assert (test.batches, test.scored) == ((), False)


def test_quoras_own_training_and_test_files_are_read_where_they_are_there(folder):
    (folder / "quora-train.csv.gz").write_bytes(gzip.compress(table("quora", 33, 5).encode()))
    (folder / "quora-test-student.csv").write_text(table("quora", 7, 6, labelled=False))
    assert "33 for training, 90 for validation, 7 for test" in config(folder, "quora").load(0, VOCABULARY).description


def test_a_file_is_scored_for_its_part(folder, tmp_path):
    data = config(folder, "sst", "sts")
    processor = data.load(0, VOCABULARY).processor
    (tmp_path / "mine.tsv").write_text(table("sts", 3, 5))
    found = data.read_file(tmp_path / "mine.tsv", processor)
    assert {name: len(part.examples) for name, part in found.parts.items()} == {"sts": 3}
    (tmp_path / "mine.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(DataError, match=r"mine.tsv, line 1: expected the columns id, sentence between"):
        data.read_file(tmp_path / "mine.tsv", processor)


def test_own_tables_are_parts_beside_known_ones(folder, tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_text("text,label\n" + "".join(f"the {WORDS[n % 10]},{'ab'[n % 2]}\n" for n in range(40)))
    near, dev = tmp_path / "near.csv", tmp_path / "dev.csv"
    near.write_text("text,pair,score\n" + "".join(f"cat,mat,{n % 5}\n" for n in range(8)))
    dev.write_text("text,pair,score\ncat,dog,2\n")
    tables = (f"mine={mine}", f"near={near},{dev}")
    data = config(folder, "sst", "mine", "near", tables=tables, pairs="apart")
    corpus = data.load(0, VOCABULARY)
    found = {name: part for name, part in corpus.processor.parts if name != "sst"}
    assert found == {"mine": TextPart(OneClass(("a", "b"))), "near": TextPart(Number(0.0, 4.0), 2)}
    sizes = {name: len(part.examples) for name, part in corpus.split("validation").parts.items()}
    assert sizes == {"sst": 21, "mine": 4, "near": 1}
    assert list(data.read_file(dev, corpus.processor).parts) == ["near"]
    dev.write_text("text\nthe mat\n")
    assert list(data.read_file(dev, corpus.processor).parts) == ["mine"]
    with pytest.raises(DataError, match=r"data.pairs apart applies only to pairs of texts"):
        config(None, "mine", tables=tables[:1], path=None, pairs="apart").load(0, VOCABULARY)


def test_a_part_with_too_few_examples_or_files_is_named(folder):
    with pytest.raises(DataError, match=r"--data.batch-size 91 exceeds the number of training rows of sst, 90"):
        config(folder, "sst", batch_size=91).load(0, VOCABULARY)
    (folder / files_of("sst").validation).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{folder} does not have ids-sst-dev.csv for cs224n_sst"):
        config(folder, "sst", "sts").load(0, VOCABULARY)


def test_a_schedule_that_never_reaches_a_part_is_refused():
    data = TextTable(parts=("sst", "cfimdb"), schedule="sequential", schedule_steps=10)
    data.check_steps(20)
    with pytest.raises(ValueError, match="never reaches all of sst, cfimdb within total_steps 19; lower"):
        data.check_steps(19)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parts": ("mine",), "tables": ("mine=a.csv", "mine=b.csv")}, "new, distinct names, got mine, mine"),
        ({"parts": ("sst",), "tables": ("sst=a.csv",)}, "data.tables must have new, distinct names, got sst"),
        ({"tables": ("mine=a.csv",)}, "data.parts does not include mine of data.tables; add it, or remove the table"),
        ({"parts": ("mine",), "tables": ("mine=a.csv",), "path": "x"}, "data.path applies only to known data sets"),
        ({"parts": ("mine",), "tables": ("a.csv",)}, "data.tables must be NAME=FILE or NAME=FILE,VALIDATION_FILE"),
        ({"parts": ("sst", "sst")}, "each once, got sst, sst"),
        ({"parts": ("sst", "mnli")}, "data.parts must be some of .*sst, cfimdb, quora, sts, each once, got sst, mnli"),
        ({"parts": ("sst",), "source": "afqmc"}, "data.source applies only to data without data.parts"),
        ({"parts": ("sst",), "label": "stars"}, "data.label applies only to"),
        ({"parts": ("sst",), "oversample": True}, "data.oversample applies only to"),
        ({"schedule": "annealed"}, "data.schedule applies only to several data.parts"),
        ({"parts": ("sst",), "schedule_steps": 5}, "data.schedule_steps applies only to data.schedule annealed and"),
        ({"parts": ("sst", "sts"), "schedule": "together", "schedule_steps": 5}, "data.schedule_steps applies only to"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=message):
        TextTable(**fields)


@pytest.mark.thorough
@pytest.mark.realdata
def test_the_projects_parts_are_read_whole():
    words = Path(os.environ["JAXNLP_DATA"]) / "bert_vocab" / "bert-base-uncased" / "vocab.txt"
    vocabulary = WordPieceVocabulary.of_pieces(words.read_text().split("\n")[:-1])
    corpus = TextTable(parts=PROJECT, pairs="apart").load(0, vocabulary)
    sizes = [{name: len(part.examples) for name, part in corpus.split(s).parts.items()} for s in ("validation", "test")]
    assert sizes[0] == {"sst": 1_101, "cfimdb": 245, "quora": 4_212, "sts": 863}
    assert sizes[1] == {"sst": 2_210, "cfimdb": 488, "sts": 1_725}
