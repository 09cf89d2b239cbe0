import gzip
import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from data import DataError
from data.minbert import LABELS, SOURCES, MinBertData
from data.readers.sentence_classes import FILES
from jaxnlp.text.labels import Labels
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from jaxnlp.text.words import WordVocabulary

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far", "so", "well"]
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
HEADERS = {
    "classification": "\tid\tsentence\tsentiment\n",
    "paraphrase": "\tid\tsentence1\tsentence2\tis_duplicate\n",
    "similarity": "\tid\tsentence1\tsentence2\tsimilarity\n",
}


def files_of(name):
    return FILES[SOURCES[name]]


def table(name, rows, seed, *, labelled=True):
    """Rows of random sentences of 1 to 20 words."""
    task, generator = LABELS[name], np.random.default_rng(seed)
    lines = []
    for number in range(rows):
        texts = [" ".join(generator.choice(WORDS, generator.integers(1, 21))) for _ in range(task.texts)]
        label = generator.integers(len(task.names)) if task.kind != "similarity" else generator.integers(51) / 10
        lines.append("\t".join([str(number), f"{name}{seed}-{number}", *texts, *([str(label)] if labelled else [])]))
    header = HEADERS[task.kind] if labelled else HEADERS[task.kind].rpartition("\t")[0] + "\n"
    return header + "".join(f"{line}\n" for line in lines)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The project's files, small; of Quora the first 70 rows are for training."""
    monkeypatch.setitem(FILES, "cs224n_quora", FILES["cs224n_quora"]._replace(training_rows=70))
    for name in LABELS:
        (tmp_path / files_of(name).train).write_text(table(name, 90, 0))
        (tmp_path / files_of(name).validation).write_text(table(name, 21, 1))
        (tmp_path / files_of(name).test).write_text(table(name, 9, 2, labelled=False))
    (tmp_path / "quora-train.csv").replace(tmp_path / "quora-dev.csv")
    (tmp_path / "quora-test-student.csv").unlink()
    return tmp_path


def config(folder, **fields):
    return MinBertData(path=str(folder), **{"batch_size": 4, "evaluation_batch_size": 8, **fields})


def processor(*names):
    return TextProcessor(VOCABULARY, 128, tuple((name, LABELS[name]) for name in names))


def test_the_processor_is_the_vocabulary_and_the_labels_and_that_of_a_run_gives_its_vocabulary(folder):
    first = config(folder, parts=("sst", "sts"), max_length=64).load(0, VOCABULARY)
    assert first.processor == TextProcessor(VOCABULARY, 64, (("sst", LABELS["sst"]), ("sts", LABELS["sts"])))
    again = config(folder, parts=("sst", "sts"), max_length=64).load(0, processor("cfimdb"))
    assert again.processor == first.processor
    assert again.fingerprint == first.fingerprint


def test_facts_of_the_data(folder):
    data = config(folder, parts=("sst", "sts"), schedule="together", max_length=64)
    assert (data.max_length, data.parts, data.together, data.carries) == (64, ("sst", "sts"), True, False)
    assert not config(folder, parts=("sst", "sts")).together


def first_batches(corpus, count):
    return list(itertools.islice(iter(corpus.train), count))


def texts_of(batch, task):
    """Each row's label and texts, as words."""
    return [
        (round(float(label), 1), *(VOCABULARY.decode(text[seen]) for text, seen in zip(texts, mask, strict=True)))
        for label, texts, mask in zip(batch[task], batch["tokens"], batch["attention_mask"], strict=True)
    ]


def expected_rows(file, task):
    lines = file.read_text().splitlines()[1:]
    width = task.texts
    return [(float(fields[2 + width]), *fields[2 : 2 + width]) for fields in (line.split("\t") for line in lines)]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("task", list(LABELS))
