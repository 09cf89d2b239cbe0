import numpy as np
import pytest

from jaxnlp.targets import (
    NO_PREDICTION,
    AnyNumber,
    Number,
    OneClass,
    SeveralClasses,
    of_part,
    targets_from_json,
    whole_number,
)

ONE = OneClass(("arts", "sport"))
SEVERAL = SeveralClasses(("arts", "sport", "world"))
NUMBER = Number(1.0, 5.0)


@pytest.mark.parametrize(
    "targets", [ONE, SEVERAL, NUMBER, AnyNumber(), AnyNumber(sigmoid=True), SeveralClasses(("a", "b"), ";")]
)
def test_what_is_written_reads_back(targets):
    assert targets_from_json(targets.to_json()) == targets


@pytest.mark.parametrize(
    "fields", [{}, {"kind": "Number"}, {"kind": "None"}, [], {"kind": "Number", "lowest": 2.0, "highest": 2.0}]
)
def test_other_objects_are_refused(fields):
    with pytest.raises(ValueError, match=r"targets|a scale needs two different"):
        targets_from_json(fields)


def test_one_class_is_parsed_shown_and_counted():
    assert [ONE.parse(text) for text in ("sport", " arts ")] == [1, 0]
    assert ONE.show(1) == "sport"
    assert ONE.array([1, 0]).dtype == np.int32
    assert ONE.counts([1, 1, 0]).tolist() == [1, 2]
    assert ONE.outputs == 2
    with pytest.raises(ValueError, match="must be one of arts, sport, got 'weather'"):
        ONE.parse("weather")


def test_classes_named_by_whole_numbers_may_be_written_with_a_point():
    """As tables have them where some are missing."""
    numbers = OneClass(("0", "1", "1.5"))
    assert [numbers.parse(text) for text in ("0.0", "1.0", "1", "1.5")] == [0, 1, 1, 2]
    for text in ("2.0", "0.5", "nan", "inf", ""):
        with pytest.raises(ValueError, match=f"must be one of 0, 1, 1.5, got '{text}'"):
            numbers.parse(text)


@pytest.mark.parametrize("kind", [OneClass, SeveralClasses])
def test_a_class_written_with_a_point_is_found_without_it_and_keeps_its_name(kind):
    targets = kind(("1.0", "2.0"))
    for text in ("2", "2.0", "2.00"):
        assert targets.show(targets.parse(text)) == "2.0"
    both = kind(("1", "1.0"))
    assert [both.show(both.parse(text)) for text in both.names] == ["1", "1.0"]


def test_names_that_are_codes_keep_their_zeros():
    same = ("007", "01", "1e3", "1_000", "+1", "1.", "1.50", "-", "nan", "\u0663", "1.0\n")
    assert tuple(map(whole_number, same)) == same
    assert list(map(whole_number, ("1.0", "-1.00", "0.0", "10.0", "12"))) == ["1", "-1", "0", "10", "12"]


def test_several_classes_are_parsed_shown_and_counted():
    assert [SEVERAL.parse(text) for text in ("world, arts", "", "sport,sport")] == [(0, 2), (), (1,)]
    assert [SEVERAL.show(label) for label in ((0, 2), ())] == ["arts,world", ""]
    assert SEVERAL.array([(0, 2), ()]).tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert SEVERAL.counts([(0, 2), (), (2,)]).tolist() == [1, 0, 2]
    with pytest.raises(ValueError, match="must be one of arts, sport, world, got 'weather'"):
        SEVERAL.parse("arts,weather")


def test_numbers_are_scaled_and_scaled_back():
    assert NUMBER.array([1.0, 3.0, 5.0]).tolist() == [0.0, 0.5, 1.0]
    assert NUMBER.predicted(np.array([[-0.1], [0.5], [1.2]])).tolist() == [1.0, 3.0, 5.0]
    assert NUMBER.values([2.5]).tolist() == [2.5]
    assert (NUMBER.lowest, NUMBER.width, ONE.lowest, ONE.width) == (1.0, 4.0, 0.0, 1.0)
    assert (NUMBER.parse(" 2.5 "), NUMBER.show(2.5), NUMBER.outputs, NUMBER.names) == (2.5, "2.5", 1, ())
    for text in ("nan", "inf", "many", "", "1_5"):
        with pytest.raises(ValueError, match=r"must be a finite number, such as 2.5, got"):
            NUMBER.parse(text)
    with pytest.raises(ValueError, match=r"got '4,5'; write 4\.5 for 4,5, and 1234\.5 for 1,234\.5"):
        NUMBER.parse("4,5")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OneClass(("a",)), "expected at least 2 classes with distinct names, got a"),
        (lambda: OneClass(("a", "a")), "distinct names"),
        (lambda: SeveralClasses(()), "at least 1 classes"),
        (lambda: SeveralClasses(("a", "b"), ""), "the separator"),
        (lambda: Number(1.0, float("nan")), "a scale needs two different, finite ends"),
    ],
)
def test_targets_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_many_names_are_shortened():
    many = OneClass(tuple(f"c{number:02}" for number in range(12)))
    with pytest.raises(ValueError, match="c09 and 2 more, got"):
        many.parse("d")
    assert many.describe([0, 3, 3]).startswith("12 classes in training: c03 2, c00 1, c01 0")
    assert many.describe([0]).endswith(", and 2 more")


