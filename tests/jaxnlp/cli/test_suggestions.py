import pytest

from jaxnlp.cli.suggestions import similar_options, suggestion

OPTIONS = ("total-steps", "data.batch-size", "model.width", "optimizer.learning-rate", "model.attention-dropout-rate")


def test_a_similar_name_is_suggested_and_without_one_all_are_listed():
    assert suggestion("genrate", ["predict", "generate"]) == "did you mean generate?"
    assert suggestion("xyz", ["predict", "generate"]) == "there are: predict, generate"
    assert suggestion("xyz", []) == "there are: none"


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("model.widht", ["model.width"]),
        ("width", ["model.width"]),
        ("data.width", ["model.width"]),
        ("learning-rat", ["optimizer.learning-rate"]),
        ("total-step", ["total-steps"]),
        ("dropout", ["model.attention-dropout-rate"]),
        ("xyz", []),
    ],
)
def test_options_are_found_by_their_last_part_too(option, found):
    assert similar_options(option, OPTIONS) == found


def test_no_more_options_are_suggested_than_wanted():
    assert similar_options("rate", [f"{part}.rate" for part in "abcde"], most=2) == ["a.rate", "b.rate"]
