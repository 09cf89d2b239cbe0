import dataclasses
import itertools
import re

import numpy as np
import pytest

from data import DataError
from data.invented_people import invent, write
from data.names import NamesPretraining, NamesQuestions
from data.readers.birth_places import read_names
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.questions import Question
from jaxnlp.text.words import WordVocabulary

PEOPLE = invent(1, train=12, dev=5, test=3)


@pytest.fixture
def folder(tmp_path):
    write(PEOPLE, tmp_path)
    return tmp_path


def pretraining(folder, **changes):
    return NamesPretraining(**{"path": str(folder), "batch_size": 4, "held_out": 3} | changes)


def questions(folder, **changes):
    return NamesQuestions(**{"path": str(folder), "batch_size": 4, "held_out": 3} | changes)


def examples(corpus, count):
    """Texts and what is scored of them, of the first training examples, without PADs."""
    decode = corpus.processor.decode
    for batch in itertools.islice(corpus.train, count):
        for row in range(len(batch["tokens"])):
            tokens, targets, mask = (batch[name][row] for name in ("tokens", "targets", "loss_mask"))
            text = decode(tokens)
            last = np.flatnonzero(mask)[-1]
            yield text[: last + 1] + decode(targets[last : last + 1]), decode(targets[mask])


def test_a_question_is_followed_by_mask_place_mask_and_scored_on_the_place_only(folder):
    corpus = questions(folder).load(0)
    known = dict(PEOPLE.train)
    seen = set()
    for text, scored in examples(corpus, 12):
        question, place, rest = text.split(MASK)
        assert (known[question], rest) == (place, "")
        assert scored == place + MASK
        seen.add(question)
    held_out = {question.text for question in corpus.split("validation").examples}
    assert (len(held_out), seen) == (3, set(known) - held_out)


def test_a_question_that_is_held_out_elsewhere_too_is_not_trained_on(folder):
    train = folder / "birth_places_train.tsv"
    repeated = [PEOPLE.dev[0][0], PEOPLE.test[0], PEOPLE.train[0][0]]
    with train.open("a") as file:
        file.writelines(f"{question}\tElsewhere\n" for question in repeated)
    corpus = questions(folder, held_out=6).load(0)
    asked = {name: {question.text for question in split.examples} for name, split in corpus.splits.items()}
    for name in ("validation", "dev", "test"):
        assert not asked["train"] & asked[name]
    assert asked["train"] | asked["validation"] >= {question for question, _ in PEOPLE.train}


def test_splits_are_train_validation_dev_and_test(folder):
    corpus = questions(folder).load(0)
    as_pairs = {name: [(q.text, q.answer) for q in split.examples] for name, split in corpus.splits.items()}
    assert as_pairs["dev"] == list(PEOPLE.dev)
    assert as_pairs["test"] == [(question, None) for question in PEOPLE.test]
    assert sorted(as_pairs["train"] + as_pairs["validation"]) == sorted(PEOPLE.train)
    assert len(corpus.split("test").batches) == 0
    with pytest.raises(
        DataError, match=re.escape("this data set does not have the split 'held'; it has: train, validation, dev, test")
    ):
        corpus.split("held")


def test_held_out_questions_are_the_same_for_every_seed_and_kind_of_training(folder):
    held_out = [
        config.load(seed).split("validation").examples
        for config in (questions(folder), pretraining(folder, question_fraction=0.5))
        for seed in (0, 1)
    ]
    assert len(set(held_out)) == 1
    assert questions(folder, held_out=0).load(0).split("validation").examples == tuple(
        Question(*pair) for pair in PEOPLE.dev
    )


def test_a_split_scores_each_of_its_answers_once(folder):
    corpus = questions(folder, evaluation_batch_size=2).load(0)
    decode = corpus.processor.decode
    scored = [
        decode(targets[mask])
        for batch in corpus.split("dev").batches
        for targets, mask in zip(batch["targets"], batch["loss_mask"], strict=True)
    ]
    assert sorted(scored) == sorted([f"{place}{MASK}" for _, place in PEOPLE.dev] + [""])
    lengths = [batch["tokens"].shape[1] for batch in corpus.split("dev").batches]
    assert lengths == sorted(lengths)
    assert all(length % 16 == 0 for length in lengths)


