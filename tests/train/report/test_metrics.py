import json
import math

import pytest

from jaxnlp.metric_kind import MetricKind
from jaxnlp.tasks.language_model import LanguageModel
from train.report.metrics import (
    best,
    capitalized,
    charts,
    declared_metrics,
    main_split,
    title_of,
    title_without_part,
)

LOSS = {"of": "tokens", "unit": "nats", "better": "lower"}
SHARE = {"of": "questions", "unit": "", "better": "higher"}


def row(step, split="validation", **values):
    return {"step": step, "split": split, **values}


def test_the_metric_that_selects_the_best_checkpoint_comes_first():
    environment = {"metrics": {"loss": LOSS, "accuracy": SHARE}, "best_metric": "accuracy"}
    assert list(declared_metrics(environment)) == ["accuracy", "loss"]
    assert declared_metrics(environment)["loss"] == MetricKind("tokens", "nats", "lower")
    assert list(declared_metrics(environment | {"best_metric": "bleu"})) == ["loss", "accuracy"]
    assert declared_metrics({}) == {}


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["loss"], r"metrics: expected an object with one entry a metric, got list"),
        ({"loss": "nats"}, r"metrics\.loss: expected an object of texts: of, unit, better, title; got 'nats'"),
        ({"loss": {"of": 3}}, r"metrics\.loss: expected an object of texts"),
        ({"loss": {"units": "nats"}}, r"metrics\.loss: unknown field 'units'; expected of, unit, better, title"),
        ({"loss": LOSS | {"better": "up"}}, r"metrics\.loss\.better: expected lower or higher, got 'up'"),
    ],
)
def test_a_malformed_declaration_is_named(metrics, message):
    with pytest.raises(ValueError, match=message):
        declared_metrics({"metrics": metrics})


def test_each_unit_has_one_chart_and_the_objective_is_drawn_with_the_loss():
    declared = declared_metrics({"metrics": {"loss": LOSS, "accuracy": SHARE, "sst/loss": LOSS, "bleu": SHARE}})
    by_unit = charts(declared)
    assert [(chart.name, chart.unit) for chart in by_unit] == [("loss", "nats"), ("scores", "")]
    assert list(by_unit[0].metrics) == ["loss", "objective", "sst/loss"]
    assert list(by_unit[1].metrics) == ["accuracy", "bleu"]


def test_metrics_of_one_unit_and_different_directions_have_charts_of_their_own():
    declared = {"bleu": MetricKind(unit="points"), "ter": MetricKind(unit="points", better="lower")}
    assert [(chart.name, chart.better) for chart in charts(declared)] == [("bleu", "higher"), ("ter", "lower")]


def test_a_metric_of_many_parts_has_a_chart_of_its_own():
    few = {"accuracy": MetricKind(), "a/f1": MetricKind(), "b/f1": MetricKind()}
    assert [list(chart.metrics) for chart in charts(few)] == [["accuracy", "a/f1", "b/f1"]]
    many = (
        few
        | dict.fromkeys([f"{number}/f1" for number in range(8)], MetricKind())
        | {"sst/score": MetricKind(), "auc": MetricKind()}
    )
    first, second = charts(many)
    assert (first.name, list(first.metrics)) == ("scores", ["accuracy", "sst/score", "auc"])
    assert (second.name, len(second.metrics)) == ("f1", 10)


def test_names_of_charts_are_those_of_files_and_differ():
    declared = {
        "../../a b": MetricKind(unit="x"),
        "p/throughput": MetricKind(unit="y"),
        "a": MetricKind(unit="a/b"),
        "c": MetricKind(unit="a/b"),
        "d": MetricKind(unit="a b"),
        "e": MetricKind(unit="a b"),
        "\u6c49": MetricKind(unit="z"),
    }
    assert [chart.name for chart in charts(declared)] == ["a_b", "throughput_2", "a_b_3", "a_b_4", "metrics"]


def test_values_of_validation_count_before_those_of_other_splits_and_of_training_last():
    rows = [row(1, "train", loss=1), row(1, "other", loss=1), row(1, "dev", loss=1, accuracy=0.5)]
    assert main_split(rows, "loss") == "dev"
    assert main_split([*rows, row(2, loss=1)], "loss") == "validation"
    assert main_split(rows[:2], "loss") == "other"
    assert main_split(rows[:1], "loss") == "train"


def test_the_best_value_goes_by_the_declared_direction_and_the_earliest_counts():
    rows = [row(1, a=0.2), row(2, a=0.8), row(3, a=math.nan), row(4, a=0.8), row(5, a=0.2), row(6, "train", a=9.0)]
    assert best(rows, "a", "higher") == ("validation", 0.8, 2)
    assert best(rows, "a", "lower") == ("validation", 0.2, 1)
    assert best(rows, "b", "lower") is None
    assert best([row(1, a=None), row(2, a=math.inf)], "a", "lower") is None


def test_of_equal_values_the_one_with_the_lowest_loss_counts_as_for_checkpoints():
    rows = [row(1, a=0.8, loss=2.0), row(2, a=0.8, loss=0.5), row(3, a=0.8, loss=math.nan), row(4, a=0.7, loss=0.1)]
    assert best(rows, "a", "higher") == ("validation", 0.8, 2)
    assert best([*rows, row(5, a=0.8, loss=0.5)], "a", "higher") == ("validation", 0.8, 2)


def test_a_metric_is_written_as_declared_or_as_words():
    declared = {
        "PER/f1": MetricKind(title="PER F1"),
        "mlm/loss": MetricKind(title="MLM loss"),
        "sst/exact_match": MetricKind(),
    }
    assert [title_of(name, declared) for name in declared] == ["PER F1", "MLM loss", "sst exact match"]
    assert [title_without_part(name, declared) for name in declared] == ["F1", "loss", "exact match"]
    assert title_of("tokens_per_second", declared) == title_without_part("tokens_per_second", declared)
    assert [capitalized(title) for title in ("loss", "UAS", "chrF")] == ["Loss", "UAS", "chrF"]


def test_the_objective_does_not_have_the_title_of_the_loss():
    (chart,) = charts({"loss": MetricKind(better="lower", title="the loss")})
    assert [title_of(name, chart.metrics) for name in chart.metrics] == ["the loss", "objective"]


@pytest.mark.thorough
def test_a_run_records_the_titles_of_its_metrics(tiny_config, quick_fit, tmp_path, monkeypatch):
    monkeypatch.setattr(
        LanguageModel, "metrics", lambda *_: dict.fromkeys(("loss", "perplexity"), MetricKind(title="X"))
    )
    quick_fit(tiny_config(total_steps=1), tmp_path)
    declared = declared_metrics(json.loads((tmp_path / "environment.json").read_text()))
    assert declared["loss"].title == "X"
