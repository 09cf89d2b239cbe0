import dataclasses
import itertools
import logging
from pathlib import Path

import numpy as np
import pytest

from data import DataError
from data.text_table import TextTable
from jaxnlp.targets import Number, OneClass, SeveralClasses
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests import text_task_files

WORDS = ["the", "cat", "sat", "on", "mat"]
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
CLASSES = ("arts", "sport", "world")


def rows(count, seed):
    generator = np.random.default_rng(seed)
    return [(" ".join(generator.choice(WORDS, 3 + number % 7)), CLASSES[number % 3]) for number in range(count)]


def write(path, header, rows):
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in [header, *rows]))
    return str(path)


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "news.csv", ("text", "label"), rows(60, 0))


def config(path, **fields):
    return TextTable(**{"path": path, "batch_size": 4, "evaluation_batch_size": 4} | fields)


def texts_and_labels(split):
    return [(*example.texts, example.label) for example in split.examples]


def test_classes_are_the_labels_and_rows_are_held_out_of_each(table):
    corpus = config(table).load(0, VOCABULARY)
    assert corpus.processor == TextClassifierProcessor(VOCABULARY, 128, one_part(OneClass(CLASSES)))
    held_out = texts_and_labels(corpus.split("validation"))
    assert sorted(label for *_, label in held_out) == [0, 0, 1, 1, 2, 2]
    assert corpus.token_counts.tolist() == [18, 18, 18]
    trained = [  # pools of 16 rows, of eight epochs
        (VOCABULARY.decode(tokens), int(label))
        for batch in itertools.islice(iter(config(table, batch_size=1).load(0, VOCABULARY).train), 8 * 54)
        for tokens, label in zip(batch["tokens"], batch["labels"], strict=True)
    ]
    assert sorted([*sorted(trained)[::8], *held_out]) == sorted(
        (text, CLASSES.index(label)) for text, label in rows(60, 0)
    )


def test_folds_hold_out_every_row_once(table):
    found = [texts_and_labels(config(table, fold=fold).load(0, VOCABULARY).split("validation")) for fold in range(10)]
    assert sorted(row for fold in found for row in fold) == sorted(
        (text, CLASSES.index(label)) for text, label in rows(60, 0)
    )
    other = config(table, split_seed=1).load(0, VOCABULARY)
    assert texts_and_labels(other.split("validation")) != found[0]


def test_a_second_table_is_for_validation_and_a_third_for_tests(table, tmp_path):
    second = write(tmp_path / "dev.csv", ("label", "text"), [("sport", "the cat"), ("arts", "on the mat")])
    third = write(tmp_path / "test.csv", ("text",), [("the mat sat",)])
    corpus = config(table, validation_path=second, test_path=third).load(0, VOCABULARY)
    assert texts_and_labels(corpus.split("validation")) == [("the cat", 1), ("on the mat", 0)]
    assert corpus.split("validation").scored
    assert texts_and_labels(corpus.split("test")) == [("the mat sat", None)]
    assert not corpus.split("test").scored
    assert corpus.token_counts.sum() == 60


def test_batches_of_a_split_are_sorted_by_length_and_padded(table):
    split = config(table).load(0, VOCABULARY).split("validation")
    labels = np.concatenate([batch["labels"][batch["loss_mask"]] for batch in split.batches])
    assert labels.tolist() == [split.examples[row].label for row in split.rows]
    assert [batch["tokens"].shape[0] for batch in split.batches] == [4, 4]
    assert [int(batch["loss_mask"].sum()) for batch in split.batches] == [4, 2]


def test_several_classes_and_numbers(tmp_path):
    path = write(
        tmp_path / "t.csv", ("text", "label"), [("the cat", "b;a"), ("sat", ""), ("mat", "c"), ("on", "a")] * 3
    )
    corpus = config(path, predict="classes", separator=";", validation_fraction=0.5).load(0, VOCABULARY)
    assert corpus.processor.targets == SeveralClasses(("a", "b", "c"), ";")
    batch = next(iter(corpus.train))
    assert batch["labels"].shape == (4, 3)
    assert batch["labels"].dtype == np.float32
    path = write(tmp_path / "n.csv", ("text", "label"), [("the cat", 1), ("sat", 3.5), ("mat", 5), ("on", 2)] * 3)
    corpus = config(path, predict="number", validation_fraction=0.5).load(0, VOCABULARY)
    assert corpus.processor.targets == Number(1.0, 5.0)
    assert corpus.token_counts is None
    assert 0.0 <= next(iter(corpus.train))["labels"].min() <= 1.0


