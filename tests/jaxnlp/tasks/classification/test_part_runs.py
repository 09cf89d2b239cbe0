"""Runs of several parts from training to predictions."""

import csv
import functools
import json
import re

import numpy as np
import pytest
from scipy import stats

from data import DataError
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.runs import load_run
from jaxnlp.tasks.classification.evaluators import Validation
from tests import text_task_files
from tests.text_task_files import train, write_tables, write_weights
from train.evaluate import Options, score
from train.run.folder import ENVIRONMENT_FILE, METRICS_FILE

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="session")
def make_config(tmp_path_factory, tables):
    weights = write_weights(tmp_path_factory.mktemp("weights") / "tiny-bert")
    return functools.partial(text_task_files.make_config, tables, weights)


@pytest.fixture(scope="session")
def run(make_config, tmp_path_factory):
    """A run of two parts, long enough to learn them."""
    workdir = tmp_path_factory.mktemp("runs") / "both"
    rates = {"model.encoder.dropout_rate": 0.0, "model.encoder.attention_dropout_rate": 0.0}
    train(make_config(total_steps=120, evaluate_every_steps=60, log_every_steps=20, **rates), workdir)
    return workdir


@pytest.fixture(autouse=True)
def compiled_programs_in_the_folder_of_the_tests(monkeypatch, compiled_programs):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))


def logged(run):
    return [json.loads(line) for line in (run / METRICS_FILE).read_text().splitlines()]


def test_two_parts_are_learned_and_the_best_checkpoint_has_the_highest_mean_score(run):
    scores = [row for row in logged(run) if row["split"] == "validation"]
    best = max(scores, key=lambda row: row["mean_score"])
    assert best["sst/accuracy"] > 0.5  # of five classes
    assert best["sts/pearson"] > 0.7
    for row in scores:
        expected = (row["sst/accuracy"] + (1 + row["sts/pearson"]) / 2) / 2
        np.testing.assert_allclose(row["mean_score"], expected, rtol=1e-6)
        np.testing.assert_allclose(row["loss"], (row["sst/loss"] + row["sts/loss"]) / 2, rtol=1e-6)
    assert load_run(run).step == best["step"]


def test_evaluation_gives_what_training_logged_and_the_ledger_names_weights_without_their_folder(run, tmp_path, capsys):
    ledger = tmp_path / "ledger.json"
    assert jaxnlp_main(["evaluate", str(run), "--record", str(ledger)]) == 0
    rows = [row for row in logged(run) if row["split"] == "validation"]
    best = max(rows, key=lambda row: row["mean_score"])
    entries = {(entry["split"], entry["metric"]): entry for entry in json.loads(ledger.read_text())}
    # One device rounds otherwise than eight, which may swap ranks.
    tolerance = {"spearman": 0.05}
    for name in ("loss", "sst/accuracy", "sts/pearson", "sts/spearman", "mean_score"):
        part, _, metric = name.rpartition("/")
        entry = entries[f"{part}/validation" if part else "validation", metric]
        np.testing.assert_allclose(entry["value"], best[name], rtol=tolerance.get(metric, 1e-4))
        assert entry["examples"] == (21 if part else 42)
    whole = entries["validation", "loss"]
    assert whole["config"]["init_from"] == "tiny-bert"
    environment = json.loads((run / ENVIRONMENT_FILE).read_text())
    assert whole["pretrained_sha256"] == environment["pretrained_sha256"] is not None
    assert "validation mean_score" in capsys.readouterr().out


