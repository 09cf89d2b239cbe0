import numpy as np
import pytest

from jaxnlp.targets import Classes, Scale, targets_from_json, whole_number

ONE = Classes(("arts", "sport"))
SEVERAL = Classes(("arts", "sport", "world"), several=True)
SCALE = Scale(1.0, 5.0)


@pytest.mark.parametrize("targets", [ONE, SEVERAL, SCALE, Classes(("a", "b"), True, ";")])
def test_what_is_written_reads_back(targets):
    assert targets_from_json(targets.to_json()) == targets


@pytest.mark.parametrize("fields", [{}, {"names": ["a", "b"]}, {"lowest": 1.0}, [], {"lowest": 2.0, "highest": 2.0}])
def test_other_objects_are_refused(fields):
    with pytest.raises(ValueError, match=r"targets|a scale needs two different"):
        targets_from_json(fields)


def test_one_class_is_parsed_shown_and_counted():
    assert [ONE.parse(text) for text in ("sport", " arts ")] == [1, 0]
    assert ONE.show(1) == "sport"
    assert ONE.array([1, 0]).dtype == np.int32
    assert ONE.counts([1, 1, 0]).tolist() == [1, 2]
    assert ONE.outputs == 2
    assert ONE.one_class
    with pytest.raises(ValueError, match="must be one of arts, sport, got 'weather'"):
        ONE.parse("weather")


def test_classes_named_by_whole_numbers_may_be_written_with_a_point():
    """As tables have them where some are missing."""
    numbers = Classes(("0", "1", "1.5"))
    assert [numbers.parse(text) for text in ("0.0", "1.0", "1", "1.5")] == [0, 1, 1, 2]
    for text in ("2.0", "0.5", "nan", "inf", ""):
        with pytest.raises(ValueError, match=f"must be one of 0, 1, 1.5, got '{text}'"):
            numbers.parse(text)


def test_names_that_are_codes_keep_their_zeros():
    same = ("007", "01", "1e3", "1_000", "+1", "1.", "1.50", "-", "nan", "\u0663", "1.0\n")
    assert tuple(map(whole_number, same)) == same
    assert list(map(whole_number, ("1.0", "-1.00", "0.0", "10.0", "12"))) == ["1", "-1", "0", "10", "12"]


def test_several_classes_are_parsed_shown_and_counted():
    assert [SEVERAL.parse(text) for text in ("world, arts", "", "sport,sport")] == [(0, 2), (), (1,)]
    assert [SEVERAL.show(label) for label in ((0, 2), ())] == ["arts,world", ""]
    assert SEVERAL.array([(0, 2), ()]).tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert SEVERAL.counts([(0, 2), (), (2,)]).tolist() == [1, 0, 2]
    assert not SEVERAL.one_class
    with pytest.raises(ValueError, match="must be one of arts, sport, world, got 'weather'"):
        SEVERAL.parse("arts,weather")


def test_numbers_are_scaled_and_scaled_back():
    assert SCALE.array([1.0, 3.0, 5.0]).tolist() == [0.0, 0.5, 1.0]
    assert SCALE.unscaled(np.array([-0.1, 0.5, 1.2])).tolist() == [1.0, 3.0, 5.0]
    assert (SCALE.parse(" 2.5 "), SCALE.show(2.5), SCALE.outputs, SCALE.names) == (2.5, "2.5", 1, ())
    for text in ("nan", "inf", "many", ""):
        with pytest.raises(ValueError, match="must be a finite number, got"):
            SCALE.parse(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classes(("a",)), "expected at least 2 classes with distinct names, got a"),
        (lambda: Classes(("a", "a")), "distinct names"),
        (lambda: Classes((), True), "at least 1 classes"),
        (lambda: Classes(("a", "b"), True, ""), "the separator"),
        (lambda: Scale(1.0, float("nan")), "a scale needs two different, finite ends"),
    ],
)
def test_targets_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_many_names_are_shortened():
    many = Classes(tuple(f"c{number:02}" for number in range(12)))
    assert many.shown_names().endswith("c09 and 2 more")


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
    assert Scale(*ends).show(number) == shown