def test_held_out_numbers_do_not_decide_the_scale(tmp_path):
    path = write(tmp_path / "t.csv", ("text", "label"), [(f"the {n}", n**2) for n in range(20)])
    ends = set()
    for fold in range(5):
        corpus = config(path, predict="number", validation_fraction=0.2, fold=fold).load(0, VOCABULARY)
        held_out = {label for _, label in texts_and_labels(corpus.split("validation"))}
        trained = {float(n**2) for n in range(20)} - held_out
        assert corpus.processor.targets == Number(min(trained), max(trained))
        ends.add(corpus.processor.targets.highest)
    assert len(ends) == 2  # one fold holds out the highest


@pytest.mark.thorough
def test_pairs_are_read_together_and_in_both_orders(tmp_path):
    path = write(tmp_path / "p.csv", ("a", "b", "same"), [("the cat", "mat", "no"), ("sat", "sat on", "yes")] * 6)
    columns = {"text": "a", "pair": "b", "label": "same", "validation_fraction": 0.5}
    corpus = config(path, **columns).load(0, VOCABULARY)
    assert set(next(iter(corpus.train))["segments"].ravel().tolist()) == {0, 1}
    both = config(path, **columns, swap_pairs=True, batch_size=12).load(0, VOCABULARY)
    read = {VOCABULARY.decode(tokens) for tokens in next(iter(both.train))["tokens"]}
    assert read == {"the cat mat", "mat the cat", "sat sat on", "sat on sat"}


def test_pairs_are_read_apart(tmp_path):
    path = write(
        tmp_path / "p.csv", ("a", "b", "same"), [("the cat", "mat", "no"), ("sat", "sat on the mat", "yes")] * 6
    )
    columns = {"text": "a", "pair": "b", "label": "same", "validation_fraction": 0.5}
    corpus = config(path, **columns, pairs="apart", length_multiple=1, max_length=5).load(0, VOCABULARY)
    assert corpus.processor == TextClassifierProcessor(VOCABULARY, 5, one_part(OneClass(("no", "yes")), 2), "apart")
    split = corpus.split("validation")
    assert [batch["tokens"].shape for batch in split.batches] == [(4, 2, 5), (4, 2, 5)]  # three of each class
    read = {
        tuple(VOCABULARY.decode(text[seen]) for text, seen in zip(*pair, strict=True))
        for batch in split.batches
        for *pair, scored in zip(batch["tokens"], batch["attention_mask"], batch["loss_mask"], strict=True)
        if scored
    }
    assert read == {("the cat", "mat"), ("sat", "sat on the")}
    assert split.notes == ("pairs truncated to 5 tokens: 3",)
    assert "tokens of the longer text: median" in corpus.description
    assert not any(batch["segments"].any() for batch in split.batches)


def test_similarities_of_cs224n_are_numbers_from_0_to_5(tmp_path):
    data = TextTable(source="cs224n_sts", path=str(text_task_files.write_tables(tmp_path)))
    assert data.load(0).processor.targets == Number(0.0, 5.0)
    (tmp_path / "mine.csv").write_text("id\tsentence1\tsentence2\tsimilarity\na\tx\ty\t7.5\n")
    processor = data.load(0).processor
    with pytest.raises(DataError, match=r"mine.csv, line 2: similarity must be a number from 0 to 5, got '7.5'"):
        data.read_file(tmp_path / "mine.csv", processor)


def test_facts_of_the_data():
    data = TextTable(max_length=64)
    assert (data.max_length, data.parts, data.joint, data.stateful) == (64, (), False, False)


