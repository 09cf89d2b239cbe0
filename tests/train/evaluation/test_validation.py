import pytest

from jaxnlp.tasks import Evaluation, Metric, MetricKind
from train.evaluation.validation import checkpoint_score


@pytest.mark.parametrize(("better", "score"), [("higher", 20.5), ("lower", -20.5)])
def test_the_score_of_a_checkpoint_is_higher_where_it_is_better_whatever_the_metrics_scale(better, score):
    evaluation = Evaluation({"bleu": Metric(20.5, 3), "loss": Metric(2.0, 9)})
    assert checkpoint_score(evaluation, "bleu", MetricKind(better=better)) == {"score": score, "loss": 2.0}
