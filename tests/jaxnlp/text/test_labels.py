import json
import math
import re

import pytest

from jaxnlp.text.labels import Labels

FIVE = Labels("classification", 1, ("0", "1", "2", "3", "4"))
TOPICS = Labels("classification", 2, ("business", "sport", "world news"))
SAME = Labels("paraphrase", 2, ("0", "1"))
SCALE = Labels("similarity", 2, highest=5.0)


@pytest.mark.parametrize(
    ("labels", "parsed", "refused"),
    [
        (FIVE, {"0": 0, "4": 4, "3.0": 3, " 1 ": 1}, ("5", "-1", "1.5", "good", "nan", "inf", "")),
        (TOPICS, {"business": 0, "world news": 2, " sport ": 1}, ("Sport", "1", "nan")),
        (Labels("classification", 1, ("1", "1.0", "2")), {"1": 0, "1.0": 1, "2.0": 2}, ("0",)),
        (SAME, {"0": 0, "1.0": 1}, ("2", "0.5", "yes")),
        (SCALE, {"0": 0, "2.5": 2.5, "5": 5}, ("5.1", "-0.1", "nan", "inf", "")),
    ],
    ids=str,
)
def test_labels_are_parsed_to_numbers_that_are_admitted_and_others_are_refused(labels, parsed, refused):
    for text, number in parsed.items():
        assert labels.parse(text) == number
        assert labels.admits(labels.parse(text))
    for text in refused:
        with pytest.raises(ValueError, match=re.escape(f"must be {labels.expected()}, got {text.strip()!r}")):
            labels.parse(text)


def test_numbers_that_are_no_labels_are_not_admitted():
    assert not any(map(FIVE.admits, (-1.0, 5.0, 0.5, math.nan)))
    assert not any(map(SCALE.admits, (-0.1, 5.1, math.nan)))


def test_labels_are_described_in_words():
    assert FIVE.expected() == "a whole number from 0 to 4"
    assert SAME.expected() == "a whole number from 0 to 1"
    assert TOPICS.expected() == "one of business, sport, world news"
    assert SCALE.expected() == "a number from 0 to 5"
    many = Labels("classification", 1, tuple(f"c{number}" for number in range(12)))
    assert many.expected().endswith("c8, c9 and 2 more")


@pytest.mark.parametrize("labels", [FIVE, TOPICS, SAME, SCALE], ids=lambda labels: labels.kind)
def test_json_reads_back_equal(labels):
    assert Labels.from_json(json.loads(json.dumps(labels.to_json()))) == labels


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("ranking", 1, ("a", "b")), "kind must be one of classification, paraphrase, similarity, got 'ranking'"),
        (("classification", 3, ("a", "b")), "a classification of 3 texts"),
        (("similarity", 1, (), 5.0), "a similarity of 1 texts; texts must be 2"),
        (("classification", 1, ("a",)), "a classification needs at least two classes, got ('a',)"),
        (("classification", 1, ("a", "a")), "names must be distinct strings, got ('a', 'a')"),
        (("classification", 1, ("a", 1)), "names must be distinct strings"),
        (("classification", 1, ("a", "b"), 5.0), "highest applies only to similarity; it must be 0, got 5.0"),
        (("paraphrase", 2, ("no", "yes")), "the names of a paraphrase must be 0 and 1, got ('no', 'yes')"),
        (("similarity", 2, (), 0.0), "a similarity needs no names and a positive highest, got () and 0.0"),
        (("similarity", 2, (), math.nan), "positive highest, got () and nan"),
    ],
    ids=str,
)
def test_labels_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Labels(*fields)


@pytest.mark.parametrize(
    "fields", [{}, [], {"kind": "similarity"}, FIVE.to_json() | {"names": 3}, FIVE.to_json() | {"highest": "a"}]
)
def test_fields_that_make_no_labels_are_refused(fields):
    with pytest.raises(ValueError, match=r"^labels: expected "):
        Labels.from_json(fields)