def test_rarer_classes_are_repeated(tmp_path):
    rows = [("the cat", "a")] * 12 + [("mat", "b")] * 3
    path = write(tmp_path / "t.csv", ("text", "label"), rows)
    corpus = config(path, oversample=True, validation_fraction=1 / 3, batch_size=1).load(0, VOCABULARY)
    assert corpus.token_counts.tolist() == [8, 8]
    labels = [int(batch["labels"][0]) for batch in itertools.islice(iter(corpus.train), 16)]
    assert sum(labels) == 8


def test_frequent_classes_lose_rows_that_the_seed_chooses(tmp_path):
    rows = [(f"the cat {word}", "a") for word in WORDS] + [("mat", "b")] * 3
    path = write(tmp_path / "t.csv", ("text", "label"), rows)
    data = config(path, undersample=True, validation_fraction=1 / 3, batch_size=1)
    corpora = [data.load(seed, VOCABULARY) for seed in range(5)]
    assert all(corpus.token_counts.tolist() == [2, 2] for corpus in corpora)
    assert len({corpus.fingerprint for corpus in corpora}) == 1
    read = [sorted(batch["tokens"].tolist() for batch in itertools.islice(iter(c.train), 4)) for c in corpora]
    assert any(one != read[0] for one in read)
    assert corpora[0].description.endswith("\ntexts left by data.undersample: 4")
    with pytest.raises(DataError, match=r"training rows with data\.undersample, 4; give 4 or less"):
        dataclasses.replace(data, batch_size=5).load(0, VOCABULARY)


def test_both_orders_of_a_pair_are_left_or_neither(tmp_path):
    rows = [(f"the {word}", "cat", "a") for word in WORDS] + [("mat", "the", "b")] * 3
    path = write(tmp_path / "t.csv", ("text", "pair", "label"), rows)
    data = config(path, pair="pair", undersample=True, swap_pairs=True, validation_fraction=1 / 3, batch_size=1)
    batches = itertools.islice(iter(data.load(0, VOCABULARY).train), 8)
    read = [batch["tokens"][0][batch["attention_mask"][0]].tolist()[1:-1] for batch in batches]
    separator = SPECIAL.index("[SEP]")
    pairs = [(one[: one.index(separator)], one[one.index(separator) + 1 :]) for one in read]
    assert sorted(pairs) == sorted((second, first) for first, second in pairs)


@pytest.mark.parametrize("tokens", ["pieces", "words"])
def test_a_vocabulary_is_made_of_the_training_texts(table, tokens):
    corpus = config(table, tokens=tokens).load(0)
    assert set(WORDS) <= set(corpus.processor.words)
    assert config(table, tokens=tokens).load(0).processor == corpus.processor
    assert config(table).load(0, corpus.processor).processor == corpus.processor


def test_words_are_the_most_frequent_ones(tmp_path):
    path = write(tmp_path / "t.csv", ("text", "label"), [("The cat sat", "a"), ("the cat!", "b"), ("the", "b")] * 2)
    corpus = config(path, tokens="words", vocabulary_size=7, validation_fraction=0.5, batch_size=1).load(0)
    assert corpus.processor.words[5:] == ("the", "cat")


def test_a_run_on_other_classes_gives_only_its_vocabulary(table, tmp_path):
    earlier = config(table).load(0).processor
    path = write(tmp_path / "stars.csv", ("text", "label"), [("the cat", "good"), ("mat", "bad")] * 8)
    found = config(path).load(0, earlier).processor
    assert found == TextClassifierProcessor(earlier.vocabulary, 128, one_part(OneClass(("bad", "good"))))


def test_the_summary_says_what_there_is(table, tmp_path):
    second = write(tmp_path / "dev.csv", ("text", "label"), [rows(1, 0)[0], ("mat " * 9, "world")])
    shown = config(table, validation_path=second, max_length=8).load(0, VOCABULARY).description
    assert "texts: 60 for training, 2 for validation" in shown
    assert "3 classes in training: arts 20, sport 20, world 20" in shown
    assert "truncated to 8: " in shown
    assert "texts of validation that are also in training: 1" in shown


