import collections
import dataclasses
import itertools
import re

import numpy as np
import pytest

from data import DataError
from data.names_text_to_text import NamesTextToText
from data.pipelines.corruption import split_title
from data.readers.birth_places import read_names

SMALL = NamesTextToText(source="invented", vocabulary_size=400, held_out=10, batch_tokens=512)


@pytest.fixture(scope="module")
def corpus():
    return SMALL.load(0)


def epoch_of(corpus):
    """The pairs of one epoch, as texts."""
    count = int(re.search(r"([\d,]+) pairs for training", corpus.description)[1].replace(",", ""))
    processor, found = corpus.processor, list[tuple[str, str]]()
    for batch in iter(corpus.train):
        for row in np.flatnonzero(batch["loss_mask"].any(axis=1)):
            source = processor.source.decode(batch["source"][row][batch["source_mask"][row]])
            found.append((source, processor.target.decode(batch["targets"][row][batch["loss_mask"][row]])))
        if len(found) >= count:
            return found[:count]
    return found


def test_a_fact_is_in_its_document_after_the_name_and_at_most_four_words_before_it(corpus):
    pairs = epoch_of(corpus)
    questions = [pair for pair in pairs if pair[0].endswith("?")]
    assert len(questions) / len(pairs) == pytest.approx(SMALL.question_fraction, abs=0.01)
    names = read_names("invented", None)
    kept, held_out = names.training_questions(10)
    assert set(questions) <= {(question.text, question.answer) for question in kept}
    assert not {source for source, _ in pairs} & {question.text for question in (*held_out, *names.dev)}
    places = {question.answer for question in kept}
    texts = collections.defaultdict(list)
    for title, text in map(split_title, names.documents):
        texts[title].append(text)
    facts = [pair for pair in pairs if not pair[0].endswith("?")]
    for source, fact in facts:
        title, _, words = source.partition(".")
        found = re.compile(rf"(^|\W){re.escape(words.strip())}\s*{re.escape(fact)}\b")
        assert any(map(found.search, texts[title])), (source, fact)
        assert len(words.split()) <= 4
    assert np.mean([fact in places for _, fact in facts]) > 0.8
    assert len({len(source.partition(".")[2].split()) for source, _ in facts}) == 5


def test_the_splits_have_the_questions_and_the_order_alone_depends_on_the_seed(corpus):
    names = read_names("invented", None)
    splits = {name: corpus.split(name).examples for name in ("validation", "dev", "test")}
    assert [one.source for one in splits["dev"]] == [question.text for question in names.dev]
    assert [one.reference for one in splits["dev"]] == [question.answer for question in names.dev]
    assert len(splits["validation"]) == 10
    assert not corpus.split("test").scored
    again = SMALL.load(1, corpus.processor)
    assert again.fingerprint == corpus.fingerprint
    first, second = (next(iter(one.train))["source"] for one in (corpus, again))
    assert first.shape != second.shape or (first != second).any()
    assert sorted(epoch_of(corpus)) == sorted(epoch_of(again))


def test_without_places_there_are_names_and_numbers_and_without_questions_no_questions():
    config = dataclasses.replace(SMALL, place_fraction=0.0, question_fraction=0.0, facts_per_document=2)
    pairs = epoch_of(config.load(0))
    assert not any(source.endswith("?") for source, _ in pairs)
    assert all(fact[0].isupper() or fact[0].isdigit() for _, fact in pairs)
    assert any(fact[0].isdigit() for _, fact in itertools.islice(pairs, 500))


def test_a_held_out_part_that_leaves_no_question_is_refused():
    with pytest.raises(DataError, match=r"--data\.held-out 100000 leaves none of the .* training questions"):
        dataclasses.replace(SMALL, held_out=100_000).load(0)


def test_a_run_that_held_out_fewer_questions_is_no_beginning():
    earlier = dataclasses.replace(SMALL, held_out=5)
    with pytest.raises(
        DataError, match=r"--data\.held-out 10 includes questions .* it held out 5; set --data\.held-out"
    ):
        SMALL.check_after(earlier)
    earlier.check_after(SMALL)
