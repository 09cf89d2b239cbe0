"""Runs that begin with pretrained weights or another run: from a folder to scores and files of predictions."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from data import DataError
from data.minbert import MinBertData
from jaxnlp.convert.pretrained import Pretrained, load_pretrained, save_pretrained
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.runs import RunError, load_run
from jaxnlp.serialization import ConfigError
from jaxnlp.tasks.text_tasks import TextTasks
from jaxnlp.tasks.text_tasks.evaluators import Validation
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from train import evaluate
from train.begin import begin, params_digest
from train.config import TrainConfig, update
from train.optimizer import OptimizerConfig
from train.run_folder import ENVIRONMENT_FILE, METRICS_FILE, RunMismatchError, read_config
from train.setup import set_up

WORDS = ["good", "bad", "film", "plot", "dog", "cat", "sea", "sand", "red", "blue"]
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
SHAPE = BertConfig(num_layers=1, num_heads=2, width=8, feed_forward_width=12, max_positions=16, epsilon=1e-6)


def rows_of(file):
    """A table's rows, without its header."""
    return [line.split("\t") for line in file.read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A folder of a small BERT's random weights."""
    model = Bert(SHAPE, VOCABULARY.size)
    params = jax.jit(model.init)(jax.random.key(7), jnp.zeros((1, 1), jnp.int32))["params"]
    folder = tmp_path_factory.mktemp("weights") / "tiny-bert"
    save_pretrained(folder, Pretrained(SHAPE, jax.device_get(params), None, VOCABULARY))
    return folder


@pytest.fixture(scope="module")
def make_config(project_files, weights):
    def make(parts=("sst", "sts"), **changes):
        config = TrainConfig(
            recipe="tiny",
            data=MinBertData(
                parts=parts, path=str(project_files), batch_size=10, max_length=16, evaluation_batch_size=8
            ),
            model=TextTasksConfig(pooling="mean", head_dropout_rate=0.0),
            task=TextTasks(),
            init_from=str(weights),
            optimizer=OptimizerConfig(learning_rate=1e-2),
            best_metric="mean_score",
            total_steps=4,
            evaluate_every_steps=4,
            log_every_steps=2,
        )
        return update(config, **changes)

    return make


@pytest.fixture(scope="module")
def trained(make_config, quick_fit, tmp_path_factory):
    """A run of two tasks, long enough to learn them."""
    workdir = tmp_path_factory.mktemp("runs") / "both"
    rates = {"model.encoder.dropout_rate": 0.0, "model.encoder.attention_dropout_rate": 0.0}
    quick_fit(make_config(total_steps=120, evaluate_every_steps=60, **rates), workdir)
    return workdir


def initial_params(config):
    setup = set_up(begin(config))
    return jax.device_get(setup.initial_state(setup.given).params)


def test_a_run_begins_with_the_weights_of_its_folder_and_keeps_its_own_dropout(make_config, weights):
    setup = set_up(begin(make_config(**{"model.encoder.dropout_rate": 0.3})))
    encoder = setup.config.model.encoder
    assert (encoder.width, encoder.num_layers, encoder.epsilon, encoder.dropout_rate) == (8, 1, 1e-6, 0.3)
    params = setup.initial_state(setup.given).params
    jax.tree.map(np.testing.assert_array_equal, dict(params["encoder"]), load_pretrained(weights).params)
    assert setup.corpus.processor.vocabulary == VOCABULARY
    assert "heads_sst" in params


def test_other_weights_have_another_digest(make_config):
    begun = begin(make_config())
    assert begun.digest == params_digest(begun.params)
    changed = jax.tree.map(np.array, begun.params)
    changed["encoder"]["positions"][3, 2] += 1e-3
    assert params_digest(changed) != begun.digest


def test_two_parts_are_learnt_and_the_best_checkpoint_has_the_highest_mean_score(trained):
    rows = [json.loads(line) for line in (trained / METRICS_FILE).read_text().splitlines()]
    scores = [row for row in rows if row["split"] == "validation"]
    best = max(scores, key=lambda row: row["mean_score"])
    assert best["sst/accuracy"] > 0.5  # of five classes
    assert best["sts/pearson"] > 0.7
    for row in scores:
        expected = (row["sst/accuracy"] + (1 + row["sts/pearson"]) / 2) / 2
        np.testing.assert_allclose(row["mean_score"], expected, rtol=1e-6)
    assert load_run(trained).step == best["step"]


def score(run, **options):
    """Values and counts by the evaluator `validation`."""
    return evaluate.score(run, Validation(), evaluate.Options(**options)).evaluation


@pytest.fixture
def own_cache(monkeypatch):
    monkeypatch.setattr(evaluate, "use_compilation_cache", lambda folder: None)


def test_evaluation_gives_what_training_logged_and_the_ledger_names_no_place(trained, tmp_path, own_cache, capsys):
    ledger = tmp_path / "ledger.json"
    assert evaluate.main([str(trained), "--record", str(ledger)]) == 0
    rows = [json.loads(line) for line in (trained / METRICS_FILE).read_text().splitlines()]
    logged = max((row for row in rows if row["split"] == "validation"), key=lambda row: row["mean_score"])
    entries = {(entry["split"], entry["metric"]): entry for entry in json.loads(ledger.read_text())}
    for name in ("loss", "sst/accuracy", "sts/pearson", "sts/spearman", "mean_score"):
        part, _, metric = name.rpartition("/")
        entry = entries[f"{part}/validation" if part else "validation", metric]
        np.testing.assert_allclose(entry["value"], logged[name], rtol=1e-5)
        assert entry["examples"] == (21 if part else 42)
    whole = entries["validation", "loss"]
    assert whole["config"]["init_from"] == "tiny-bert"
    environment = json.loads((trained / ENVIRONMENT_FILE).read_text())
    assert whole["pretrained_sha256"] == environment["pretrained_sha256"] is not None
    assert "validation mean_score" in capsys.readouterr().out


def test_predictions_are_files_as_the_project_has_them(trained, project_files, tmp_path, own_cache, capsys):
    for split in ("dev", "test"):
        assert evaluate.main([str(trained), "--split", split, "--predictions", str(tmp_path / "out")]) == 0
    names = {"sst-dev-output.csv", "sts-dev-output.csv", "sst-test-output.csv", "sts-test-output.csv"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names

    lines = (tmp_path / "out" / "sst-dev-output.csv").read_text().splitlines()
    assert lines[0] == "id \t Predicted_Sentiment "
    given = dict(line.rstrip(" ").split(" , ") for line in lines[1:])
    expected = {row[1]: row[-1] for row in rows_of(project_files / "ids-sst-dev.csv")}
    assert list(given) == list(expected)  # in the order of the file
    scores = score(trained).metrics
    right = sum(given[row] == label for row, label in expected.items())
    np.testing.assert_allclose(scores["sst/accuracy"].value, right / 21)

    lines = (tmp_path / "out" / "sts-dev-output.csv").read_text().splitlines()
    assert lines[0] == "id \t Predicted_Similiary "
    given = [float(line.split(" , ")[1]) for line in lines[1:]]
    expected = [float(row[-1]) for row in rows_of(project_files / "sts-dev.csv")]
    np.testing.assert_allclose(scores["sts/pearson"].value, stats.pearsonr(given, expected).statistic, rtol=1e-4)
    assert min(given) >= 0.0
    assert max(given) > 1.0  # on the scale of the labels

    (tmp_path / "taken").write_text("mine")
    assert evaluate.main([str(trained), "--split", "dev", "--predictions", str(tmp_path / "taken")]) == 2
    assert "taken is a file; give a directory" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


def test_parts_may_share_each_step_and_conflicts_of_gradients_be_projected_away(make_config, quick_fit, tmp_path):
    together = {"data.schedule": "together", "total_steps": 2}
    summed = quick_fit(make_config(**together), tmp_path / "sum")
    projected = quick_fit(make_config(**together, **{"task.gradient_surgery": True}), tmp_path / "surgery")
    first = json.loads((tmp_path / "sum" / METRICS_FILE).read_text().splitlines()[0])
    np.testing.assert_allclose(first["objective"], first["sst/loss"] + first["sts/loss"], rtol=1e-5)
    assert "loss" not in first
    for outcome in (summed, projected):
        assert int(outcome.state.skipped_updates) == 0
    kernels = [np.asarray(outcome.state.params["encoder"]["tokens"]["embedding"]) for outcome in (summed, projected)]
    assert not np.array_equal(*kernels)  # they conflict in the first steps of this seed


def test_truncated_texts_are_counted_where_they_are_scored(trained, tmp_path, caplog):
    long = "the film was good " * 9
    (tmp_path / "mine.csv").write_text(f"\t\tid\tsentence\tsentiment\n0\t0\ta\t{long}\t4\n1\t0\tb\tgood\t4\n")
    score(trained, file=tmp_path / "mine.csv")
    assert "mine.csv: sst: 1 text was truncated to 16 tokens" in caplog.text


def test_a_file_of_one_part_is_scored_by_itself(trained, project_files):
    scores = score(trained, file=project_files / "sts-dev.csv").metrics
    whole = score(trained).metrics
    np.testing.assert_allclose(scores["sts/pearson"], whole["sts/pearson"], rtol=1e-5)
    assert "sst/accuracy" not in scores


def test_a_run_continues_without_the_weights_that_it_began_with(
    make_config, weights, quick_fit, stop_at, tmp_path, monkeypatch
):
    gone = shutil.copytree(weights, tmp_path / "weights")
    config = make_config(("sst",), init_from=str(gone))
    whole = quick_fit(config, tmp_path / "whole")
    with stop_at(2):
        quick_fit(config, tmp_path / "parts")
    before = json.loads((tmp_path / "parts" / ENVIRONMENT_FILE).read_text())["pretrained_sha256"]
    shutil.rmtree(gone)
    parts = quick_fit(config, tmp_path / "parts")
    jax.tree.map(np.testing.assert_array_equal, parts.state.params, whole.state.params)
    assert json.loads((tmp_path / "parts" / ENVIRONMENT_FILE).read_text())["pretrained_sha256"] == before is not None
    assert read_config(tmp_path / "parts").model.encoder.width == 8
    with pytest.raises(RunMismatchError, match=r"head_dropout_rate"):
        quick_fit(update(config, **{"model.head_dropout_rate": 0.1}), tmp_path / "parts")


def test_a_run_killed_while_it_first_saved_begins_with_its_weights_again(make_config, quick_fit, tmp_path):
    """What a killed process leaves of a checkpoint that it had not finished is none."""
    config = make_config(("sst",), total_steps=1)
    whole = quick_fit(config, tmp_path / "whole")
    quick_fit(config, tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "checkpoints")
    (tmp_path / "killed" / "checkpoints" / "1.orbax-checkpoint-tmp-0").mkdir(parents=True)
    again = quick_fit(config, tmp_path / "killed")
    jax.tree.map(np.testing.assert_array_equal, again.state.params, whole.state.params)


def test_fine_tuning_may_begin_with_the_encoder_of_a_run(make_config, weights, quick_fit, tmp_path):
    frozen = make_config(("sst",), total_steps=2, **{"model.freeze_encoder": True})
    outcome = quick_fit(frozen, tmp_path / "frozen")
    held = load_pretrained(weights).params
    jax.tree.map(np.testing.assert_array_equal, dict(outcome.state.params["encoder"]), held)
    begun = initial_params(make_config(("sst", "sts"), init_from=str(tmp_path / "frozen")))
    jax.tree.map(np.testing.assert_array_equal, begun["encoder"], jax.device_get(outcome.state.params["encoder"]))


def test_a_file_without_labels_has_predictions_and_wrong_labels_are_named(trained, project_files, tmp_path):
    given = score(trained, file=project_files / "sts-test-student.csv")
    assert (list(given.predictions), given.metrics) == (["sts-sts-test-student-output.csv"], {})
    broken = (project_files / "sts-dev.csv").read_text() + "9\tx\ta\tb\t7.5\n"
    (tmp_path / "broken.csv").write_text(broken)
    with pytest.raises(DataError, match=r"broken\.csv, line 23: similarity must be a number from 0 to 5, got '7\.5'"):
        score(trained, file=tmp_path / "broken.csv")


def test_weights_that_are_missing_or_do_not_fit_are_refused_before_anything_is_written(
    make_config, quick_fit, weights, tmp_path
):
    run = tmp_path / "run"
    with pytest.raises(RunError, match=r"--init-from /nowhere: there is no folder /nowhere"):
        quick_fit(make_config(init_from="/nowhere"), run)
    held = load_pretrained(weights)
    params = {name: value for name, value in held.params.items() if name != "pooler"}
    without = held.config.__class__(**{**vars(held.config), "use_pooler": False})
    save_pretrained(tmp_path / "plain", held._replace(config=without, params=params))
    with pytest.raises(RunError, match=r"plain: model\.pooling pooler needs an encoder with a pooler"):
        quick_fit(make_config(init_from=str(tmp_path / "plain"), **{"model.pooling": "pooler"}), run)
    with pytest.raises(RunError, match=r"up to 17 tokens, and the model reads at most 16"):
        quick_fit(make_config(**{"data.max_length": 17}), run)
    with pytest.raises(ConfigError, match=r"defines these fields; remove them:\n  model\.encoder\.width: 24"):
        quick_fit(make_config(**{"model.encoder.width": 24}), run)
    with pytest.raises(DataError, match=r"--init-from"):
        quick_fit(make_config(init_from=None), run)
    with pytest.raises(ConfigError, match=r"best_metric must be one of .*mean_score.*, got 'exact_match'"):
        quick_fit(make_config(best_metric="exact_match"), run)
    assert not run.exists()