def test_a_file_is_scored_with_the_labels_of_the_processor(table, tmp_path):
    processor = config(table).load(0, VOCABULARY).processor
    path = tmp_path / "more.csv"
    write(path, ("text", "label"), [("the cat", "world"), ("sat", "weather")])
    with pytest.raises(DataError, match=r"more.csv, line 3: label must be one of arts, sport, world, got 'weather'"):
        config(table).read_file(path, processor)
    write(path, ("text", "label"), [("the", label) for label in ("world", "snow", "rain", "snow")])
    with pytest.raises(DataError, match=r"line 3: .*, got 'snow'; 3 rows have such labels: 'snow', 'rain'$"):
        config(table).read_file(path, processor)
    write(path, ("text", "label"), [("the cat", "world")])
    assert texts_and_labels(config(table).read_file(path, processor)) == [("the cat", 2)]
    write(path, ("a", "label"), [("the cat", "world")])
    with pytest.raises(DataError, match="missing: text; name the columns of the file as in the run's training table"):
        config(table).read_file(path, processor)
    write(path, ("text",), [("the cat",)])
    assert not config(table).read_file(path, processor).scored


def test_the_fingerprint_changes_with_texts_and_labels(table, tmp_path):
    first = config(table).load(0, VOCABULARY).fingerprint
    assert config(table).load(1, VOCABULARY).fingerprint == first
    changed = write(tmp_path / "news.csv", ("text", "label"), [("cat", "arts"), *rows(60, 0)[1:]])
    assert config(changed).load(0, VOCABULARY).fingerprint != first


def test_rows_without_a_label_are_left_out_and_single_ones_are_reported(tmp_path, caplog):
    path = write(tmp_path / "t.csv", ("text", "label"), [*rows(12, 0), ("mat", ""), ("the cat", "rare")])
    with caplog.at_level(logging.WARNING):
        corpus = config(path).load(0, VOCABULARY)
    assert corpus.processor.targets.names == ("arts", "rare", "sport", "world")
    assert "rows without a label, which are skipped: 1 of 14, the first in line 14" in caplog.text
    assert "classes with a single training row, such as 'rare': 1 of 4; add rows of these classes, or" in caplog.text
    assert "validation has no row of 2 of the classes, such as rare" in corpus.description


def test_a_rare_class_of_several_is_never_held_out_of_training(tmp_path):
    labels = ["arts", "sport;arts", *(f"arts;rare{number}" for number in range(6)), *["sport", "arts"] * 6]
    path = write(tmp_path / "t.csv", ("text", "label"), [("the cat", label) for label in labels])
    for seed in range(8):
        corpus = config(path, predict="classes", separator=";", split_seed=seed).load(0, VOCABULARY)
        assert {label for *_, label in texts_and_labels(corpus.split("validation"))} <= {(0,), (7,), (0, 7)}


def test_a_pair_in_the_other_order_is_in_training_too(tmp_path):
    path = write(tmp_path / "t.csv", ("a", "b", "same"), [("the cat", "mat", 0), ("sat on", "cat", 1)] * 4)
    dev = write(tmp_path / "dev.csv", ("a", "b", "same"), [("mat", "the cat", 0), ("mat", "on", 1)])
    columns = {"text": "a", "pair": "b", "label": "same", "validation_path": dev}
    assert "pairs of validation that are also in training: 1" in config(path, **columns).load(0, VOCABULARY).description


def test_duplicates_of_validation_and_test_are_removed_from_training(tmp_path):
    path = write(tmp_path / "t.csv", ("a", "b", "same"), [("the cat", "mat", 0), ("sat on", "cat", 1)] * 4)
    more = write(tmp_path / "more.csv", ("a", "b", "same"), [("the", "x", 0), ("on", "x", 1), ("mat", "the cat", 0)])
    test = write(tmp_path / "test.csv", ("a", "b", "same"), [("on", "x", 1)])
    columns = {"text": "a", "pair": "b", "label": "same", "validation_path": path, "test_path": test}
    corpus = config(more, drop_duplicates=True, batch_size=1, **columns)
    with pytest.raises(DataError, match="no training row has the class '1'"):
        corpus.load(0, VOCABULARY)
    corpus = config(more, drop_duplicates=True, batch_size=2, **columns | {"test_path": None}).load(0, VOCABULARY)
    assert corpus.description.startswith("pairs: 2 for training, 8 for validation\n")
    assert corpus.description.endswith("\ntraining rows that are also in validation or test, removed: 1")
    assert "also in training" not in corpus.description
    with pytest.raises(DataError, match=r"all training rows are also in validation or test; give others, or no"):
        config(path, drop_duplicates=True, **columns).load(0, VOCABULARY)