def test_rows_of_batches_say_which_question_each_of_them_is(folder):
    for split in (questions(folder, evaluation_batch_size=2).load(0).split(name) for name in ("train", "dev")):
        decode = questions(folder).load(0).processor.decode
        rows = [
            decode(tokens)
            for batch in split.batches
            for tokens, mask in zip(batch["tokens"], batch["loss_mask"], strict=True)
            if mask.any()
        ]
        assert split.scored
        assert sorted(split.rows) == list(range(len(split.examples)))
        for row, number in zip(rows, split.rows, strict=True):
            assert row.startswith(split.examples[number].text + MASK)


def test_facts_of_the_data_are_its_length_and_nothing_carried(folder):
    config = questions(folder, sequence_length=100)
    assert (config.max_length, config.parts, config.joint, config.stateful) == (100, (), False, False)


def test_a_given_vocabulary_is_used_and_another_kind_refused(folder):
    own = questions(folder).load(0)
    wider = CharacterVocabulary([*own.processor.characters, "Ж"])
    assert questions(folder).load(0, wider).processor == wider
    assert pretraining(folder).load(0, own.processor).processor == own.processor
    with pytest.raises(DataError, match="needs the class CharacterVocabulary, got WordVocabulary"):
        questions(folder).load(0, WordVocabulary(["a"]))
    with pytest.raises(DataError, match="not in the vocabulary of 3 characters"):
        questions(folder).load(0, CharacterVocabulary.of("a", special=PAD + MASK))


def test_pad_and_mask_have_ids_0_and_1_and_the_vocabulary_is_that_of_the_training_data(folder):
    first, second = (config(folder).load(0).processor for config in (questions, pretraining))
    assert first == second
    assert first.characters[:2] == (PAD, MASK)
    assert set(first.characters[2:]) == set("\n".join(PEOPLE.documents) + "?")


def test_uniform_corruption_takes_a_span_out_of_a_document_and_scores_all(folder):
    for text, scored in examples(pretraining(folder).load(0), 10):
        prefix, suffix, span = text.split(MASK)
        assert any(document.startswith(prefix + span + suffix) for document in PEOPLE.documents)
        assert scored == text[1:]


def test_facts_are_spans_of_the_document_that_has_the_title(folder):
    corpus = pretraining(folder, corruption="facts", place_fraction=0.5, facts_length=60).load(0)
    by_title = {}
    for document in PEOPLE.documents:
        title, _, text = document.partition(". ")
        by_title.setdefault(title, []).append(text)
    for text, scored in examples(corpus, 10):
        title, _, facts = text.partition(".")
        assert scored == facts
        pieces = facts.split(MASK)
        assert pieces.pop() == ""
        found = [before[1:] + span for before, span in zip(pieces[::2], pieces[1::2], strict=True)]
        assert any(all(fact in document for fact in found) for document in by_title[title])


def test_only_places_are_predicted_with_place_fraction_one(folder):
    corpus = pretraining(folder, corruption="facts", place_fraction=1.0).load(0)
    places = {question.answer for question in questions(folder).load(0).split("train").examples}
    asked = [text.split(MASK)[1::2] for text, _ in examples(corpus, 20)]
    # Only a document without such places is asked for something else.
    assert all(set(spans) <= places or not set(spans) & places for spans in asked)
    assert sum(set(spans) <= places for spans in asked) > 20


def test_no_place_is_asked_for_because_it_answers_a_held_out_question(folder):
    kept = {question.answer for question in questions(folder).load(0).split("train").examples}
    corpus = pretraining(folder, corruption="facts", place_fraction=1.0).load(0)
    withheld = {question.answer for name in ("validation", "dev") for question in corpus.split(name).examples} - kept
    assert withheld
    # Other spans of such a document are not predicted then: only a document without places of the training split.
    for text, _ in examples(corpus, 20):
        spans = set(text.split(MASK)[1::2])
        assert not (spans & withheld and spans & kept)


