import csv
import json
import shutil
import types

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from jaxnlp.__main__ import main
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.classification.ensemble import _checked
from jaxnlp.tasks.language_model import LanguageModel
from tests.jaxnlp.tasks.two_devices import train
from train.config import update
from train.evaluate import main as evaluate
from train.run.folder import read_config

STEPS = ("total_steps", "evaluate_every_steps", "checkpoint_every_steps")


@pytest.fixture(scope="module")
def other(text_run, tmp_path_factory):
    """A run of another seed and a narrower model, after few steps."""
    config = read_config(text_run("class"))
    changed = {"seed": 1, "model.encoder.width": 8, "ema_decay": None}
    changed |= dict.fromkeys(STEPS, 6)
    return train(update(config, **changed), tmp_path_factory.mktemp("other") / "run")


def predictions(folder, *arguments):
    assert evaluate([*map(str, arguments), "--predictions", str(folder / "predictions.csv")]) == 0
    with (folder / "predictions.csv").open() as file:
        return list(csv.DictReader(file))


def test_an_ensemble_has_the_mean_probabilities_of_its_runs(text_run, other, tmp_path, capsys):
    run = text_run("class")
    alone = [predictions(tmp_path, one) for one in (run, other)]
    capsys.readouterr()
    together = predictions(tmp_path, run, "ensemble", "--members", other, "--threshold", "0.6")
    printed = capsys.readouterr().out
    first, second, mean = (
        np.array([float(row["probability of sport"]) for row in rows]) for rows in (*alone, together)
    )
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_allclose(mean, (first + second) / 2, atol=2e-6)
    assert [row["predicted"] for row in together] == np.where(mean >= 0.6, "sport", "arts").tolist()
    labels = [row["label"] for row in together]
    decided = np.where(mean > 0.5, "sport", "arts")
    for name, value in {
        "ensemble_accuracy": np.mean(decided == labels),
        "ensemble_macro_f1": f1_score(labels, decided, average="macro"),
        "sport/ensemble_f1": f1_score(labels, decided, pos_label="sport"),
        "ensemble_roc_auc": roc_auc_score(labels, mean),
    }.items():
        assert f"validation {name} {value:.4f}  ({len(labels)} examples)" in printed


def test_the_ledger_names_the_members(text_run, other, tmp_path, capsys):
    record = tmp_path / "ledger.json"
    assert evaluate([str(text_run("class")), "ensemble", "--members", str(other), "--record", str(record)]) == 0
    entries = json.loads(record.read_text())
    assert {"ensemble_accuracy", "ensemble_macro_f1"} <= {entry["metric"] for entry in entries}
    assert [(one["steps"], one["seed"]) for one in entries[0]["members"]] == [(60, 0), (6, 1)]


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "metric"), [("classes", "micro_f1"), ("number", "pearson")])
def test_an_ensemble_of_a_run_and_its_copy_scores_as_the_run(text_run, tmp_path, capsys, kind, metric):
    run = str(text_run(kind))
    assert evaluate([run]) == 0
    alone = capsys.readouterr().out
    assert evaluate([run, "ensemble", "--members", str(shutil.copytree(run, tmp_path / "copy"))]) == 0
    together = capsys.readouterr().out
    (value,) = [line.split()[2] for line in alone.splitlines() if f" {metric} " in line]
    assert f"validation ensemble_{metric} {value}" in together


def test_a_run_that_has_learned_from_the_rows_to_score_is_refused(text_run, tmp_path, capsys):
    run = str(text_run("class"))
    other_fold = str(shutil.copytree(run, tmp_path / "fold"))
    config = json.loads((tmp_path / "fold" / "config.json").read_text())
    config["data"]["fold"] = 1
    (tmp_path / "fold" / "config.json").write_text(json.dumps(config))
    refusal = f"{other_fold} has learned from validation examples of {run}, so a score on them would be too good; give"
    assert main(["evaluate", run, "ensemble", "--members", other_fold]) == 2
    assert refusal in capsys.readouterr().err
    assert main(["average", run, other_fold, "--out", str(tmp_path / "average")]) == 2
    assert refusal in capsys.readouterr().err
    file = tmp_path / "more.csv"
    file.write_text("text,label\na goal,sport\n")
    main(["evaluate", run, "ensemble", "--members", other_fold, "--file", str(file)])
    assert "config.json was edited since the run was trained" in capsys.readouterr().err  # only the edit is refused


def test_runs_that_cannot_be_averaged_are_refused(text_run, capsys):
    run = str(text_run("class"))
    assert main(["evaluate", run, "ensemble"]) != 0
    assert "an ensemble has at least two runs; give the others with --members RUN2 RUN3" in capsys.readouterr().err
    assert main(["evaluate", run, "ensemble", "--members", str(text_run("classes"))]) != 0
    message = capsys.readouterr().err
    assert "has other classes, another scale of its numbers, another tokenizer or another size of its inputs" in message
    assert "the processor.json of both differ in vocabulary, parts" in message
    for members, message in {
        ("missing",): "missing",
        (run,): f"--members: {run} is given twice; give each run once",
        (str(text_run("classes")),) * 2: f"--members: {text_run('classes')} is given twice",
    }.items():
        assert main(["evaluate", run, "ensemble", "--members", *members]) != 0
        assert message in capsys.readouterr().err


def test_a_member_is_a_classifier():
    first, member = (types.SimpleNamespace(task=task, processor=None) for task in (Classification(), LanguageModel()))
    with pytest.raises(ValueError, match="--members runs/lm is not a classifier, but "):
        _checked(member, "runs/lm", first)
    assert _checked(first, "runs/other", first) is first