def test_other_delimiters_encodings_and_quotes_are_read_in_all_tables(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes('text;label\n\u201ccat\u201d \u20ac;a\nthe "mat;b\n'.encode("cp1252") * 1)
    options = {"encoding": "cp1252", "delimiter": ";", "quotes": "none"}
    fields = {"validation_path": str(path), "test_path": str(path), "batch_size": 2, **options}
    corpus = config(path, **fields).load(0, VOCABULARY)
    for name in ("validation", "test"):
        assert [row.texts[0] for row in corpus.split(name).examples] == ["\u201ccat\u201d \u20ac", 'the "mat']
    split = config(path, **fields).read_file(path, corpus.processor)
    assert [row.texts[0] for row in split.examples] == ["\u201ccat\u201d \u20ac", 'the "mat']
    with pytest.raises(ValueError, match=r"data.encoding applies only to data.source table"):
        TextTable(source="sst2", encoding="cp1252")


def test_a_file_to_score_keeps_all_its_rows_and_columns(table, tmp_path):
    processor = config(table).load(0, VOCABULARY).processor
    path = write(tmp_path / "d.csv", ("id", "text", "label"), [(7, "", "arts"), (8, "the cat", "arts"), (9, "mat", "")])
    split = config(table).read_file(Path(path), processor)
    assert [example.name for example in split.examples] == ["2"]
    assert split.source.columns == ("id", "text", "label")
    assert split.in_rows(["x"], "") == ["", "x", ""]


def test_whole_numbers_are_the_same_class_however_they_are_written(tmp_path):
    path = write(tmp_path / "t.csv", ("text", "label"), [("the cat", "1.0"), ("mat", "2"), ("cat", "1")] * 8)
    assert config(path).load(0, VOCABULARY).processor.targets.names == ("1", "2")


def test_a_table_whose_labels_are_all_empty_can_be_predicted(tmp_path):
    path = write(tmp_path / "t.csv", ("text", "label"), rows(24, 0))
    corpus = config(path).load(0, VOCABULARY)
    unknown = write(tmp_path / "more.csv", ("text", "label"), [("the cat", ""), ("mat", "")])
    split = config(path).read_file(Path(unknown), corpus.processor)
    assert [example.label for example in split.examples] == [None, None]
    assert not split.scored


def test_an_empty_text_is_skipped_where_an_empty_label_means_no_class(tmp_path, caplog):
    path = write(tmp_path / "t.csv", ("text", "label"), [*[("the", "a"), ("cat", "")] * 10, ("", "")])
    corpus = config(path, predict="classes").load(0, VOCABULARY)
    assert "texts: 18 for training, 2 for validation" in corpus.description
    assert "t.csv: rows without a text, which are skipped: 1 of 21, the first in line 22" in caplog.text


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ([("the", "a"), ("cat", "a")], {}, "expected at least two distinct labels in the column label, got 1"),
        ([("the", "a"), ("cat", "b")] * 2, {}, "exceeds the number of training rows"),
        ([(f"the {n}", f"l{n}") for n in range(150)], {}, "has 150 distinct labels in 150 rows, such as 'l0'; choose"),
        ([(f"the {n}", f"l{n}") for n in range(40)], {}, "has 40 distinct labels in 40 rows, such as 'l0'; choose"),
        ([(f"the {n}", f"l{n % 10_001}") for n in range(20_002)], {}, "has 10,001 distinct labels in 20,002 rows"),
        (
            [("the", "4"), ("cat", "many")],
            {"predict": "number"},
            "line 3: label must be a finite number, such as 2.5, got 'many'",
        ),
        (
            [("the", "4"), ("cat", "inf")],
            {"predict": "number"},
            "line 3: label must be a finite number, such as 2.5, got 'inf'",
        ),
        ([("the", "4"), ("cat", "4")], {"predict": "number"}, "all training numbers in the column label are 4"),
        ([("the", ""), ("cat", "")], {}, "no row has a label in the column label"),
        ([("", "a"), (" ", "b")], {}, "all 2 rows are without a text"),
        (
            [("the", "a"), ("cat", "b")],
            {"text": "body"},
            "got text, label; missing: body; name the columns of your table with --data.text, --data.label",
        ),
    ],
)
def test_what_is_no_data_is_named(tmp_path, content, fields, message):
    path = write(tmp_path / "t.csv", ("text", "label"), content)
    with pytest.raises(DataError, match=message):
        config(path, **fields).load(0, VOCABULARY)


