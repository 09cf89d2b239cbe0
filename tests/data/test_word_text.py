import itertools
import json
import logging
import re

import numpy as np
import pytest

from data import DataError
from data.word_text import WordText
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.words import EOL, UNK, WordVocabulary

TITLES = ["One Two", "Three Four", "Five Six Seven"]
LINES = 40


def wikitext(titles, lines=LINES):
    """Articles whose words are all different, so that a place can be told from a word."""
    words = itertools.count()
    return "".join(
        f" = {title} = \n" + "".join(" " + " ".join(f"w{next(words)}" for _ in range(6)) + " \n" for _ in range(lines))
        for title in titles
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text(wikitext(TITLES))
    (tmp_path / "valid.txt").write_text(wikitext(TITLES[:2], 10))
    return tmp_path


def config(folder, **changes):
    small = {"batch_size": 4, "sequence_length": 12}
    if changes.get("mode") != "windows":
        small |= {"length_multiple": 3, "bptt_length_std": 2.0}
    return WordText(**{"path": str(folder), "evaluation_batch_size": 3} | small | changes)


def batches(corpus, count):
    return list(itertools.islice(corpus.train, count))


def assert_batches_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name])


def epochs_of(corpus, count):
    """The first epochs, each a list of batches, as `reset` divides them."""
    found = []
    for batch in corpus.train:
        if batch["reset"].all():
            if len(found) == count:
                return found
            found.append([])
        found[-1].append(batch)


def rows(epoch, name="tokens"):
    return np.concatenate([batch[name] for batch in epoch], axis=1)


def pairs_of(text):
    return set(zip(text[:-1].tolist(), text[1:].tolist(), strict=True))


def texts(folder):
    """The training and the validation text, as ids."""
    vocabulary = config(folder).load(0).processor
    return tuple(vocabulary.encode((folder / name).read_text()) for name in ("train.txt", "valid.txt"))


def test_windows_are_of_the_text_with_the_next_words_as_targets(folder):
    corpus = config(folder, mode="windows").load(0)
    train, _ = texts(folder)
    known = pairs_of(train)
    for batch in batches(corpus, 30):
        assert {name: x.shape for name, x in batch.items()} == dict.fromkeys(
            ("tokens", "targets", "loss_mask"), (4, 12)
        )
        found = set(zip(batch["tokens"].ravel().tolist(), batch["targets"].ravel().tolist(), strict=True))
        assert len(found - known) <= len(TITLES)  # where one article follows another


def test_an_epoch_of_windows_sees_all_words_but_those_that_fill_no_batch(folder):
    corpus = config(folder, mode="windows").load(0)
    train, _ = texts(folder)
    in_epoch = (len(train) - 1) // 12 // 4
    seen = np.concatenate([batch["targets"].ravel() for batch in batches(corpus, in_epoch)])
    assert len(train) - len(seen) < 12 * 5
    _, counts = np.unique(seen, return_counts=True)
    _, expected = np.unique(train, return_counts=True)
    assert counts.sum() == len(seen)
    assert counts.max() <= expected.max()
    assert np.count_nonzero(counts == 1) > 600


def test_streams_go_on_from_batch_to_batch_until_the_epoch_ends(folder):
    corpus = config(folder).load(0)
    train, _ = texts(folder)
    known = pairs_of(train)
    for epoch in epochs_of(corpus, 3):
        tokens, targets = rows(epoch), rows(epoch, "targets")
        np.testing.assert_array_equal(tokens[:, 1:], targets[:, :-1])
        assert len(pairs_of(tokens.ravel()) - known) <= len(TITLES) + 4
        assert 0 <= (len(train) - 1) // 4 - tokens.shape[1] < 3
        assert not any(batch["reset"].any() for batch in epoch[1:])


@pytest.mark.parametrize("mode", ["windows", "streams"])
def test_data_whose_rows_go_on_from_batch_to_batch_says_so_and_where_they_begin(folder, mode):
    data = config(folder, mode=mode)
    (batch,) = batches(data.load(0), 1)
    assert data.stateful == ("reset" in batch) == (mode == "streams")


