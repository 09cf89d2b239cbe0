import itertools
import re

import numpy as np
import pytest
from num2words import num2words

from data import DataError
from data.number_words import NumberWords
from jaxnlp.text.translation import SentencePair

SMALL = {"highest": 1_000, "held_out_pairs": 100, "training_pairs": 300, "batch_tokens": 512}


@pytest.fixture(scope="module")
def corpus():
    return NumberWords(**SMALL).load(0)


def training_texts(corpus, count):
    found = []
    for batch in itertools.islice(iter(corpus.train), count):
        for row in np.flatnonzero(batch["loss_mask"].any(axis=1)):
            source = corpus.processor.source.decode(batch["source"][row])
            found.append(SentencePair(source, corpus.processor.target.decode(batch["targets"][row])))
    return found


@pytest.mark.thorough
def test_training_validation_and_test_have_no_number_in_common(corpus):
    validation, test = (set(corpus.split(name).examples) for name in ("validation", "test"))
    assert len(validation) == len(test) == 100
    train = set(training_texts(corpus, 40))
    assert validation.isdisjoint(test)
    assert train.isdisjoint(validation | test)
    assert len(train) > 150
    assert SentencePair("forty-two", "zweiundvierzig") in train


def test_held_out_numbers_do_not_depend_on_the_seed_and_training_does(corpus):
    other = NumberWords(**SMALL).load(1, corpus.processor)
    assert other.split("validation").examples == corpus.split("validation").examples
    assert other.fingerprint == corpus.fingerprint
    assert training_texts(other, 5) != training_texts(corpus, 5)
    assert training_texts(NumberWords(**SMALL).load(0), 5) == training_texts(corpus, 5)


def test_an_iterator_continues_with_the_same_numbers(corpus):
    batches = iter(corpus.train)
    for _ in range(50):
        next(batches)
    again = iter(corpus.train)
    again.set_state(batches.get_state())
    for _ in range(20):
        assert np.array_equal(next(again)["source"], next(batches)["source"])


@pytest.mark.parametrize(
    ("language", "words"), [("de", "siebenundachtzig"), ("es", "ochenta y siete"), ("fr", "quatre-vingt-sept")]
)
def test_languages(language, words):
    corpus = NumberWords(**SMALL | {"language": language}).load(0)
    assert SentencePair("eighty-seven", words) in training_texts(corpus, 40)


def test_the_fingerprint_depends_on_the_numbers(corpus):
    assert NumberWords(**SMALL | {"highest": 2_000}).load(0, corpus.processor).fingerprint != corpus.fingerprint


def test_numbers_that_do_not_fit_are_removed_and_counted():
    corpus = NumberWords(**SMALL | {"lengths": (8, 24), "subwords": "characters"}).load(0)
    long = {n for n in range(1_000) if max(len(num2words(n, lang=language)) for language in ("en", "de")) > 23}
    texts = {SentencePair(num2words(n), num2words(n, lang="de")) for n in set(range(1_000)) - long}
    assert set(training_texts(corpus, 60)) <= texts
    described = r"to German: (\d+) pairs for training \((\d+) of more than 24 tokens removed, the first is '[a-z -]+'\)"
    kept, removed = map(int, re.search(described, corpus.description).groups())
    assert kept + removed == 300
    assert removed > 20


def test_settings_without_numbers_for_training_are_refused():
    with pytest.raises(DataError, match=r"all pairs have more than 2 tokens; raise data.lengths"):
        NumberWords(**SMALL | {"lengths": (2,), "subwords": "characters"}).load(0)
    with pytest.raises(ValueError, match=r"data.held_out_pairs 500 leaves too few of 1000 numbers for training"):
        NumberWords(highest=1_000)
    with pytest.raises(ValueError, match=r"data.language must be one of de, es, fr, got 'it'"):
        NumberWords(language="it")