def test_a_class_that_only_validation_has_is_refused(tmp_path):
    path = write(tmp_path / "t.csv", ("text", "label"), [("the", "a"), ("cat", "b")] * 4)
    second = write(tmp_path / "d.csv", ("text", "label"), [("the", "c")])
    with pytest.raises(DataError, match=r"d.csv, line 2: label must be one of a, b, got 'c'"):
        config(path, validation_path=second).load(0, VOCABULARY)
    with pytest.raises(DataError, match=r"give it with --data.path"):
        TextTable().load(0, VOCABULARY)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_length": 2}, "data.max_length must be at least 3, got 2"),
        ({"max_length": 4, "pair": "b"}, "data.max_length must be at least 5, got 4"),
        ({"pair": "text"}, "must differ, got text, text, label"),
        ({"validation_fraction": 0.4}, "data.validation_fraction must be 1 / N, for N folds, such as 0.1"),
        ({"validation_fraction": 0.6}, r"data.validation_fraction must be in \(0, 0.5\], got 0.6"),
        ({"fold": 10}, "data.fold must be less than 10"),
        ({"source": "mr", "text": "body"}, "data.text applies only to data.source table"),
        ({"parts": ("sst",), "text": "body"}, "data.text applies only to data without data.parts"),
        ({"parts": ("sst",), "oversample": True}, "data.oversample applies only to data without data.parts"),
        ({"source": "sst2", "fold": 1}, "data.fold applies only to data without separate validation rows"),
        ({"swap_pairs": True}, "data.swap_pairs applies only to pairs of texts"),
        ({"pairs": "apart"}, "data.pairs applies only to pairs of texts"),
        ({"max_length": 2, "pair": "b", "pairs": "apart"}, "data.max_length must be at least 3, got 2"),
        ({"source": "cs224n_sts", "oversample": True}, "data.oversample applies only to data.predict class"),
        ({"source": "cs224n_sts", "predict": "number"}, "data.predict applies only to data.source table"),
        ({"source": "mr", "oversample": True, "undersample": True}, "data.undersample applies only to data without"),
        ({"predict": "number", "oversample": True}, "data.oversample applies only to data.predict class"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=message):
        TextTable(**fields)


@pytest.mark.realdata
@pytest.mark.thorough
def test_questions_of_afqmc_are_read_by_characters():
    corpus = TextTable(source="afqmc", vocabulary_size=3_000).load(0)
    assert corpus.token_counts.tolist() == [23_761, 10_573]
    assert {name: len(split.examples) for name, split in corpus.splits.items()} == {"validation": 2_158, "test": 3_861}
    words = [word for word in corpus.processor.words if "\u4e00" <= word[0] <= "\u9fff"]
    assert words
    assert all(len(word) == 1 for word in words)


def test_rows_that_an_earlier_run_was_trained_on_are_not_held_out(table):
    earlier = config(table, fold=2)
    for after in (earlier, config("other.csv"), config(None, source="sst2")):
        after.check_after(earlier)
    with pytest.raises(DataError, match=r"has read rows of this run's validation; set --data.fold 2$"):
        config(table).check_after(earlier)
    with pytest.raises(DataError, match=r"set --data.validation-fraction 0.1, --data.fold 2$"):
        config(table, validation_fraction=0.5).check_after(earlier)