def test_predictions_are_a_table_for_each_part(run, tables, tmp_path, capsys):
    for split in ("validation", "test"):
        assert jaxnlp_main(["evaluate", str(run), "--split", split, "--predictions", str(tmp_path / split)]) == 0
        names = {"sst-predictions.csv", "sts-predictions.csv"}
        assert {path.name for path in (tmp_path / split).iterdir()} == names
    shown = capsys.readouterr().out
    assert not re.search(r"^test \S+ [\d.]+", shown, flags=re.MULTILINE)  # no scores without labels
    metrics = score(run, Validation(), Options()).evaluation.metrics
    rows = {part: read_table(tmp_path / "validation" / f"{part}-predictions.csv") for part in ("sst", "sts")}
    given = [line.split("\t")[1] for line in (tables / "ids-sst-dev.csv").read_text().splitlines()[1:]]
    assert [row["id"] for row in rows["sst"]] == given
    right = sum(row["label"] == row["predicted"] for row in rows["sst"])
    np.testing.assert_allclose(metrics["sst/accuracy"].value, right / 21)
    numbers, labels = ([float(row[name]) for row in rows["sts"]] for name in ("predicted", "label"))
    np.testing.assert_allclose(metrics["sts/pearson"].value, stats.pearsonr(numbers, labels).statistic, rtol=1e-4)
    assert 0.0 <= min(numbers) < 1.0 < max(numbers) <= 5.0

    (tmp_path / "taken").write_text("mine")
    assert jaxnlp_main(["evaluate", str(run), "--predictions", str(tmp_path / "taken")]) == 2
    assert "taken is a file; give a directory, for sst-predictions.csv, sts-pred" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


def read_table(file):
    return list(csv.DictReader(file.read_text().splitlines()))


def test_truncated_texts_are_reported_where_they_are_scored(run, tmp_path, caplog):
    long = "the film was good " * 9
    (tmp_path / "mine.csv").write_text(f"\t\tid\tsentence\tsentiment\n0\t0\ta\t{long}\t4\n1\t0\tb\tgood\t4\n")
    scores = score(run, Validation(), Options(file=tmp_path / "mine.csv"))
    assert "mine.csv: sst: texts truncated to 16 tokens: 1" in caplog.text
    assert scores.evaluation.metrics["sst/accuracy"].count == 2


def test_a_file_of_one_part_is_scored_as_that_part(run, tables):
    found = score(run, Validation(), Options(file=tables / "sts-dev.csv")).evaluation.metrics
    whole = score(run, Validation(), Options()).evaluation.metrics
    np.testing.assert_allclose(found["sts/pearson"].value, whole["sts/pearson"].value, rtol=1e-5)
    assert "sst/accuracy" not in found


def test_a_file_without_labels_is_predicted_for_each_part_with_such_texts(run, tables, tmp_path):
    found = score(run, Validation(), Options(file=tables / "sts-test-student.csv")).evaluation
    assert list(found.predictions) == ["sts-predictions.csv"]
    assert not found.metrics
    broken = (tables / "sts-dev.csv").read_text() + "9\tx\ta\tb\t7.5\n"
    (tmp_path / "broken.csv").write_text(broken)
    with pytest.raises(DataError, match=r"broken\.csv, line 23: similarity must be a number from 0 to 5, got '7\.5'"):
        score(run, Validation(), Options(file=tmp_path / "broken.csv"))


@pytest.mark.thorough
def test_a_step_may_take_a_batch_of_each_part_and_project_away_conflicts(make_config, tmp_path):
    together = {"data.schedule": "together", "total_steps": 2, "log_every_steps": 1, "evaluate_every_steps": 2}
    summed = train(make_config(**together), tmp_path / "sum")
    projected = train(make_config(**together, **{"task.gradient_surgery": True}), tmp_path / "surgery")
    first = logged(tmp_path / "sum")[0]
    np.testing.assert_allclose(first["objective"], first["sst/loss"] + first["sts/loss"], rtol=1e-5)
    for outcome in (summed, projected):
        assert int(outcome.state.skipped_updates) == 0
    kernels = [np.asarray(outcome.state.params["encoder"]["tokens"]["embedding"]) for outcome in (summed, projected)]
    assert not np.array_equal(*kernels)  # the gradients conflict in the first steps of this seed
