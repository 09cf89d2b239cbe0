import contextlib
import dataclasses
import json
import math
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.runs import load_run
from jaxnlp.saving.checkpoint_reading import CONFIG_FILE, RunError
from jaxnlp.tasks import Evaluation, Metric
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.tasks.language_model.evaluators import Validation
from train import evaluate
from train.evaluate import Options, find_evaluator, score, split_arguments, write_predictions
from train.run import folder as run_folder
from train.run.folder import METRICS_FILE


@pytest.fixture(scope="module")
def trained(tiny_config, tiny_gpt, small_text, quick_fit, tmp_path_factory):
    """A folder with a text and a run that reads it by a relative path; tests copy both."""
    place = tmp_path_factory.mktemp("trained")
    (place / "text.txt").write_text(small_text.read_text())
    task = LanguageModel(label_smoothing=0.3, chunk_tokens=7)
    fields = {"data.path": "text.txt", "optimizer.schedule": "constant"}
    config = tiny_config(model=tiny_gpt, task=task, total_steps=4, **fields)
    with contextlib.chdir(place):
        quick_fit(config, place / "run")
    return place


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def rows_of(run):
    return [json.loads(line) for line in (run / METRICS_FILE).read_text().splitlines()]


def test_the_validation_loss_is_the_one_that_training_logged(run, capsys):
    assert jaxnlp_main(["evaluate", str(run)]) == 0
    (logged,) = [row["loss"] for row in rows_of(run) if row["split"] == "validation"]
    value, count = score(run, Validation(), Options()).evaluation.metrics["loss"]
    assert math.isclose(value, logged, rel_tol=1e-6)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"validation loss {logged:.4f}  ({count} characters)"
    assert printed[1:] == [f"validation perplexity {math.exp(value):.4f}  ({count} characters)"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("parallel", "mesh", "largest"),
    [("fsdp", "data=4,model=2", 1 / 2), ("fsdp", None, 1 / 2), ("tensor", "data=4,model=2", 1), ("pmap", None, 1)],
)
def test_devices_that_share_a_model_measure_what_one_does(run, capsys, monkeypatch, parallel, mesh, largest):
    found, score = [], evaluate.score
    monkeypatch.setattr(evaluate, "score", lambda *given: found.append(score(*given)) or found[-1])
    with monkeypatch.context() as patch:
        patch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
        assert jaxnlp_main(["evaluate", str(run)]) == 0
    assert jaxnlp_main(["evaluate", str(run), "--parallel", parallel, *([] if mesh is None else ["--mesh", mesh])]) == 0
    one, several = found
    assert several.evaluation.metrics.keys() == one.evaluation.metrics.keys()
    for name, metric in one.evaluation.metrics.items():
        np.testing.assert_allclose(several.evaluation.metrics[name], metric, rtol=1e-6, err_msg=name)
    whole, shared = (sum(x.addressable_shards[0].data.size for x in jax.tree.leaves(of.trained.params)) for of in found)
    assert shared <= largest * whole  # of the parameters on a device


@pytest.mark.thorough
def test_what_training_adds_to_the_cross_entropy_is_not_part_of_a_score(run):
    found = score(run, Validation(), Options()).evaluation.metrics
    trained = load_run(run)
    batches = run_folder.read_config(run).data.load(0).split("validation").batches
    plain = LanguageModel().objective(trained.model, None).loss
    total, count = np.sum([plain(trained.params, batch, None, ())[1][0]["loss"] for batch in batches], axis=0)
    assert found.keys() == {"loss", "perplexity"}
    np.testing.assert_allclose(found["loss"].value, total / count, rtol=1e-5)
    training = [row for row in rows_of(run) if row["split"] == "train"]
    assert all(row["objective"] > row["loss"] for row in training)


def test_one_example_is_not_a_plural(capsys):
    found = Evaluation({"f1": Metric(0.5, 1), "las": Metric(0.25, 2)})
    evaluate.show(evaluate.Scores(None, None, "x", found, {"f1": "entities"}))
    assert capsys.readouterr().out == "x f1 0.5000  (1 entity)\nx las 0.2500  (2 examples)\n"