def test_articles_come_in_another_order_in_each_epoch_and_streams_begin_elsewhere(folder):
    corpus = config(folder, batch_size=1, length_multiple=1).load(0)
    titles = corpus.processor.encode("One Three Five").tolist()

    def order(epoch):
        return tuple(titles.index(word) for word in rows(epoch)[0] if word in titles)

    epochs = epochs_of(corpus, 20)
    # An epoch's last word is only a target, and may be the one of a title.
    assert len({order(epoch) for epoch in epochs if len(order(epoch)) == 3}) == 6
    assert len({int(epoch[0]["tokens"][0, 0]) for epoch in epochs}) > 10
    kept = config(folder, batch_size=1, length_multiple=1, shuffle_articles=False).load(0)
    orders = {order(epoch) for epoch in epochs_of(kept, 20) if len(order(epoch)) == 3}
    assert orders == {(0, 1, 2), (1, 2, 0), (2, 0, 1)}


def test_lengths_vary_within_the_bound(folder):
    corpus = config(folder, sequence_length=24, bptt_length_std=4.0).load(0)
    lengths = {batch["tokens"].shape[1] for batch in batches(corpus, 300)}
    assert 4 < len(lengths) <= 10
    assert {length % 3 for length in lengths} == {0}
    assert max(lengths) <= 30


@pytest.mark.parametrize("mode", ["windows", "streams"])
def test_saved_and_set_state_gives_the_same_continuation(folder, mode):
    for taken in (0, 7, 40):
        original = iter(config(folder, mode=mode).load(5).train)
        for _ in range(taken):
            next(original)
        state = json.loads(json.dumps(original.get_state()))
        continued = iter(config(folder, mode=mode).load(5).train)
        continued.set_state(state)
        for _ in range(40):
            assert_batches_equal(next(original), next(continued))


@pytest.mark.parametrize("mode", ["windows", "streams"])
def test_only_the_seed_decides_the_order(folder, mode):
    first, again, other = (batches(config(folder, mode=mode).load(seed), 10) for seed in (3, 3, 4))
    for left, right in zip(first, again, strict=True):
        assert_batches_equal(left, right)
    assert any(not np.array_equal(left["tokens"], right["tokens"]) for left, right in zip(first, other, strict=True))


@pytest.mark.parametrize("mode", ["windows", "streams"])
def test_splits_score_the_texts_in_their_own_order(folder, mode):
    corpus = config(folder, mode=mode).load(0)
    for name, text in zip(("train", "validation"), texts(folder), strict=True):
        split = corpus.split(name)
        scored = np.concatenate([batch["targets"] for batch in split.batches], axis=1)
        mask = np.concatenate([batch["loss_mask"] for batch in split.batches], axis=1)
        np.testing.assert_array_equal(scored[mask], text[1:])
        assert len(split.batches) == scored.shape[1] // 12
        assert [bool(batch["reset"].all()) for batch in split.batches] == [True] + [False] * (len(split.batches) - 1)


def test_description_counts_words_and_articles(folder):
    corpus = config(folder).load(0)
    train, valid = map(len, texts(folder))
    assert corpus.description == (
        f"wikitext2: {train:,} words in 3 articles for training, {valid:,} in 2 for validation; "
        f"{corpus.processor.size:,} distinct"
    )


def test_tokens_are_counted_in_the_training_text(folder):
    corpus, (train, _) = config(folder).load(0), texts(folder)
    assert corpus.token_counts.tolist() == [int((train == i).sum()) for i in range(corpus.processor.size)]
    assert 0 in corpus.token_counts


def test_the_fingerprint_distinguishes_texts(folder):
    first = config(folder).load(0).fingerprint
    assert config(folder, mode="windows").load(1).fingerprint == first
    (folder / "valid.txt").write_text("other words\n")
    assert config(folder).load(0).fingerprint != first


