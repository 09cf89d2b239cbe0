import json
import math
import shutil

import numpy as np
import pytest
from train.folder import ENVIRONMENT_FILE, METRICS_FILE
from train.objectives import next_token

from jaxnlp.runs import CONFIG_FILE, load_run
from train import evaluate, folder


@pytest.fixture(scope="module")
def trained(tiny_config, tiny_gpt, small_text, quick_fit, tmp_path_factory):
    """A folder with a text and a run that read it; tests copy both."""
    place = tmp_path_factory.mktemp("trained")
    (place / "text.txt").write_text(small_text.read_text())
    quick_fit(tiny_config(model=tiny_gpt, total_steps=4, **{"data.path": str(place / "text.txt")}), place / "run")
    return place


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "use_compilation_cache", lambda folder: None)
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "run" / CONFIG_FILE
    config.write_text(config.read_text().replace(str(trained), str(tmp_path)))
    return tmp_path / "run"


def rows_of(run):
    return [json.loads(line) for line in (run / METRICS_FILE).read_text().splitlines()]


def test_validation_loss_is_the_one_that_training_logged(run, capsys):
    assert evaluate.main([str(run)]) == 0
    logged = [row["loss"] for row in rows_of(run) if row["split"] == "validation"][-1]
    scores = evaluate.score(evaluate.Evaluate(run))
    assert math.isclose(scores.values["loss"][0], logged, rel_tol=1e-6)
    assert f"validation loss {logged:.4f}" in capsys.readouterr().out


def test_what_training_adds_to_the_cross_entropy_is_no_part_of_a_score(
    tiny_config, tiny_gpt, small_text, quick_fit, tmp_path, monkeypatch
):
    monkeypatch.setattr(evaluate, "use_compilation_cache", lambda folder: None)
    loss = {"loss.label_smoothing": 0.3, "loss.chunk_tokens": 7, "data.path": str(small_text)}
    quick_fit(tiny_config(model=tiny_gpt, total_steps=2, **loss), tmp_path / "run")
    found, _ = evaluate.score(evaluate.Evaluate(tmp_path / "run")).values["loss"]
    (logged,) = [row for row in rows_of(tmp_path / "run") if row["split"] == "validation"]
    run = load_run(tmp_path / "run", checkpoint="latest")
    scored = folder.read_config(run.folder).data.load(0).split("validation")
    plain = next_token(run.model)
    sums = [plain(run.params, batch, None)[1]["loss"] for batch in scored.batches]
    total, count = np.sum(sums, axis=0)
    np.testing.assert_allclose([found, logged["loss"]], total / count, rtol=1e-5)


def test_scoring_writes_nothing_into_the_run(run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert evaluate.main([str(run)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*")}


def test_ledger_entry_holds_its_keys_and_the_metrics_lie_beside_it(run, tmp_path):
    ledger = tmp_path / "results" / "recipe.json"
    for _ in range(2):
        assert evaluate.main([str(run), "--record", str(ledger)]) == 0
    entries = json.loads(ledger.read_text())
    assert len(entries) == 2
    keys = "recipe metric split value examples steps train_seconds device versions commit seed config command"
    assert set(keys.split()) <= entries[0].keys()
    beside = [json.loads(line) for line in (ledger.parent / "recipe.metrics.jsonl").read_text().splitlines()]
    assert beside == rows_of(run)


def test_recording_a_run_that_has_not_ended_says_so(run, tmp_path, capsys):
    command = [str(run), "--record", str(tmp_path / "ledger.json")]
    assert evaluate.main(command) == 0
    assert "note:" not in capsys.readouterr().out
    config = run / "config.json"
    config.write_text(config.read_text().replace('"total_steps": 4', '"total_steps": 9'))
    assert evaluate.main(command) == 0
    assert f"note: {run} has not ended, it has 4 of 9 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "recorded"),
    [
        ("python -m train x --workdir '/my runs/a b' --seed 3", "python -m train x --workdir 'runs/a b' --seed 3"),
        ("python -m train x --workdir=../a", "python -m train x --workdir=runs/a"),
        ("python -m train x --data.path text.txt", "python -m train x --data.path text.txt"),
    ],
)
def test_ledger_tells_the_command_without_the_place_of_its_folder(run, typed, recorded):
    file = run / ENVIRONMENT_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"command": typed}))
    (entry,) = evaluate.ledger_entries(evaluate.score(evaluate.Evaluate(run)))
    assert entry["command"] == recorded


def test_thinned_metrics_keep_every_evaluation_and_at_most_the_limit(run, tmp_path, monkeypatch):
    rows = [{"step": i, "split": "train", "loss": 1.0, "train_seconds": 1.0} for i in range(1, 5001)]
    rows += [{"step": i, "split": "validation", "loss": 1.0, "train_seconds": 1.0} for i in (7, 5000)]
    (run / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = evaluate.record([], tmp_path / "ledger.json", run)
    kept = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert len(kept) <= evaluate.MOST_METRICS_LINES
    assert [row["step"] for row in kept if row["split"] == "validation"] == [7, 5000]


def test_a_file_is_scored_character_by_character(run, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text((tmp_path / "text.txt").read_text()[:50])
    scores = evaluate.score(evaluate.Evaluate(run, file=text))
    assert scores.values["loss"][1] == 49
    assert scores.answers == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "test"], "no split 'test'"),
        (["--file", "nowhere.txt"], "no text file at nowhere.txt"),
        (["--predictions", "answers.txt"], "--predictions: validation has no questions to answer"),
        (["--checkpoint", "12345"], "no checkpoint of step 12345"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(run, capsys, arguments, message):
    assert evaluate.main([str(run), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_changed_data_is_refused(run, tmp_path, capsys):
    with (tmp_path / "text.txt").open("a") as file:
        file.write("more of the same")
    assert evaluate.main([str(run)]) == 2
    assert "the data has changed" in capsys.readouterr().err