@pytest.mark.parametrize(
    ("ends", "number", "shown"),
    [
        ((1.0, 5.0), 4.5, "4.5"),
        ((1990.0, 2020.0), 2012.4, "2012.4"),
        ((0.0, 5e6), 1234577.0, "1234577"),
        ((0.0, 1e-3), 1.25e-4, "0.000125"),
        ((-1.0, 1.0), 0.0, "0"),
        ((0.0, 300.0), 100.0, "100"),
    ],
)
def test_numbers_are_shown_with_the_digits_that_their_scale_needs(ends, number, shown):
    assert Number(*ends).show(number) == shown


def test_outputs_become_probabilities_without_overflow():
    logits = np.array([[1e3, 0.0], [0.0, np.log(3.0)]], np.float32)
    np.testing.assert_allclose(ONE.predicted(logits), [[1.0, 0.0], [0.25, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(SEVERAL.predicted(logits), [[1.0, 0.5], [0.5, 0.75]], rtol=1e-6)


def test_decisions_follow_the_threshold():
    found = np.array([[0.7, 0.3], [0.2, 0.8]])
    assert ONE.decide(found) == [0, 1]
    assert ONE.decide(found, 0.25) == [1, 1]
    assert SEVERAL.decide(found) == [(0,), (1,)]
    assert SEVERAL.decide(found, 0.25) == [(0, 1), (1,)]
    assert SEVERAL.decide(np.array([[0.1, 0.2]])) == [()]
    assert NUMBER.decide(np.array([3.0, 1.0])) == [3.0, 1.0]


@pytest.mark.parametrize(
    ("targets", "row", "label", "fields", "answer"),
    [
        (ONE, [0.2, 0.8], 1, ["sport", "0.80"], {"class": "sport", "probabilities": {"arts": 0.2, "sport": 0.8}}),
        (
            SeveralClasses(("a", "b"), ";"),
            [0.7, 0.6],
            (0, 1),
            ["a;b", "0.60"],
            {"classes": ("a", "b"), "probabilities": {"a": 0.7, "b": 0.6}},
        ),
        (
            SeveralClasses(("a", "b")),
            [0.1, 0.3],
            (),
            ["", "0.70"],
            {"classes": (), "probabilities": {"a": 0.1, "b": 0.3}},
        ),
        (NUMBER, 2.5, 2.5, ["2.5"], {"number": 2.5}),
    ],
)
def test_predictions_are_named_for_people_and_for_programs(targets, row, label, fields, answer):
    found = targets.prediction(row, label)
    assert (targets.fields(found), targets.answer(found)) == (fields, answer)
    assert targets.fields(NO_PREDICTION) == [""] * len(fields)
    assert set(targets.answer(NO_PREDICTION).values()) == {None}


def test_captions_have_the_probability():
    assert ONE.caption(ONE.prediction([0.2, 0.8], 1)) == "sport (0.80)"
    assert SEVERAL.caption(SEVERAL.prediction([0.1, 0.2, 0.3], ())) == "no class (0.70)"
    assert NUMBER.caption(NUMBER.prediction(2.5, 2.5)) == "2.5"


def test_parts_name_their_metrics_and_labels():
    assert (of_part("sst", "loss"), of_part("", "labels")) == ("sst/loss", "labels")


def test_a_number_on_no_known_scale_is_not_limited():
    outputs = np.array([[-3.0], [0.0], [7.5]])
    assert AnyNumber().predicted(outputs).tolist() == [-3.0, 0.0, 7.5]
    squashed = AnyNumber(sigmoid=True).predicted(outputs)
    np.testing.assert_allclose(squashed, 1.0 / (1.0 + np.exp(-outputs[:, 0])))
    assert AnyNumber().fields(AnyNumber().prediction(7.5, 7.5)) == ["7.5"]
