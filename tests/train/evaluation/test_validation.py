import itertools

import pytest

from jaxnlp.tasks import Evaluation, Metric, MetricKind
from train.evaluation.validation import checkpoint_score


@pytest.mark.parametrize(("better", "score"), [("higher", 20.5), ("lower", -20.5)])
def test_the_score_of_a_checkpoint_is_higher_where_it_is_better_whatever_the_metrics_scale(better, score):
    evaluation = Evaluation({"bleu": Metric(20.5, 3), "loss": Metric(2.0, 9)})
    assert checkpoint_score(evaluation, "bleu", MetricKind(better=better)) == {"score": score, "loss": 2.0}


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("seconds", "said"), [(0.5, False), (3.2, True)])
def test_an_evaluation_that_compiles_for_long_says_so(
    tiny_config, quick_fit, tmp_path, monkeypatch, loud, seconds, said
):
    clock = itertools.count(step=seconds)
    monkeypatch.setattr("train.evaluation.validation.compile_seconds", lambda: next(clock))
    quick_fit(tiny_config(total_steps=2, evaluate_every_steps=2), tmp_path / "run", console=loud)
    assert ("the evaluation compiled programs of its own for 3 s" in loud.file.getvalue()) == said
