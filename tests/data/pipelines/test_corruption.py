import numpy as np
import pytest

from data.pipelines.corruption import SHORTEST_DOCUMENT, recalled_facts, salient_spans, span_corruption, split_title
from jaxnlp.text.characters import MASK

ALPHABET = "".join(chr(ord("a") + i) for i in range(26)) + "".join(chr(ord("A") + i) for i in range(26))


def parts(text):
    """Prefix, suffix and the span that was taken out."""
    prefix, suffix, span = text.split(MASK)
    return prefix, suffix, span


def draws(document, sequence_length, count=3000, seed=0):
    rng = np.random.default_rng(seed)
    return [parts(span_corruption(document, sequence_length, rng)) for _ in range(count)]


@pytest.mark.parametrize("length", [4, 5, 7, 8, 20, 52])
def test_put_back_the_span_completes_a_beginning_of_the_document(length):
    document = ALPHABET[:length]
    for prefix, suffix, span in draws(document, 40, count=300):
        assert document.startswith(prefix + span + suffix)
        assert span


def test_truncated_lengths_are_uniform_from_the_shortest_to_seven_eighths_of_the_block():
    lengths = np.array([sum(map(len, found)) for found in draws(ALPHABET, 40, count=9600)])
    counts = np.bincount(lengths, minlength=36)
    assert counts.nonzero()[0].tolist() == list(range(SHORTEST_DOCUMENT, 36))
    assert np.abs(counts[4:] - 300).max() < 5 * 300**0.5


def test_every_length_of_a_short_document_is_reached_and_every_span_is_inside():
    document = ALPHABET[:6]
    found = draws(document, 128)
    assert {sum(map(len, three)) for three in found} == {4, 5, 6}
    # Length 6 masks one character: each of the six.
    assert {three[2] for three in found if sum(map(len, three)) == 6} == set(document)


def test_a_quarter_is_masked_on_average():
    shares = [len(span) / (len(prefix) + len(suffix) + len(span)) for prefix, suffix, span in draws(ALPHABET, 60)]
    assert abs(np.mean(shares) - 0.25) < 0.02


def test_lengths_of_spans_of_one_truncation_are_uniform_and_so_are_their_places():
    whole = [three for three in draws(ALPHABET[:8], 64, count=20000) if sum(map(len, three)) == 8]
    lengths = np.bincount([len(span) for _, _, span in whole])
    assert lengths.nonzero()[0].tolist() == [1, 2, 3]
    assert np.abs(lengths[1:] - len(whole) / 3).max() < 5 * (len(whole) / 3) ** 0.5
    starts = np.bincount([len(prefix) for prefix, _, span in whole if len(span) == 3])
    assert len(starts) == 6
    assert np.abs(starts - starts.mean()).max() < 5 * starts.mean() ** 0.5


def test_a_corrupted_document_fits_the_block():
    assert max(len(p) + len(s) + len(m) + 2 for p, s, m in draws(ALPHABET * 3, 64)) == 58


@pytest.mark.parametrize(
    ("document", "title", "text"),
    [
        ("Ada Byron. Born in London .", "Ada Byron", "Born in London ."),
        ("Hyman I. Goldstein. Hyman I Goldstein was .", "Hyman I. Goldstein", "Hyman I Goldstein was ."),
        ("A. G. E. Blake. Anthony Blake was born .", "A. G. E. Blake", "Anthony Blake was born ."),
        ("Asa G. Yancey, Sr.. He was born .", "Asa G. Yancey, Sr.", "He was born ."),
        ("Anastasius I. Pope, born in Rome .", "Anastasius I", "Pope, born in Rome ."),
        ("no full stop at all", "", "no full stop at all"),
    ],
)
def test_titles_end_at_the_first_full_stop_that_is_no_initial(document, title, text):
    assert split_title(document) == (title, text)


def test_salient_are_names_and_numbers_outside_the_title():
    text = "Ada Byron (10 December 1815, New York City - 1852) was O'Brien's friend in St Albans ."
    spans = [text[start:end] for start, end in salient_spans(text, "Ada Byron")]
    assert spans == ["10", "December", "1815", "New York City", "1852", "O'Brien's", "St Albans"]


def test_a_text_of_small_words_has_nothing_salient():
    assert salient_spans("he was a writer of songs .") == []


DOCUMENT = "Ada Byron. She was born in London and lived in Ockham ."
PLACES = [(16, 22), (36, 42)]


def facts(longest=100, count=2000, spans=PLACES, **settings):
    rng = np.random.default_rng(0)
    return [recalled_facts(*split_title(DOCUMENT), spans, longest, rng, **settings) for _ in range(count)]


def test_zero_to_four_words_are_before_a_fact_each_number_as_often_as_the_others():
    contexts = [text.partition(MASK)[0].removeprefix("Ada Byron. ") for text, _ in facts(spans=PLACES[:1])]
    shown = ["", "in ", "born in ", "was born in ", "She was born in "]
    counts = np.array([contexts.count(context) for context in shown])
    assert counts.sum() == len(contexts)
    assert np.abs(counts - 400).max() < 5 * 400**0.5


def test_if_fewer_words_are_before_a_fact_all_of_them_are_shown():
    contexts = [text.partition(MASK)[0].removeprefix("Ada Byron. ") for text, _ in facts(spans=[(4, 7)])]
    assert {context: round(contexts.count(context) / 400) for context in set(contexts)} == {"": 1, "She ": 4}


def test_facts_come_in_every_order_and_all_after_the_title_is_scored():
    orders = [tuple(text.split(MASK)[1::2]) for text, _ in facts(most_words=0)]
    assert abs(orders.count(("London", "Ockham")) - 1000) < 5 * 500**0.5
    assert orders.count(("Ockham", "London")) == 2000 - orders.count(("London", "Ockham"))
    for text, given in facts(count=20):
        assert text.startswith("Ada Byron.")
        assert given == len("Ada Byron.")


@pytest.mark.parametrize("longest", [5, 19, 27, 28, 100])
def test_no_further_fact_is_taken_up_where_the_example_would_grow_too_long(longest):
    """`Ada Byron. ?London?` has 19 characters; with ` ?Ockham?`, 28."""
    found = {len(text) for text, _ in facts(longest=longest, most_words=0, count=50)}
    assert found == {28 if longest >= 28 else 19}