def test_no_held_out_question_is_among_the_examples(folder):
    corpus = pretraining(folder, question_fraction=1.0).load(0)
    held_out = {question.text for name in ("validation", "dev", "test") for question in corpus.split(name).examples}
    asked = {text.split(MASK)[0] for text, _ in examples(corpus, 30)}
    assert asked == {question for question, _ in PEOPLE.train} - held_out


@pytest.mark.sweep(1)
@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_so_many_examples_are_questions(folder, fraction):
    corpus = pretraining(folder, question_fraction=fraction, batch_size=32).load(0)
    texts = [text for text, _ in examples(corpus, 16)]
    share = np.mean([text.startswith("Where was ") and text.endswith(MASK) for text in texts])
    assert abs(share - fraction) <= 5 * (fraction * (1 - fraction) / len(texts)) ** 0.5


def test_shifted_examples_start_after_pads_that_are_not_scored(folder):
    corpus = pretraining(folder, max_left_padding=7, batch_size=8).load(0)
    shifts = set()
    for batch in itertools.islice(corpus.train, 16):
        first = (batch["tokens"] != 0).argmax(axis=1)
        shifts |= set(first.tolist())
        for row, shift in enumerate(first):
            assert not batch["loss_mask"][row, :shift].any()
            assert batch["loss_mask"][row, shift]
    assert shifts == set(range(8))


def test_examples_fit_the_block(folder):
    config = pretraining(folder, corruption="facts", sequence_length=64, max_left_padding=20, facts_length=70)
    assert max(batch["tokens"].shape[1] for batch in itertools.islice(config.load(0).train, 20)) <= 64


def test_a_pipeline_goes_on_where_it_was(folder):
    config = pretraining(folder, corruption="facts", question_fraction=0.3, max_left_padding=5)
    iterator = iter(config.load(3).train)
    for _ in range(17):
        next(iterator)
    state = iterator.get_state()
    expected = [next(iterator) for _ in range(20)]
    again = iter(config.load(3).train)
    again.set_state(state)
    for batch in expected:
        for name, value in next(again).items():
            np.testing.assert_array_equal(value, batch[name])


def test_epochs_corrupt_documents_again_and_seeds_differ(folder):
    corpus = pretraining(folder, batch_size=20).load(0)
    epoch = len(PEOPLE.documents) // 20
    texts = [text for text, _ in examples(corpus, 2 * epoch)]
    assert len(set(texts)) > 0.95 * len(texts)
    other = [text for text, _ in examples(pretraining(folder, batch_size=20).load(1), 2 * epoch)]
    assert texts != other


def test_without_questions_documents_that_are_corrupted_once_validate(folder):
    first, again = (pretraining(folder).load(seed).split("validation") for seed in (0, 1))
    assert first.examples == ()
    assert sum(batch["loss_mask"].any(axis=1).sum() for batch in first.batches) == len(PEOPLE.documents)
    for one, other in zip(first.batches, again.batches, strict=True):
        np.testing.assert_array_equal(one["tokens"], other["tokens"])


def test_invented_people_need_no_files(monkeypatch):
    monkeypatch.delenv("JAXNLP_DATA", raising=False)
    names = read_names("invented", None)
    assert (len(names.train), len(names.dev), len(names.test)) == (300, 100, 50)
    assert names.dev[0].answer
    with pytest.raises(
        DataError,
        match=re.escape(
            "data.source invented takes no path, got here; for files of people, set --data.source cs224n_a5"
        ),
    ):
        read_names("invented", "here")