def test_scoring_writes_nothing_into_the_run(run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert jaxnlp_main(["evaluate", str(run)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*")}


def test_every_number_is_recorded_and_the_metrics_are_next_to_the_ledger(run, tmp_path, capsys):
    ledger = tmp_path / "results" / "recipe.json"
    for _ in range(2):
        assert jaxnlp_main(["evaluate", str(run), "--record", str(ledger)]) == 0
    assert f"recorded in {ledger}" in capsys.readouterr().out
    entries = json.loads(ledger.read_text())
    expected = [("loss", "validation", 4), ("perplexity", "validation", 4)] * 2
    assert [(entry["metric"], entry["split"], entry["steps"]) for entry in entries] == expected
    copied = [json.loads(line) for line in (ledger.parent / "recipe.metrics.jsonl").read_text().splitlines()]
    assert copied == rows_of(run)


def test_files_of_public_data_are_recorded_under_their_names(run, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXNLP_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "poems").mkdir(parents=True)
    text, book = tmp_path / "data" / "poems" / "a.txt", tmp_path / "ledger.json"
    text.write_text("the time " * 20)
    assert jaxnlp_main(["evaluate", str(run), "--file", str(text), "--record", str(book)]) == 0
    assert {entry["split"] for entry in json.loads(book.read_text())} == {"poems/a.txt"}


def test_a_file_that_is_no_ledger_stays_as_it_was(run, tmp_path, capsys):
    ledger = tmp_path / "ledger.json"
    ledger.write_text("[1, 2]")
    assert jaxnlp_main(["evaluate", str(run), "--record", str(ledger)]) == 2
    assert "is not a ledger" in capsys.readouterr().err
    assert ledger.read_text() == "[1, 2]"
    assert not ledger.with_suffix(".metrics.jsonl").exists()


def test_recording_an_unfinished_run_says_so(run, tmp_path, caplog):
    caplog.set_level("INFO", logger="train")
    command = [str(run), "--record", str(tmp_path / "ledger.json")]
    assert jaxnlp_main(["evaluate", *command]) == 0
    assert "has not finished" not in caplog.text
    config = run / CONFIG_FILE
    config.write_text(config.read_text().replace('"total_steps": 4', '"total_steps": 9'))
    assert jaxnlp_main(["evaluate", *command]) == 0
    assert f"{run} has not finished: 4 of 9 steps; the entry is of an unfinished run" in caplog.text


@pytest.fixture
def other_seed(run, quick_fit):
    """A run like `run`, with seed 3."""
    quick_fit(dataclasses.replace(run_folder.read_config(run), seed=3), run.with_name("other"))
    return run.with_name("other")


@pytest.mark.thorough
def test_runs_that_differ_in_their_seed_have_a_mean_and_a_standard_deviation(run, other_seed, tmp_path, capsys):
    book = tmp_path / "results" / "small.json"
    assert jaxnlp_main(["evaluate", str(run), str(other_seed), "validation", "--record", str(book)]) == 0
    values = [score(folder, Validation(), Options()).evaluation.metrics["loss"].value for folder in (run, other_seed)]
    assert values[0] != values[1]
    printed = capsys.readouterr().out.splitlines()
    mean, spread = sum(values) / 2, abs(values[0] - values[1]) / math.sqrt(2)
    each = f"{values[0]:.4f}, {values[1]:.4f}"
    assert printed[0] == f"validation loss mean {mean:.4f}, standard deviation {spread:.4f}, of {each}"
    assert printed[2:] == [f"recorded in {book}", f"recorded in {book.with_name('small-seed3.json')}"]
    for name, seed, value in (("small", 0, values[0]), ("small-seed3", 3, values[1])):
        entry = json.loads((book.parent / f"{name}.json").read_text())[0]
        assert (entry["seed"], entry["metric"], entry["value"]) == (seed, "loss", value)
        rows = (book.parent / f"{name}.metrics.jsonl").read_text().splitlines()
        assert [json.loads(row) for row in rows] == rows_of(run if seed == 0 else other_seed)


@pytest.fixture
def copied(run):
    """A copy whose config names seed 3: enough for what is refused before a checkpoint is read."""
    other = shutil.copytree(run, run.with_name("copied"))
    config = (other / CONFIG_FILE).read_text()
    assert '"seed": 0' in config
    (other / CONFIG_FILE).write_text(config.replace('"seed": 0', '"seed": 3'))
    return other


def test_runs_of_other_configs_are_not_averaged(run, copied, tmp_path, capsys):
    config = copied / CONFIG_FILE
    book = tmp_path / "ledger.json"
    assert jaxnlp_main(["evaluate", str(run), str(run), "--record", str(book)]) == 2
    assert f"{run} and {run} have the same seed, 0; give each run once" in capsys.readouterr().err
    assert jaxnlp_main(["evaluate", str(run), str(copied), "--predictions", "answers.txt"]) == 2
    assert "--predictions needs one run" in capsys.readouterr().err
    config.write_text(config.read_text().replace('"total_steps": 4', '"total_steps": 9'))
    assert jaxnlp_main(["evaluate", str(run), str(copied), "--record", str(book)]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[1:] == ["  total_steps: 4 -> 9"]
    assert "differ in more than their seed; score them one by one" in error
    config.write_text(config.read_text().replace('"recipe": "', '"recipe": "other_'))
    assert jaxnlp_main(["evaluate", str(run), str(copied)]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"{run} and {copied} are runs of different recipes; score them one by one\n")
    assert not book.exists()


def test_several_runs_are_not_asked_for_predictions(run, copied, capsys, monkeypatch):
    unscored = evaluate.Scores(load_run(run), None, "validation", Evaluation({}, {"answers.txt": "a\n"}), {})
    monkeypatch.setattr(evaluate, "score", lambda *_: unscored)
    assert jaxnlp_main(["evaluate", str(run), str(copied)]) == 2
    assert "validation has no targets; predict with one run at a time" in capsys.readouterr().err
    assert jaxnlp_main(["evaluate", str(run)]) == 0
    assert capsys.readouterr().out == "a\n"


@pytest.mark.thorough
def test_the_report_links_to_predictions_that_are_written_into_the_folder(run, tmp_path, capsys, monkeypatch):
    found = score(run, Validation(), Options())
    found = dataclasses.replace(found, evaluation=Evaluation({}, {"answers.txt": "a\n"}))
    monkeypatch.setattr(evaluate, "score", lambda *_: found)
    elsewhere, inside = tmp_path / "answers.txt", run / "answers.txt"
    assert jaxnlp_main(["evaluate", str(run), "--predictions", str(elsewhere)]) == 0
    assert capsys.readouterr().out == f"predictions in {elsewhere}\n"
    assert not (run / "report.html").exists()
    assert jaxnlp_main(["evaluate", str(run), "--predictions", str(inside)]) == 0
    assert capsys.readouterr().out == f"predictions in {inside}\nthe report links to them: {run / 'report.html'}\n"
    assert 'href="./answers.txt"' in (run / "report.html").read_text()


@pytest.mark.parametrize("option", ["--record", "--predictions"])
def test_a_place_where_nothing_can_be_written_is_refused_before_the_scores(run, tmp_path, capsys, monkeypatch, option):
    monkeypatch.setattr("train.evaluate.score", None)  # not to be called
    (tmp_path / "file").touch()
    assert jaxnlp_main(["evaluate", str(run), option, str(tmp_path / "file" / "x.json")]) == 2
    assert f"{tmp_path / 'file'}: not a directory" in capsys.readouterr().err


def test_two_files_are_refused_where_one_is_read(run, tmp_path, capsys):
    assert jaxnlp_main(["evaluate", str(run), "--file", "a.txt", "b.txt"]) == 2
    assert "--file a.txt, b.txt: this run's data, CharacterText, are read from one file; give one" in (
        capsys.readouterr().err
    )


def test_a_file_is_scored_character_by_character(run, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text((tmp_path / "text.txt").read_text()[:50])
    scores = score(run, Validation(), Options(file=text))
    assert scores.evaluation.metrics["loss"].count == 49
    assert scores.evaluation.predictions == {}
    assert scores.split == str(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "test"], "this data set does not have the split 'test'; it has: "),
        (["--file", "nowhere.txt"], "text file nowhere.txt does not exist"),
        (["--predictions", "answers.txt"], "--predictions: validation has nothing to predict"),
        (["--checkpoint", "12345"], "no checkpoint of step 12345"),
        (["validaton"], "has no evaluator 'validaton'; did you mean validation?"),
        (["bleu"], "has no evaluator 'bleu'; there are: validation"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(run, capsys, arguments, message):
    assert jaxnlp_main(["evaluate", str(run), *arguments]) == 2
    *progress, error = capsys.readouterr().err.splitlines()
    assert message in error
    assert progress in ([], [f"scoring {run} on validation; it compiles first"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "test", "--file", "text.txt"], "--file cannot be combined with --split test"),
        (
            ["--file", "text.txt", "--record", "ledger.json"],
            "--record needs a split, or files of a data set in JAXNLP_DATA, got --file text.txt",
        ),
        (["--mesh", "data=3"], "the mesh data=3 has 3 devices, but there are 8; give another --mesh"),
        (["--cache-window", "5"], "there is no option --cache-window"),
    ],
)
def test_options_that_do_not_fit_end_with_status_2(run, capsys, arguments, message):
    assert jaxnlp_main(["evaluate", str(run), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_help_names_the_evaluators_of_the_run(run, capsys):
    with pytest.raises(SystemExit) as ended:
        jaxnlp_main(["evaluate", str(run), "--help"])
    assert ended.value.code == 0
    assert "Evaluators of this run: validation." in " ".join(capsys.readouterr().out.split())


def test_an_edited_config_is_refused(run, capsys):
    """A model with another number of heads has parameters of the same shapes, and gave other numbers."""
    config = run / CONFIG_FILE
    config.write_text(config.read_text().replace('"num_heads": 2', '"num_heads": 4'))
    assert jaxnlp_main(["evaluate", str(run)]) == 2
    assert "num_heads" in capsys.readouterr().err


def test_changed_data_is_refused(run, tmp_path, capsys):
    with (tmp_path / "text.txt").open("a") as file:
        file.write(" the tide eats the stone")
    assert jaxnlp_main(["evaluate", str(run)]) == 2
    assert "the data has changed" in capsys.readouterr().err


def test_a_damaged_checkpoint_ends_with_status_1(run, capsys):
    shutil.rmtree(run / "checkpoints" / "4" / "params")
    assert jaxnlp_main(["evaluate", str(run), "--checkpoint", "4"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_help_needs_no_run_and_options_depend_on_the_evaluator(run, capsys):
    assert jaxnlp_main(["evaluate", "--help"]) == 0
    assert (
        jaxnlp_main(
            [
                "evaluate",
            ]
        )
        == 2
    )
    assert "usage: python -m jaxnlp evaluate RUN... [EVALUATOR] [options]" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        jaxnlp_main(["evaluate", str(run), "--help"])
    assert ended.value.code == 0
    assert "--record" in capsys.readouterr().out
    assert find_evaluator(run, "validation") is Validation


def test_what_is_no_run_is_refused_and_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxnlp.runs.pretrained_types", None)  # not to be called
    for place in (tmp_path, Path("runs/no_such_run")):
        with pytest.raises(RunError, match=f"{place} is not a training run"):
            find_evaluator(place, "validation")


def test_one_prediction_file_is_written_as_named_and_several_into_a_directory(tmp_path):
    one = Evaluation({}, {"answers.txt": "a\n"})
    two = Evaluation({"loss": Metric(1.0, 2)}, {"sst.csv": "b\n", "sts.csv": "c\n"})
    assert write_predictions(one, tmp_path / "new" / "x.txt") == [tmp_path / "new" / "x.txt"]
    assert (tmp_path / "new" / "x.txt").read_text() == "a\n"
    assert write_predictions(two, tmp_path / "all") == [tmp_path / "all" / "sst.csv", tmp_path / "all" / "sts.csv"]
    assert (tmp_path / "all" / "sts.csv").read_text() == "c\n"
    assert write_predictions(one, tmp_path / "all") == [tmp_path / "all" / "answers.txt"]
    with pytest.raises(NotADirectoryError, match=r"is a file; give a directory, for sst\.csv, sts\.csv"):
        write_predictions(two, tmp_path / "new" / "x.txt")


def test_the_folders_of_runs_may_begin_with_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "b").mkdir()
    runs, name, options = split_arguments(["~/a", "~/b", "--file", "x"])
    assert (runs, name, options) == ([tmp_path / "a", tmp_path / "b"], "validation", ["--file", "x"])
    assert split_arguments(["~/b", "threshold"]) == ([tmp_path / "b"], "threshold", [])


def test_predictions_whose_name_has_another_format_are_written_with_a_warning(tmp_path, caplog):
    for file, name, warned in [
        ("validation.csv", "p.jsonl", True),
        ("validation.csv", "p.csv", False),
        ("trees.conllu", "p.tsv", False),
        ("answers.txt", "p.csv", True),
    ]:
        caplog.clear()
        assert write_predictions(Evaluation({}, {file: "a"}), tmp_path / name) == [tmp_path / name]
        format_named = f"{name} has the format of {Path(file).suffix} files; give it a name in {Path(file).suffix}"
        assert (format_named in caplog.text) is warned