def test_an_epoch_has_every_example_once_and_the_next_another_order(folder, task):
    # A pool of sixteen batches of one: as the order is, but for the pool's sorting.
    corpus = config(folder, parts=(task,), batch_size=1).load(0, VOCABULARY)
    count = 70 if task == "quora" else 90
    rows = [texts_of(batch, task)[0] for batch in first_batches(corpus, 16 * count)]
    file = files_of(task).validation if task == "quora" else files_of(task).train
    expected = expected_rows(folder / file, LABELS[task])[:count]
    assert sorted(rows) == sorted(expected * 16)
    assert rows[:count] != rows[count : 2 * count]


@pytest.mark.parametrize("task", ["sst", "sts"])
def test_a_batch_is_padded_to_a_multiple_and_says_what_is_there(folder, task):
    batch = first_batches(config(folder, parts=(task,), length_multiple=4).load(0, VOCABULARY), 1)[0]
    assert batch.keys() == {"tokens", "attention_mask", "loss_mask", task}
    rows, texts, length = batch["tokens"].shape
    assert (rows, texts) == (4, LABELS[task].texts)
    assert length % 4 == 0
    assert batch["attention_mask"][:, :, length - 4 :].any()
    assert batch["tokens"].dtype == np.int32
    assert batch["loss_mask"].all()
    assert (batch["tokens"][~batch["attention_mask"]] == 0).all()
    assert (batch["tokens"][:, :, 0] == VOCABULARY.id_of("[CLS]")).all()


def test_batches_hold_texts_of_about_one_length(folder):
    corpus = config(folder, parts=("sst",), length_multiple=1).load(0, VOCABULARY)
    spreads = [np.ptp(batch["attention_mask"].sum(axis=2)) for batch in first_batches(corpus, 32)]
    assert np.mean(spreads) < 3  # of random rows it would be about 11


def test_several_parts_take_turns(folder):
    corpus = config(folder, parts=("sst", "quora", "sts")).load(0, VOCABULARY)
    assert [(batch.keys() & LABELS.keys()).pop() for batch in first_batches(corpus, 6)] == ["sst", "quora", "sts"] * 2
    alone = config(folder, parts=("sst",)).load(0, VOCABULARY)
    np.testing.assert_array_equal(first_batches(corpus, 4)[3]["tokens"], first_batches(alone, 2)[1]["tokens"])


def test_tasks_together_have_a_batch_each_in_every_step(folder):
    names = ("sst", "quora", "sts")
    together, in_turn = (
        config(folder, parts=names, schedule=name).load(0, VOCABULARY) for name in ("together", "round_robin")
    )
    turns = first_batches(in_turn, 15)
    for step, found in enumerate(first_batches(together, 5)):
        assert_equal_batches(found, dict(zip(names, turns[3 * step : 3 * step + 3], strict=True)))


def test_short_batches_of_tasks_together_meet_in_a_step(folder):
    fields = {"parts": ("sst", "cfimdb"), "schedule": "together", "length_multiple": 1}
    corpus = config(folder, **fields).load(0, VOCABULARY)
    lengths = [
        [batches[task]["tokens"].shape[2] for task in ("sst", "cfimdb")] for batches in first_batches(corpus, 80)
    ]
    assert np.corrcoef(np.array(lengths).T)[0, 1] > 0.9


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
    fields = {"parts": ("sst", "sts"), "schedule": schedule}
    if schedule in ("annealed", "sequential"):
        fields["schedule_steps"] = 3
    batches = iter(config(folder, **fields).load(0, VOCABULARY).train)
    for _ in range(5):
        next(batches)
    state, expected = batches.get_state(), [next(batches) for _ in range(4)]
    again = iter(config(folder, **fields).load(0, VOCABULARY).train)
    again.set_state(state)
    for found, batch in zip([next(again) for _ in range(4)], expected, strict=True):
        assert_equal_batches(found, batch)


