"""Runs of classifiers of texts from training to predictions: of CS224N's project, and of tables of one's own."""

import csv
import json

import numpy as np
import pytest
from scipy import stats

from configs import bert_classify, bert_sts
from jaxnlp.__main__ import main
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.runs import load_run
from jaxnlp.tasks.classification.evaluators import Validation
from tests.text_task_files import train, write_tables, write_weights
from train.config import update
from train.evaluate import Options, score
from train.run.folder import METRICS_FILE

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    return str(write_weights(tmp_path_factory.mktemp("weights") / "tiny-bert"))


@pytest.fixture(autouse=True)
def compiled_programs_in_the_folder_of_the_tests(monkeypatch, compiled_programs):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))


def quick(config, weights, steps, **fields):
    rates = ("model.encoder.dropout_rate", "model.encoder.attention_dropout_rate", "model.token_dropout_rate")
    small = dict.fromkeys(rates, 0.0) | {"init_from": weights, "data.max_length": 16, "optimizer.schedule.warmup": 5}
    small |= dict.fromkeys(("total_steps", "evaluate_every_steps", "checkpoint_every_steps"), steps)
    return update(config, **small | fields)


@pytest.fixture(scope="session")
def sts_run(tmp_path_factory, weights):
    """Similarities by the cosine of both vectors, and the folder of their tables."""
    folder = tmp_path_factory.mktemp("sts")
    data = {"data.path": str(write_tables(folder)), "data.batch_size": 10, "data.evaluation_batch_size": 8}
    train(quick(bert_sts.get_config(), weights, 60, **data, **{"optimizer.learning_rate": 1e-2}), folder / "run")
    return folder / "run", folder


def test_similarities_are_learned_by_the_cosine_and_predicted_on_their_scale(sts_run, tmp_path, capsys):
    run, tables = sts_run
    rows = [json.loads(line) for line in (run / METRICS_FILE).read_text().splitlines()]
    (logged,) = [row for row in rows if row["split"] == "validation"]
    assert logged["pearson"] > 0.7
    assert load_run(run).params.keys() == {"encoder"}
    found = score(run, Validation(), Options()).evaluation
    for name in ("loss", "pearson", "mean_absolute_error"):
        np.testing.assert_allclose(found.metrics[name].value, logged[name], rtol=1e-3)
    lines = [line.split(",") for line in found.predictions["predictions.csv"].splitlines()]
    assert lines[0] == ["id", "text", "second text", "label", "predicted"]
    predicted, labels = (np.array([float(line[place]) for line in lines[1:]]) for place in (4, 3))
    np.testing.assert_allclose(stats.pearsonr(predicted, labels).statistic, logged["pearson"], rtol=1e-3)
    given = [line.split("\t") for line in (tables / "sts-dev.csv").read_text().splitlines()[1:]]
    assert [line[:3] for line in lines[1:]] == [row[1:4] for row in given]
    np.testing.assert_allclose(labels, [float(row[-1]) for row in given])
    assert 0.0 <= predicted.min() < 2.5 < predicted.max() <= 5.0

    assert jaxnlp_main(["evaluate", str(run), "--split", "test", "--predictions", str(tmp_path / "out.csv")]) == 0
    assert "pearson" not in capsys.readouterr().out  # no scores without labels
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 6
    assert main(["predict", str(run), "red sea", "red sea", "--pair", "red sea", "dog plot"]) == 0
    same, other = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert same[1:] == ["red sea", "red sea"]
    assert float(same[0]) == pytest.approx(5.0, abs=1e-3)
    assert float(other[0]) < 4.0


ANIMALS, COLOURS, NAMES = ("dog", "cat"), ("red", "blue"), ("animals, only", "colours", "neither one")


def write_table(file, count, seed, *, pairs):
    """CSV of texts whose words decide the class: quoted names, a class with a comma."""
    draw = np.random.default_rng(seed)
    lines = ["first,second,kind" if pairs else "first,kind"]
    for _ in range(count):
        label = draw.integers(3)
        words = draw.choice((ANIMALS, COLOURS, ("sea", "sand"))[label], 4)
        texts = [" ".join(words[:2]), " ".join(words[2:])] if pairs else [" ".join(words)]
        lines.append(",".join([*texts, f'"{NAMES[label]}"']))
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.mark.parametrize("pairs", [None, "together", "apart"])
def test_a_table_with_any_names_of_classes_is_learned_scored_and_predicted_by_name(pairs, weights, tmp_path, capsys):
    fields = {
        "data.path": write_table(tmp_path / "train.csv", 60, 0, pairs=pairs),
        "data.validation_path": write_table(tmp_path / "validation.csv", 20, 1, pairs=pairs),
        "data.text": "first",
        "data.label": "kind",
        "data.batch_size": 20,
        "optimizer.learning_rate": 3e-2,
        "model.head_dropout_rate": 0.0,
        "best_metric": "accuracy",
    }
    if pairs:
        fields |= {
            "data.pair": "second",
            "data.pairs": pairs,
            "model.pair_layer": "separate" if pairs == "apart" else "none",
        }
    train(quick(bert_classify.get_config(), weights, 40, **fields), tmp_path / "run")
    assert load_run(tmp_path / "run").processor.targets.names == NAMES
    capsys.readouterr()
    assert jaxnlp_main(["evaluate", str(tmp_path / "run"), "--predictions", str(tmp_path / "out.csv")]) == 0
    assert "validation accuracy 1.0000  (20 " in capsys.readouterr().out
    predicted = [row["predicted"] for row in csv.DictReader((tmp_path / "out.csv").read_text().splitlines())]
    expected = [row["kind"] for row in csv.DictReader((tmp_path / "validation.csv").read_text().splitlines())]
    assert predicted == expected
    texts = ["dog cat", "blue red", "sand sea"]
    arguments = ["predict", str(tmp_path / "run"), *texts, *(["--pair", "cat", "red", "sea"] if pairs else [])]
    assert main(arguments) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)
