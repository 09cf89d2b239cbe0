import dataclasses
import json
from pathlib import Path

import pytest

from jaxnlp.tasks import Evaluation, Metric, Trained
from train.evaluation import ledger
from train.run.folder import ENVIRONMENT_FILE, METRICS_FILE

ENVIRONMENT = {
    "devices": 8,
    "device": "cpu",
    "cpu_cores": 2,
    "types": "float32",
    "versions": {"jax": "1"},
    "commit": "abc",
    "command": "jaxnlp train tiny --workdir /my/place",
    "seconds_to_first_step": 3.0,
}
ROWS = [
    {"step": 2, "split": "train", "loss": 2.0, "train_seconds": 1.0},
    {"step": 4, "split": "train", "loss": 1.5, "train_seconds": 2.5},
    {"step": 6, "split": "train", "loss": 1.0, "train_seconds": 4.0},
]


def write(run, rows=ROWS, **environment):
    run.mkdir(parents=True, exist_ok=True)
    (run / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / ENVIRONMENT_FILE).write_text(json.dumps(ENVIRONMENT | environment))
    return run


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "run")


def entries_of(run, config, metrics=None, remarks=None):
    trained = Trained(config.task, None, {}, None, folder=run, step=4)
    return ledger.entries(
        trained, config, "dev", Evaluation(metrics or {"loss": Metric(1.5, 90)}, remarks=remarks or {})
    )


def test_an_entry_says_what_was_measured_and_how(run, tiny_config):
    (entry,) = entries_of(run, tiny_config(seed=3), remarks={"answer": "London"})
    assert entry["config"]["data"]["batch_size"] == 6
    del entry["config"]
    assert entry == {
        "recipe": "tiny",
        "metric": "loss",
        "split": "dev",
        "value": 1.5,
        "examples": 90,
        "steps": 4,
        "train_seconds": 2.5,
        "seconds_to_first_step": 3.0,
        "device": "8 x cpu, 2 CPU cores",
        "types": "float32",
        "versions": {"jax": "1"},
        "commit": "abc",
        "seed": 3,
        "command": "jaxnlp train tiny --workdir runs/place",
        "answer": "London",
    }


def test_the_part_of_a_metric_belongs_to_the_split(run, tiny_config):
    metrics = {"sts/pearson": Metric(0.5, 3), "loss": Metric(1.0, 9)}
    found = [(entry["split"], entry["metric"]) for entry in entries_of(run, tiny_config(), metrics)]
    assert found == [("sts/dev", "pearson"), ("dev", "loss")]


@pytest.mark.parametrize(
    ("typed", "recorded"),
    [
        ("jaxnlp train x --workdir '/my runs/a b' --seed 3", "jaxnlp train x --workdir 'runs/a b' --seed 3"),
        ("jaxnlp train x --workdir=../a", "jaxnlp train x --workdir=runs/a"),
        ("jaxnlp train x --init-from /my/runs/b", "jaxnlp train x --init-from runs/b"),
        ("jaxnlp train x --init-from google/bert", "jaxnlp train x --init-from google/bert"),
        ("jaxnlp train x --data.path text.txt", "jaxnlp train x --data.path text.txt"),
        (None, None),
    ],
)
def test_the_command_is_recorded_without_the_folders_of_its_runs(run, tiny_config, typed, recorded):
    write(run, command=typed)
    assert entries_of(run, tiny_config())[0]["command"] == recorded


def test_the_cost_of_the_run_that_a_run_began_with_is_recorded(run, tiny_config, tmp_path):
    first = write(tmp_path / "runs" / "first", commit="def")
    (entry,) = entries_of(run, dataclasses.replace(tiny_config(), init_from=str(first)))
    assert entry["begun_with"] == {
        "steps": 6,
        "train_seconds": 4.0,
        "commit": "def",
        "command": "jaxnlp train tiny --workdir runs/place",
    }
    assert entry["config"]["init_from"] == "runs/first"
    (entry,) = entries_of(run, dataclasses.replace(tiny_config(), init_from="google/bert"))
    assert entry["begun_with"] is None
    assert entry["config"]["init_from"] == "google/bert"


def test_pretrained_weights_are_recorded_by_their_digest(run, tiny_config):
    assert "pretrained_sha256" not in entries_of(run, tiny_config())[0]
    write(run, pretrained_sha256="0a")
    assert entries_of(run, tiny_config())[0]["pretrained_sha256"] == "0a"


def test_downsampled_metrics_keep_every_evaluation_and_at_most_the_limit(run, tmp_path):
    rows = [{"step": i, "split": "train", "loss": 1.0, "train_seconds": 1.0} for i in range(1, 5001)]
    rows += [{"step": i, "split": "validation", "loss": 1.0, "train_seconds": 1.0} for i in (7, 5000)]
    write(run, rows)
    metrics = ledger.append([{"recipe": "a"}], tmp_path / "ledger.json", run)
    assert metrics == tmp_path / "ledger.metrics.jsonl"
    kept = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert 1000 < len(kept) <= ledger.MAX_METRICS_LINES
    assert [row["step"] for row in kept if row["split"] == "validation"] == [7, 5000]


def test_entries_are_added_after_those_that_are_there(run, tmp_path):
    place = tmp_path / "results" / "ledger.json"
    for number in range(2):
        ledger.append([{"recipe": number}], place, run)
    assert json.loads(place.read_text()) == [{"recipe": 0}, {"recipe": 1}]


@pytest.mark.parametrize("content", ["[1, 2]", "{}", "nothing"])
def test_a_file_that_is_no_ledger_stays_as_it_was(run, tmp_path, content):
    place = Path(tmp_path / "ledger.json")
    place.write_text(content)
    with pytest.raises(ValueError, match="ledger"):
        ledger.append([{"recipe": "a"}], place, run)
    assert place.read_text() == content
    assert not place.with_suffix(".metrics.jsonl").exists()


def test_a_ledger_that_is_something_else_is_refused(tmp_path):
    path = tmp_path / "ledger.json"
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"ledger\.json is not a ledger"):
        ledger.read(path)
    path.write_text('[{"recipe": "a"}]')
    assert ledger.read(path) == [{"recipe": "a"}]