def test_splits_hold_each_row_once_in_an_order_that_can_be_undone(folder):
    corpus = config(folder, parts=("sst", "sts"), max_length=64).load(0, VOCABULARY)
    split = corpus.split("dev")
    assert list(split.parts) == ["sst", "sts"]
    for name, part in split.parts.items():
        rows = [
            row
            for batch in part.batches
            for row, there in zip(texts_of(batch, name), batch["loss_mask"], strict=True)
            if there
        ]
        put_back = [None] * len(rows)
        for place, row in zip(part.rows, rows, strict=True):
            put_back[place] = row
        assert put_back == expected_rows(folder / files_of(name).validation, LABELS[name])
        assert [example.label for example in part.examples] == [row[0] for row in put_back]
        assert [example.text for example in part.examples] == [row[1] for row in put_back]
        assert part.examples[0].id == f"{name}1-0"
        assert part.scored
        assert all(batch["attention_mask"].any(axis=2).all() for batch in part.batches)
    assert len(split.batches) == sum(len(part.batches) for part in split.parts.values())


def test_the_test_split_asks_and_has_no_batches_to_score(folder):
    split = config(folder, parts=("sst", "quora")).load(0, VOCABULARY).split("test")
    assert list(split.parts) == ["sst"]
    assert [example.label for example in split.parts["sst"].examples] == [None] * 9
    assert len(split.parts["sst"].batches) == 2
    assert split.batches == ()
    assert (split.scored, split.parts["sst"].scored) == (False, False)


def test_quora_is_parted_in_training_and_dev(folder):
    split = config(folder, parts=("quora",)).load(0, VOCABULARY).split("dev")
    ids = [example.id for example in split.parts["quora"].examples]
    assert ids == [f"quora0-{number}" for number in range(70, 90)]


def test_texts_that_are_too_long_are_truncated_and_counted(folder):
    corpus = config(folder, parts=("sst",), max_length=6).load(0, VOCABULARY)
    long = sum(len(text.split()) > 4 for _, text in expected_rows(folder / files_of("sst").train, LABELS["sst"]))
    dev = sum(len(text.split()) > 4 for _, text in expected_rows(folder / files_of("sst").validation, LABELS["sst"]))
    assert f"sst 90 / 21 ({long} training texts truncated)" in corpus.description
    assert corpus.split("dev").parts["sst"].notes == (f"{dev} texts were truncated to 6 tokens",)
    assert max(batch["tokens"].shape[2] for batch in first_batches(corpus, 20)) == 6


def test_the_fingerprint_distinguishes_texts_and_vocabularies(folder):
    first = config(folder).load(0, VOCABULARY).fingerprint
    assert config(folder, length_multiple=8).load(1, VOCABULARY).fingerprint == first
    other = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS], lowercase=False)
    assert config(folder).load(0, other).fingerprint != first
    path = folder / files_of("sst").validation
    path.write_text(path.read_text().replace("cat", "dog"))
    assert config(folder).load(0, VOCABULARY).fingerprint != first


@pytest.mark.parametrize("name", ["sst", "quora", "sts"])
def test_a_file_is_of_the_task_whose_labels_it_has(folder, tmp_path, name):
    (tmp_path / "mine.tsv").write_text(table(name, 3, 5))
    found = config(folder).read_file(tmp_path / "mine.tsv", processor("sst", "quora", "sts"))
    assert {name: len(part.examples) for name, part in found.parts.items()} == {name: 3}
    assert found.scored


def test_a_file_without_labels_is_of_all_tasks_about_such_texts(folder, tmp_path, caplog):
    (tmp_path / "mine.tsv").write_text(table("sts", 3, 5, labelled=False))
    found = config(folder).read_file(tmp_path / "mine.tsv", processor("sst", "quora", "sts"))
    assert list(found.parts) == ["quora", "sts"]
    assert not any(part.scored for part in (found, *found.parts.values()))
    assert found.batches == ()
    expected = "no labels: it does not have the column is_duplicate or sentiment or similarity, only "
    assert expected + "id, sentence1, sentence2" in caplog.text