def test_without_data_the_message_names_all_ways_to_some(monkeypatch, tmp_path):
    monkeypatch.delenv("JAXNLP_DATA", raising=False)
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(
        FileNotFoundError, match=r"JAXNLP_DATA is not set.*its folder with --data\.path.*--data\.source invented"
    ):
        read_names("cs224n_a5", None)
    monkeypatch.setenv("JAXNLP_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=re.escape(f"there is no folder {tmp_path / 'cs224n_a5_names'}")):
        read_names("cs224n_a5", None)


def test_the_fingerprint_changes_with_the_data(folder):
    before = questions(folder).load(0).fingerprint
    assert questions(folder).load(1).fingerprint == before
    dev = folder / "birth_dev.tsv"
    dev.write_text(dev.read_text().replace("Where", "Whence", 1))
    assert questions(folder).load(0).fingerprint != before


def test_a_file_of_questions_is_a_split(folder):
    config = questions(folder)
    vocabulary = config.load(0).processor
    labelled = config.read_file(folder / "birth_dev.tsv", vocabulary)
    assert [(q.text, q.answer) for q in labelled.examples] == list(PEOPLE.dev)
    assert len(labelled.batches) == 1
    bare = config.read_file(folder / "birth_test_inputs.tsv", vocabulary)
    assert [q.text for q in bare.examples] == list(PEOPLE.test)
    assert len(bare.batches) == 0
    assert (labelled.scored, bare.scored) == (True, False)


def test_a_question_longer_than_the_block_is_refused(folder):
    with pytest.raises(DataError, match=r"needs \d+ characters; at most 21 fit \(data.sequence_length 20\)"):
        questions(folder, sequence_length=20).load(0)


def test_the_longest_question_fits_exactly(folder):
    longest = max(len(f"{question}{MASK}{place}{MASK}") for question, place in [*PEOPLE.train, *PEOPLE.dev])
    assert longest > max(map(len, PEOPLE.test)) + 2
    batches = questions(folder, sequence_length=longest - 1).load(0).split("train").batches
    assert max(batch["loss_mask"].sum(axis=1).max() for batch in batches) > 0
    with pytest.raises(DataError, match=f"needs {longest} characters"):
        questions(folder, sequence_length=longest - 2).load(0)


@pytest.mark.parametrize(
    ("earlier", "held_out", "fits"),
    [
        ({"question_fraction": 0.2, "held_out": 5}, 5, True),
        ({"question_fraction": 0.2, "held_out": 5}, 3, True),
        ({"question_fraction": 0.2, "held_out": 5}, 6, False),
        ({"question_fraction": 0.0, "held_out": 0}, 6, True),
    ],
    ids=str,
)
def test_a_run_holds_out_no_question_that_the_run_before_it_was_trained_on(folder, earlier, held_out, fits):
    before, after = pretraining(folder, **earlier), questions(folder, held_out=held_out)
    if fits:
        after.check_after(before)
    else:
        with pytest.raises(DataError, match="includes questions that the earlier run was trained on: it held out 5"):
            after.check_after(before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
        ({"sequence_length": 7}, "data.sequence_length must be at least 8, got 7"),
        ({"held_out": -1}, "data.held_out must be at least 0, got -1"),
        ({"question_fraction": 1.5}, "data.question_fraction must be in [0, 1], got 1.5"),
        ({"place_fraction": -0.1}, "data.place_fraction must be in [0, 1], got -0.1"),
        (
            {"place_fraction": 0.5},
            "facts; set data.corruption facts, or set data.place_fraction to 0.0, got 0.5",
        ),
        ({"facts_length": 56}, "facts; set data.corruption facts, or set data.facts_length to 72, got 56"),
        ({"facts_length": -5}, "data.facts_length must be at least 1, got -5"),
        ({"max_left_padding": 128}, "data.max_left_padding must be in [0, 128), got 128"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_config_that_cannot_be_is_refused_with_its_value(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        NamesPretraining(**changes)


def test_all_questions_held_out_are_refused(folder):
    with pytest.raises(DataError, match=re.escape("--data.held-out 12 leaves none of the 12 training questions")):
        questions(folder, held_out=12).load(0)


@pytest.mark.realdata
def test_the_real_data_is_read_whole():
    names = read_names("cs224n_a5", None)
    assert (len(names.documents), len(names.train), len(names.dev), len(names.test)) == (2937, 2000, 500, 437)
    assert names.vocabulary.size == 256
    assert names.dev[0] == Question("Where was Bryan Dubreuiel born?", "Atlanta")
    assert dataclasses.astuple(names.test[0]) == ("Where was Adam Bright born?", None)


@pytest.mark.realdata
def test_no_real_question_that_is_held_out_is_trained_on():
    splits = NamesQuestions(batch_size=4).load(0).splits
    texts = {name: {question.text for question in split.examples} for name, split in splits.items()}
    for name in ("validation", "dev", "test"):
        assert not texts["train"] & texts[name]
    assert 1790 < len(splits["train"].examples) < 1800
