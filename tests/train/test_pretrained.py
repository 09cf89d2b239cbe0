"""Runs of text tasks on a pretrained encoder: from a folder of weights to scores and files of predictions."""

import dataclasses
import json
import re
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data.text_tasks import TextTasksData
from jaxnlp.encoders import encoder_of, load_text_model
from scipy import stats
from train.folder import ENVIRONMENT_FILE, METRICS_FILE, RunMismatchError, read_config
from train.pretrained import beginning, digest

from data import DataError
from data.masked_text import MaskedText
from jaxnlp.convert.pretrained import Pretrained, load_pretrained, save_pretrained
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.runs import RunError, load_run, make_decoder
from jaxnlp.serialization import ConfigError
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from train import evaluate
from train.config import TrainConfig, update
from train.loop import set_up
from train.optimizer import OptimizerConfig

WORDS = ["good", "bad", "film", "plot", "dog", "cat", "sea", "sand", "red", "blue"]
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
SHAPE = BertConfig(num_layers=1, num_heads=2, width=8, feed_forward_width=12, max_positions=16, epsilon=1e-6)


def rows_of(file):
    """A table's rows, without its header."""
    return [line.split("\t") for line in file.read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A folder of a small BERT's random weights."""
    model = SHAPE.build(VOCABULARY.size)
    params = jax.jit(model.init)(jax.random.key(7), jnp.zeros((1, 1), jnp.int32))["params"]
    folder = tmp_path_factory.mktemp("weights") / "tiny-bert"
    save_pretrained(folder, Pretrained(SHAPE, jax.device_get(params), None, VOCABULARY))
    return folder


@pytest.fixture(scope="module")
def make_config(project_files, weights):
    def make(tasks=("sst", "sts"), **changes):
        config = TrainConfig(
            recipe="tiny",
            data=TextTasksData(
                tasks=tasks, path=str(project_files), batch_size=10, longest_tokens=16, evaluation_batch_size=8
            ),
            model=TextTasksConfig(pretrained=str(weights), tasks=tasks, pooling="mean", head_dropout_rate=0.0),
            objective="text_tasks",
            optimizer=OptimizerConfig(learning_rate=1e-2),
            best_by="mean_score",
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


def test_a_run_begins_with_the_weights_of_its_folder_and_keeps_its_own_dropout(make_config, weights):
    found = set_up(make_config(**{"model.encoder.dropout_rate": 0.3}))
    encoder = found.config.model.encoder
    assert (encoder.width, encoder.num_layers, encoder.epsilon) == (8, 1, 1e-6)
    assert encoder.dropout_rate == 0.3
    held = load_pretrained(weights)
    jax.tree.map(np.testing.assert_array_equal, dict(found.state.params["encoder"]), held.params)
    assert found.corpus.vocabulary == VOCABULARY
    assert {"heads_sst"} <= found.state.params.keys()


def test_embeddings_beyond_the_tokenizer_are_trained_on_and_written_back(make_config, quick_fit, tmp_path):
    size = VOCABULARY.size + 3
    params = jax.jit(SHAPE.build(size).init)(jax.random.key(7), jnp.zeros((1, 1), jnp.int32))["params"]
    save_pretrained(tmp_path / "padded", Pretrained(SHAPE, jax.device_get(params), None, VOCABULARY))
    config = make_config(
        **{"model.pretrained": str(tmp_path / "padded"), "data.tasks": ("sst",), "model.tasks": ("sst",)}
    )
    quick_fit(config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert (run.vocabulary.size, len(run.params["encoder"]["tokens"]["embedding"])) == (size - 3, size)
    assert load_text_model(tmp_path / "padded").model.vocabulary_size == size
    save_pretrained(tmp_path / "back", encoder_of(run))
    assert load_pretrained(tmp_path / "back").config.padded_vocabulary_size == size
    with pytest.raises(ConfigError, match="padded_vocabulary_size must be at least the tokenizer's 15 tokens, got 14"):
        BertConfig(padded_vocabulary_size=14).embeddings(VOCABULARY.size)


def test_other_weights_have_another_digest(make_config):
    begun = beginning(make_config())
    assert begun.digest == digest(begun.params)
    changed = jax.tree.map(np.copy, begun.params)
    changed["encoder"]["positions"][3, 2] += 1e-3
    assert digest(changed) != begun.digest


def test_two_tasks_are_learnt_and_the_best_checkpoint_has_the_highest_mean_score(trained):
    rows = [json.loads(line) for line in (trained / METRICS_FILE).read_text().splitlines()]
    scores = [row for row in rows if row["split"] == "validation"]
    best = max(scores, key=lambda row: row["mean_score"])
    assert best["sst/accuracy"] > 0.5  # of five classes
    assert best["sts/pearson"] > 0.7
    for row in scores:
        expected = (row["sst/accuracy"] + (1 + row["sts/pearson"]) / 2) / 2
        np.testing.assert_allclose(row["mean_score"], expected, rtol=1e-6)
    assert load_run(trained).step == best["step"]
    assert {"examples_per_second"} <= rows[0].keys()


def test_evaluation_gives_what_training_logged_and_the_ledger_names_weights_without_their_place(
    trained, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(evaluate, "use_compilation_cache", lambda folder: None)
    ledger = tmp_path / "ledger.json"
    assert evaluate.main([str(trained), "--record", str(ledger)]) == 0
    rows = [json.loads(line) for line in (trained / METRICS_FILE).read_text().splitlines()]
    logged = max((row for row in rows if row["split"] == "validation"), key=lambda row: row["mean_score"])
    entries = {(entry["split"], entry["metric"]): entry for entry in json.loads(ledger.read_text())}
    for name in ("loss", "sst/accuracy", "sts/pearson", "sts/spearman", "mean_score"):
        task, _, metric = name.rpartition("/")
        entry = entries[f"{task}/validation" if task else "validation", metric]
        np.testing.assert_allclose(entry["value"], logged[name], rtol=1e-5)
        assert entry["examples"] == (21 if task else 42)
    whole = entries["validation", "loss"]
    assert whole["config"]["model"]["pretrained"] == "tiny-bert"
    environment = json.loads((trained / ENVIRONMENT_FILE).read_text())
    assert whole["pretrained_sha256"] == environment["pretrained_sha256"] is not None
    assert "validation mean_score" in capsys.readouterr().out


def test_predictions_are_files_as_the_project_has_them(trained, project_files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "use_compilation_cache", lambda folder: None)
    for split in ("dev", "test"):
        assert evaluate.main([str(trained), "--split", split, "--predictions", str(tmp_path / "out")]) == 0
    names = {"sst-dev-output.csv", "sts-dev-output.csv", "sst-test-output.csv", "sts-test-output.csv"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert "test: no targets provided, so there is no score; 10 answers" in capsys.readouterr().out

    lines = (tmp_path / "out" / "sst-dev-output.csv").read_text().splitlines()
    assert lines[0] == "id \t Predicted_Sentiment "
    given = dict(line.rstrip(" ").split(" , ") for line in lines[1:])
    expected = {row[1]: row[-1] for row in rows_of(project_files / "ids-sst-dev.csv")}
    assert list(given) == list(expected)  # in the order of the file
    scores = evaluate.score(evaluate.Evaluate(trained)).values
    right = sum(given[row] == label for row, label in expected.items())
    np.testing.assert_allclose(scores["sst/accuracy"][0], right / 21)

    lines = (tmp_path / "out" / "sts-dev-output.csv").read_text().splitlines()
    assert lines[0] == "id \t Predicted_Similiary "
    given = [float(line.split(" , ")[1]) for line in lines[1:]]
    expected = [float(row[-1]) for row in rows_of(project_files / "sts-dev.csv")]
    np.testing.assert_allclose(scores["sts/pearson"][0], stats.pearsonr(given, expected).statistic, rtol=1e-4)
    assert min(given) >= 0.0
    assert max(given) > 1.0  # on the scale of the labels

    (tmp_path / "taken").write_text("mine")
    assert evaluate.main([str(trained), "--split", "dev", "--predictions", str(tmp_path / "taken")]) == 2
    assert "taken is a file; give a folder, for a file of each task" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


def test_tasks_may_share_each_step_and_their_gradients_be_freed_of_conflicts(make_config, quick_fit, tmp_path):
    together = {"data.schedule": "together", "total_steps": 2}
    summed = quick_fit(make_config(**together), tmp_path / "sum")
    projected = quick_fit(make_config(**together, gradient_surgery=True), tmp_path / "surgery")
    first = json.loads((tmp_path / "sum" / METRICS_FILE).read_text().splitlines()[0])
    np.testing.assert_allclose(first["loss"], first["sst/loss"] + first["sts/loss"], rtol=1e-5)
    for outcome in (summed, projected):
        assert int(outcome.state.skipped_updates) == 0
    kernels = [np.asarray(outcome.state.params["encoder"]["tokens"]["embedding"]) for outcome in (summed, projected)]
    assert not np.array_equal(*kernels)  # they conflict in the first steps of this seed


def test_texts_that_were_cut_are_counted_where_they_are_scored_and_nowhere_else(trained, tmp_path, caplog):
    long = "the film was good " * 9
    (tmp_path / "mine.csv").write_text(f"\t\tid\tsentence\tsentiment\n0\t0\ta\t{long}\t4\n1\t0\tb\tgood\t4\n")
    evaluate.score(evaluate.Evaluate(trained, file=tmp_path / "mine.csv"))
    assert re.findall(r"(\w+): (\d) texts were cut after (\d+) tokens", caplog.text) == [("sst", "1", "16")]


def test_a_file_of_one_task_is_scored_by_itself(trained, project_files, monkeypatch):
    scores = evaluate.score(evaluate.Evaluate(trained, file=project_files / "sts-dev.csv")).values
    whole = evaluate.score(evaluate.Evaluate(trained)).values
    assert scores["sts/pearson"] == whole["sts/pearson"]
    assert "sst/accuracy" not in scores


def test_a_run_continues_without_the_weights_that_it_began_with(
    make_config, weights, quick_fit, stop_at, tmp_path, monkeypatch
):
    gone = shutil.copytree(weights, tmp_path / "weights")
    config = make_config(("sst",), **{"model.pretrained": str(gone)})
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


def test_pretraining_goes_on_with_a_model_of_masked_words_and_makes_what_it_lacks(weights, tmp_path, caplog):
    """As BertForMaskedLM: no pooler, and no head of next sentences."""
    held = load_pretrained(weights)
    encoder = {name: value for name, value in held.params.items() if name != "pooler"}
    model = BertPretrainingConfig(encoder=SHAPE).build(VOCABULARY.size)
    heads = model.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]["heads"]
    masked = jax.device_get(
        {name: value + 1.0 for name, value in heads.items() if name == "token_bias"}
        | {name: heads[name] for name in ("transform", "norm")}
    )
    config = dataclasses.replace(SHAPE, use_pooler=False)
    save_pretrained(tmp_path / "masked", Pretrained(config, encoder, masked, VOCABULARY))
    (tmp_path / "text.txt").write_text("".join("good film\nbad plot\nred sea\n\n" for _ in range(12)))
    run = TrainConfig(
        recipe="tiny",
        data=MaskedText(source="text_file", path=str(tmp_path / "text.txt"), sequence_length=16, batch_size=2),
        model=BertPretrainingConfig(pretrained=str(tmp_path / "masked")),
        objective="masked_tokens",
        total_steps=1,
    )
    setup = set_up(run)
    assert "it begins at random: the pooler, the head of next sentences" in caplog.text
    params = setup.state.params
    chex.assert_trees_all_equal({k: v for k, v in params["encoder"].items() if k != "pooler"}, encoder)
    chex.assert_trees_all_equal({name: params["heads"][name] for name in masked}, masked)
    tokens = next(iter(setup.corpus.train))["tokens"]
    hidden, follows = setup.model.apply({"params": params}, jnp.asarray(tokens))
    assert (hidden.shape, follows.shape) == ((2, 16, 8), (2, 2))


def test_heads_that_were_trained_alone_may_be_what_fine_tuning_begins_with(make_config, weights, quick_fit, tmp_path):
    frozen = make_config(("sst",), total_steps=2, **{"model.freeze_encoder": True})
    outcome = quick_fit(frozen, tmp_path / "frozen")
    held = load_pretrained(weights).params
    jax.tree.map(np.testing.assert_array_equal, dict(outcome.state.params["encoder"]), held)
    begun = set_up(make_config(("sst",), init_from=str(tmp_path / "frozen")))
    jax.tree.map(np.testing.assert_array_equal, begun.state.params, outcome.state.params)


def test_a_file_without_labels_is_answered_for_each_task_about_such_texts(trained, project_files, tmp_path):
    given = evaluate.score(
        evaluate.Evaluate(trained, file=project_files / "sts-test-student.csv", predictions=tmp_path / "o")
    )
    assert list(given.files) == ["sts-sts-test-student-output.csv"]
    broken = (project_files / "sts-dev.csv").read_text() + "9\tx\ta\tb\t7.5\n"
    (tmp_path / "broken.csv").write_text(broken)
    with pytest.raises(DataError, match=r"broken\.csv, line 23: similarity must be a number from 0 to 5, got '7\.5'"):
        evaluate.score(evaluate.Evaluate(trained, file=tmp_path / "broken.csv"))


def test_what_is_no_pretrained_model_or_does_not_fit_is_refused_before_anything_is_written(
    make_config, quick_fit, weights, tmp_path
):
    with pytest.raises(RunError, match=r"--model\.pretrained: there is no folder /nowhere"):
        quick_fit(make_config(**{"model.pretrained": "/nowhere"}), tmp_path / "run")
    held = load_pretrained(weights)
    params = {name: value for name, value in held.params.items() if name != "pooler"}
    without = held.config.__class__(**{**vars(held.config), "use_pooler": False})
    save_pretrained(tmp_path / "plain", held._replace(config=without, params=params))
    config = make_config(**{"model.pretrained": str(tmp_path / "plain"), "model.pooling": "pooler"})
    with pytest.raises(ConfigError, match=r"plain does not fit this run: model\.pooling: this encoder has no pooler"):
        quick_fit(config, tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"longest_tokens 17 exceeds the encoder's 16.*give --data\.longest-tokens 16"
    ):
        quick_fit(make_config(**{"data.longest_tokens": 17}), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"leave out model\.encoder\.width 24, where it has 8"):
        quick_fit(make_config(**{"model.encoder.width": 24}), tmp_path / "run")
    with pytest.raises(DataError, match=r"give --model\.pretrained"):
        quick_fit(make_config(**{"model.pretrained": None}), tmp_path / "run")
    with pytest.raises(DataError, match=r"--best-by exact_match needs a data set with questions"):
        quick_fit(make_config(best_by="exact_match"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_mean_score_is_for_text_tasks(tiny_config, quick_fit, tmp_path):
    with pytest.raises(DataError, match=r"--best-by mean_score needs a data set of text tasks"):
        quick_fit(tiny_config(best_by="mean_score"), tmp_path / "run")


def test_texts_are_continued_by_models_that_can():
    with pytest.raises(ValueError, match=r"does not continue texts: sample_prompt must be None"):
        TrainConfig(
            recipe="r", data=TextTasksData(), model=TextTasksConfig(), objective="text_tasks", sample_prompt="The"
        )
    with pytest.raises(RunError, match=r"a TextTasks continues no texts"):
        make_decoder(TextTasksConfig().build(30))