def test_a_file_that_could_be_of_two_tasks_or_is_of_none_is_refused(folder, tmp_path):
    (tmp_path / "mine.tsv").write_text(table("cfimdb", 3, 5))
    with pytest.raises(DataError, match=r"mine.tsv has the column sentiment, which sst and cfimdb have; score it with"):
        config(folder).read_file(tmp_path / "mine.tsv", processor("sst", "cfimdb"))
    (tmp_path / "mine.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(DataError, match=r"mine.tsv, line 1: expected the columns id, sentence between"):
        config(folder).read_file(tmp_path / "mine.tsv", processor("sst", "sts"))


def test_what_is_to_be_scored_and_has_no_label_or_is_cut_is_counted(folder, tmp_path, caplog):
    (tmp_path / "mine.tsv").write_text(table("sst", 30, 5) + "30\tx\tthe cat\t\n")
    split = config(folder, max_length=10).read_file(tmp_path / "mine.tsv", processor("sst"))
    assert "rows without a label, which are skipped: 1" in caplog.text
    texts = [line.split("\t")[2] for line in (tmp_path / "mine.tsv").read_text().splitlines()[1:-1]]
    long = sum(len(text.split()) > 8 for text in texts)
    assert long > 0
    assert split.parts["sst"].notes == (f"{long} texts were truncated to 10 tokens",)


def test_batches_are_no_longer_than_the_longest_text(folder):
    corpus = config(folder, max_length=10, length_multiple=16).load(0, VOCABULARY)
    assert {batch["tokens"].shape[2] for batch in first_batches(corpus, 5)} == {10}
    assert {batch["tokens"].shape[2] for batch in corpus.split("dev").batches} == {10}


def test_quoras_own_training_and_test_files_are_read_where_they_are_there(folder):
    (folder / "quora-train.csv.gz").write_bytes(gzip.compress(table("quora", 33, 5).encode()))
    (folder / "quora-test-student.csv").write_text(table("quora", 7, 6, labelled=False))
    corpus = config(folder, parts=("quora",)).load(0, VOCABULARY)
    assert "quora 33 / 90" in corpus.description
    assert [len(corpus.split(name).parts["quora"].examples) for name in ("dev", "test")] == [90, 7]


def test_what_is_missing_is_named(folder):
    with pytest.raises(
        DataError, match=r"text tasks need a pretrained tokenizer; give a pretrained model or a run with --init-from"
    ):
        config(folder).load(0)
    with pytest.raises(DataError, match=r"needs a WordPieceVocabulary, got a WordVocabulary"):
        config(folder).load(0, WordVocabulary(["a"]))
    with pytest.raises(
        DataError, match=r"sst has 90 training examples, fewer than a batch; set --data.batch-size to 90"
    ):
        config(folder, batch_size=91).load(0, VOCABULARY)
    (folder / files_of("sst").validation).unlink()
    with pytest.raises(
        FileNotFoundError,
        match=rf"{folder} does not have ids-sst-dev.csv for cs224n_sst, with or without .gz; .*--data.path",
    ):
        config(folder).load(0, VOCABULARY)


def own_tables(tmp_path):
    """Two tables of one's own: classes of texts, and similarities of pairs."""
    reviews = [f"the cat {'sat' if n % 2 else 'ran'},{'good' if n % 2 else 'bad'}" for n in range(40)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *reviews]) + "\n")
    pairs = [f"the dog,on mat,{n % 4}" for n in range(40)]
    (tmp_path / "near.csv").write_text("\n".join(["text,pair,score", *pairs]) + "\n")
    return tuple(f"{name}={tmp_path / name}.csv" for name in ("reviews", "near"))