def test_python_docs_train_without_files(monkeypatch):
    monkeypatch.delenv("JAXNLP_DATA", raising=False)
    corpus = WordText(source="python_docs", minimum_count=3).load(0)
    assert next(iter(corpus.train))["tokens"].shape[0] == 32
    assert UNK in corpus.processor.decode(np.concatenate([b["tokens"].ravel() for b in batches(corpus, 3)]))


def test_other_files_are_scored_with_the_same_vocabulary_and_unknown_words_counted(folder, tmp_path, caplog):
    vocabulary = WordVocabulary(["a", "b", EOL, UNK], unknown=UNK)
    path = tmp_path / "other.txt"
    path.write_text(f"a b x\nb {UNK} y\n")
    with caplog.at_level(logging.WARNING, logger="data"):
        split = config(folder).read_file(path, vocabulary)
    scored = np.concatenate([batch["targets"] for batch in split.batches], axis=1)
    mask = np.concatenate([batch["loss_mask"] for batch in split.batches], axis=1)
    assert scored[mask].tolist() == vocabulary.encode(path.read_text()).tolist()[1:] == [1, 3, 2, 1, 3, 3, 2]
    assert f"{path}: 2 of 8 words are not in the vocabulary and are scored as {UNK}" in caplog.text


def test_a_file_of_known_words_needs_no_word(folder, tmp_path, caplog):
    (tmp_path / "other.txt").write_text(f"a {UNK} a")
    config(folder).read_file(tmp_path / "other.txt", WordVocabulary(["a", UNK], unknown=UNK))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("text", "vocabulary", "reason"),
    [
        ("a b c", WordVocabulary("ab"), "not in the vocabulary of 2 words: 'c' (first at word 3)"),
        ("a", WordVocabulary("ab"), "has 1 words, but needs at least two: the first is not scored"),
        (" \n", WordVocabulary("ab"), "has 0 words, but needs at least two: the first is not scored"),
    ],
)
def test_a_file_that_cannot_be_scored_is_named(folder, tmp_path, text, vocabulary, reason):
    path = tmp_path / "other.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}.*{re.escape(reason)}"):
        config(folder).read_file(path, vocabulary)


@pytest.mark.parametrize(("mode", "shortest"), [("windows", 12), ("streams", 3)])
def test_a_text_that_is_too_short_for_a_batch_is_refused_with_both_lengths(folder, mode, shortest):
    words = 4 * shortest
    (folder / "train.txt").write_text(" ".join(["a"] * (words - 1)) + "\n")
    message = f"the training text has {words} words, but 4 rows of {shortest} need {words + 1}"
    with pytest.raises(DataError, match=re.escape(message)):
        config(folder, mode=mode).load(0)
    (folder / "train.txt").write_text(" ".join(["a"] * words) + "\n")
    corpus = config(folder, mode=mode).load(0)
    assert {batch["tokens"].shape for batch in batches(corpus, 5)} == {(4, shortest)}


