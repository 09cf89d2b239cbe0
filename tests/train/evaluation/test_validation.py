import math

import numpy as np
import pytest

from jaxnlp.tasks import Evaluation, Metric, MetricKind
from train.evaluation.validation import checkpoint_score, has_stalled


@pytest.mark.parametrize(("better", "score"), [("higher", 20.5), ("lower", -20.5)])
def test_the_score_of_a_checkpoint_is_higher_where_it_is_better_whatever_the_metrics_scale(better, score):
    evaluation = Evaluation({"bleu": Metric(20.5, 3), "loss": Metric(2.0, 9)})
    assert checkpoint_score(evaluation, "bleu", MetricKind(better=better)) == {"score": score, "loss": 2.0}


@pytest.mark.parametrize(
    ("losses", "stalled"),
    [
        ([3.0, 2.0, 1.0], False),
        ([3.0, 2.0, 3.5], True),
        ([3.0, math.nan, 2.0, 3.5], True),  # a NaN in between blocks nothing
        ([3.0, 2.0, math.nan], False),
        ([math.nan], False),
        ([], False),
    ],
)
def test_losses_that_are_not_finite_neither_start_averaging_nor_block_it(losses, stalled):
    assert has_stalled(losses, 1) == stalled


@pytest.mark.parametrize("patience", range(4))
def test_patience_is_the_number_of_newer_evaluations_that_are_left_out(patience):
    for losses in np.random.default_rng(patience).random((50, 8)).tolist():
        older = losses[: max(0, 7 - patience)]
        assert has_stalled(losses, patience) == (len(older) > 0 and losses[-1] > min(older))