def test_tables_of_ones_own_are_parts_next_to_the_projects(folder, tmp_path):
    data = config(folder, parts=("reviews", "sst", "near"), tables=own_tables(tmp_path))
    corpus = data.load(0, VOCABULARY)
    labels = dict(corpus.processor.parts)
    assert labels == {
        "reviews": Labels("classification", 1, ("bad", "good")),
        "sst": LABELS["sst"],
        "near": Labels("similarity", 2, highest=3.0),
    }
    assert "reviews 36 / 4, sst 90 / 21, near 36 / 4" in corpus.description
    assert {name for batch in first_batches(corpus, 3) for name in batch.keys() & labels.keys()} == set(labels)
    assert list(corpus.split("dev").parts) == ["reviews", "sst", "near"]


def test_only_tables_of_ones_own_need_no_folder_of_the_project(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXNLP_DATA", str(tmp_path / "nothing"))
    data = MinBertData(parts=("reviews", "near"), tables=own_tables(tmp_path), batch_size=4)
    assert list(data.load(0, VOCABULARY).split("dev").parts) == ["reviews", "near"]


def test_a_file_for_ones_own_parts_is_of_the_part_whose_columns_it_has(tmp_path):
    data = MinBertData(parts=("reviews", "near"), tables=own_tables(tmp_path), batch_size=4)
    processor = data.load(0, VOCABULARY).processor
    (tmp_path / "more.csv").write_text("text,label\nthe mat,bad\n")
    assert list(data.read_file(tmp_path / "more.csv", processor).parts) == ["reviews"]
    (tmp_path / "more.csv").write_text("text,pair,score\nthe mat,far,2\n")
    assert list(data.read_file(tmp_path / "more.csv", processor).parts) == ["near"]
    (tmp_path / "more.csv").write_text("text\nthe mat\n")
    assert list(data.read_file(tmp_path / "more.csv", processor).parts) == ["reviews"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parts": ("mine",), "tables": ("mine=a.csv", "mine=b.csv")}, "new, distinct names, got mine, mine"),
        ({"parts": ("sst",), "tables": ("sst=a.csv",)}, "data.tables must have new, distinct names, got sst"),
        ({"tables": ("mine=a.csv",)}, "data.parts does not include mine of data.tables; add it, or remove the table"),
        ({"parts": ("mine",), "tables": ("mine=a.csv",), "path": "x"}, "data.path applies only to parts of CS224N"),
        ({"parts": ("mine",), "tables": ("a.csv",)}, "data.tables must be NAME=FILE or NAME=FILE,VALIDATION_FILE"),
        ({"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
        ({"parts": ()}, "data.parts must be some of sst, cfimdb, quora, sts, each once, got none"),
        ({"parts": ("sst", "sst")}, "each once, got sst, sst"),
        ({"parts": ("sst", "mnli")}, "data.parts must be some of sst, cfimdb, quora, sts, each once, got sst, mnli"),
        ({"schedule": "annealed"}, "data.schedule applies only to several data.parts; set it to 'round_robin', got"),
        ({"schedule_steps": 5}, "data.schedule_steps applies only to data.schedule annealed and sequential of several"),
        ({"parts": ("sst", "sts"), "schedule": "together", "schedule_steps": 5}, "data.schedule_steps applies only to"),
        ({"max_length": 2}, "data.max_length must be at least 3, got 2"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=message):
        MinBertData(**fields)


@pytest.mark.thorough
@pytest.mark.realdata
def test_the_projects_tasks_are_read_whole():
    pieces = (
        (Path(os.environ["JAXNLP_DATA"]) / "bert_vocab" / "bert-base-uncased" / "vocab.txt").read_text().split("\n")
    )
    vocabulary = WordPieceVocabulary.of_pieces(pieces[:-1])
    corpus = MinBertData(parts=("sst", "cfimdb", "quora", "sts")).load(0, vocabulary)
    sizes = {name: len(part.examples) for name, part in corpus.split("dev").parts.items()}
    assert sizes == {"sst": 1_101, "cfimdb": 245, "quora": 4_212, "sts": 863}
    assert {name: len(part.examples) for name, part in corpus.split("test").parts.items()} == {
        "sst": 2_210,
        "cfimdb": 488,
        "sts": 1_725,
    }
