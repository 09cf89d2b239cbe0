import itertools

import numpy as np
import pytest
from num2words import num2words

from data import DataError
from data.number_words import NumberWords
from jaxnlp.text.translation import SentencePair

SMALL = {"highest": 1_000, "held_out_pairs": 100, "epoch_pairs": 300, "batch_tokens": 512}


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
    train = set(training_texts(corpus, 200))
    assert validation.isdisjoint(test)
    assert train.isdisjoint(validation | test)
    assert len(train) > 700
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
    assert SentencePair("eighty-seven", words) in training_texts(corpus, 30)


def test_the_fingerprint_depends_on_the_numbers(corpus):
    assert NumberWords(**SMALL | {"highest": 2_000}).load(0, corpus.processor).fingerprint != corpus.fingerprint


@pytest.mark.thorough
@pytest.mark.parametrize("language", ["de", "es", "fr"])
def test_a_rare_number_that_is_too_long_is_refused_before_training(language):
    fields = {"highest": 1_000_000, "held_out_pairs": 10, "epoch_pairs": 20, "subwords": "characters"}
    longest = max(len(num2words(n, lang=of)) for n in range(300_878, 10**6, 1_000) for of in ("en", language)) + 1
    corpus = NumberWords(**fields, language=language, lengths=(longest,)).load(0)
    first_epoch = training_texts(corpus, 1)
    assert max(len(text) + 1 for pair in first_epoch for text in (pair.source, str(pair.reference))) < longest
    with pytest.raises(DataError, match=rf"the number [\d,]+ has {longest} tokens; raise the last of data.lengths"):
        NumberWords(**fields, language=language, lengths=(longest - 1,)).load(0, corpus.processor)


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"the number \d+ has \d+ tokens; raise the last of data.lengths, 4"):
        NumberWords(**SMALL | {"lengths": (4,), "subwords": "characters"}).load(0)
    with pytest.raises(ValueError, match=r"data.held_out_pairs 500 leaves too few of 1000 numbers for training"):
        NumberWords(highest=1_000)
    with pytest.raises(ValueError, match=r"data.language must be one of de, es, fr, got 'it'"):
        NumberWords(language="it")
