import pytest

from train.run.early_stopping import evaluations_since_best, reason_to_stop, stops_early

NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "since"),
    [
        ([], 0),
        ([-1.0], 0),
        ([-3.0, -2.0, -1.0], 0),
        ([0.5, 0.4, 0.3], 2),
        ([0.5, 0.5, 0.5], 2),  # equal is not better
        ([0.1, 0.5, 0.2, 0.4], 2),
        ([0.5, NAN, 0.6, NAN], 1),
        ([NAN, NAN], 2),
        ([NAN, -5.0], 0),
    ],
    ids=str,
)
def test_evaluations_are_counted_since_the_first_of_the_best(scores, since):
    assert evaluations_since_best(scores) == since
    assert [stops_early(scores, patience) for patience in (None, since, since + 1)] == [False, True, False]


def test_the_reason_counts_evaluations():
    assert reason_to_stop("f1", [0.5, 0.4]) == "the validation f1 has not improved in 1 evaluation"
    assert reason_to_stop("loss", [-1.0, -2.0, -3.0]) == "the validation loss has not improved in 2 evaluations"