def test_a_validation_text_of_one_word_is_refused(folder):
    (folder / "valid.txt").write_text("\n")
    with pytest.raises(DataError, match="the validation text has one word"):
        config(folder).load(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
        ({"sequence_length": 0}, "data.sequence_length must be at least 1, got 0"),
        ({"minimum_count": 0}, "data.minimum_count must be at least 1, got 0"),
        ({"evaluation_batch_size": 0}, "data.evaluation_batch_size must be at least 1, got 0"),
        ({"length_multiple": 0}, "data.length_multiple must be in [1, 70] (sequence_length), got 0"),
        ({"sequence_length": 9}, "data.length_multiple must be in [1, 9] (sequence_length), got 10"),
        ({"bptt_short_probability": 1.5}, "data.bptt_short_probability must be in [0, 1], got 1.5"),
        ({"bptt_length_std": -1.0}, "data.bptt_length_std must be finite and not negative, got -1.0"),
        ({"bptt_length_std": float("nan")}, "data.bptt_length_std must be finite and not negative, got nan"),
        ({"validation_fraction": 1.0}, "data.validation_fraction must be in (0, 1), got 1.0"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        WordText(**fields)


@pytest.mark.parametrize(
    ("fields", "read_by"),
    [
        ({"mode": "windows", "bptt_short_probability": 0.1}, "data.mode streams"),
        ({"mode": "windows", "bptt_length_std": 1.0}, "data.mode streams"),
        ({"mode": "windows", "length_multiple": 5}, "data.mode streams"),
        ({"source": "wikitext2", "minimum_count": 3}, "data.source python_docs and text_file"),
        ({"source": "cmu_hw4p1", "validation_fraction": 0.2}, "data.source python_docs and text_file"),
    ],
)
def test_options_that_nothing_reads_are_refused(fields, read_by):
    with pytest.raises(ValueError, match=f"^data.{list(fields)[1]} applies only to {read_by}; set "):
        WordText(**fields)
    WordText(**fields | {"mode": "streams", "source": "python_docs"})


@pytest.mark.parametrize(
    ("sequence_length", "std", "multiple"), [(70, 5.0, 10), (35, 0.0, 10), (33, 0.0, 10), (9, 50.0, 9), (12, 30.0, 1)]
)
def test_max_length_is_that_of_the_longest_row_that_can_occur(folder, sequence_length, std, multiple):
    fields = {"sequence_length": sequence_length, "bptt_length_std": std, "length_multiple": multiple}
    data = config(folder, batch_size=1, **fields)
    corpus = data.load(0)
    rows = [batch["tokens"].shape[1] for batch in (*batches(corpus, 500), *corpus.split("train").batches)]
    assert max(rows) == data.max_length
    assert config(folder, mode="windows", sequence_length=sequence_length).max_length == sequence_length


def test_a_given_vocabulary_is_used_and_another_kind_refused(folder):
    own = config(folder).load(0).processor
    wider = WordVocabulary([*own.words, "more"], unknown=own.unknown)
    assert config(folder).load(0, wider).processor == wider
    with pytest.raises(DataError, match="needs the class WordVocabulary, got CharacterVocabulary"):
        config(folder).load(0, CharacterVocabulary("ab"))
    with pytest.raises(DataError, match=r"data.source wikitext2: not in the vocabulary of 1 words: .*; use a model"):
        config(folder).load(0, WordVocabulary(["a"]))


def test_windows_may_be_shorter_than_the_multiple_of_streams():
    assert WordText(mode="windows", sequence_length=5).length_multiple == 10


@pytest.mark.sweep(1)
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("source", "train", "validation"),
    [("cmu_hw4p1", 2_075_677, 216_347), ("wikitext2", 2_088_628, 217_646)],
)
def test_wikitext2_has_its_published_size(source, train, validation):
    corpus = WordText(source=source).load(0)
    assert corpus.processor.size == 33_278
    assert corpus.description.startswith(
        f"{source}: {train:,} words in 579 articles for training, {validation:,} in 59"
    )
    assert sum(int(batch["loss_mask"].sum()) for batch in corpus.split("validation").batches) == validation - 1
    epoch = epochs_of(corpus, 1)[0]
    assert 0 <= (train - 1) // 32 - rows(epoch).shape[1] < 10
    assert len({batch["tokens"].shape for batch in epoch}) <= 8


def test_a_table_that_is_scored_as_text_is_reported(folder, tmp_path, caplog):
    path = tmp_path / "other.csv"
    path.write_text("a b a")
    config(folder).read_file(path, WordVocabulary("ab"))
    assert [message.split(":")[0] for message in caplog.messages] == [str(path)]


@pytest.mark.parametrize(("words", "streams"), [(50, 1), (999, 1), (2_500, 2), (9_000, 3)])
def test_a_short_text_is_scored_in_few_streams_whose_words_have_their_context(folder, tmp_path, words, streams):
    path = tmp_path / "text.txt"
    path.write_text(" ".join("ab"[index % 2] for index in range(words)))
    split = config(folder).read_file(path, WordVocabulary("ab"))
    assert {batch["tokens"].shape for batch in split.batches} == {(streams, 12)}
    assert sum(batch["loss_mask"].sum() for batch in split.batches) == words - 1
