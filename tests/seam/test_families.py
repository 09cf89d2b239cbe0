"""Two families of this folder train, resume, are scored, reported, loaded and used."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.corpus import DataError
from jaxnlp.nn.compute import Compute
from jaxnlp.runs import load_run
from tests.random_parameters import random_parameters
from tests.run_folders import assert_same_run
from tests.seam import images, tagger
from train.config import update
from train.evaluate import main as evaluate_main
from train.loop import fit
from train.report import write_report

ROOT = Path(__file__).resolve().parents[2]
only_tagger = pytest.mark.parametrize("family", ["tagger"], indirect=True)
only_images = pytest.mark.parametrize("family", ["images"], indirect=True)


def params_of(folder):
    return load_run(folder, checkpoint="latest").params


@pytest.mark.thorough
def test_a_killed_run_continues_to_the_same_bits(finished, killed):
    assert_same_run(killed, finished)


@pytest.mark.sweep(1)
def test_the_family_learns(finished):
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    accuracy = [row["accuracy"] for row in rows if row["split"] == "validation"]
    assert accuracy[-1] >= 0.8


@pytest.mark.sweep(1)
def test_evaluation_prints_the_declared_metrics_and_records_them(finished, tmp_path, capsys):
    assert evaluate_main([str(finished), "--record", str(tmp_path / "ledger.json")]) == 0
    printed = capsys.readouterr().out
    assert "validation accuracy" in printed
    entries = json.loads((tmp_path / "ledger.json").read_text())
    assert {entry["metric"] for entry in entries} >= {"loss", "accuracy"}


@only_tagger
def test_a_file_without_labels_is_predicted(finished, tmp_path, capsys):
    (tmp_path / "sentences.txt").write_text("the red dog sees\na cat\n")
    assert evaluate_main([str(finished), "--file", str(tmp_path / "sentences.txt")]) == 0
    assert capsys.readouterr().out.splitlines() == ["DET ADJ NOUN VERB", "DET NOUN"]


@only_tagger
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a dog\n\na cat\n", ", line 2: no words; remove the line"),
        ("a dog\n" + "the " * 7, ", line 2: 7 words, and data.length is 6; split the sentence"),
        ("a dog\na cat\nthe horse\n", ", line 3: the word 'horse' is not in the vocabulary"),
        ("", " is empty; give a file with text"),
    ],
)
def test_a_file_that_cannot_be_scored_is_refused_with_the_line(text, message, finished, tmp_path, capsys):
    path = tmp_path / "sentences.txt"
    path.write_text(text)
    assert jaxnlp_main(["evaluate", str(finished), "--file", str(path)]) == 2
    assert capsys.readouterr().err == f"error: {path}{message}\n"


@only_tagger
def test_no_words_cannot_be_tagged(finished, capsys):
    assert jaxnlp_main(["tag", str(finished)]) == 2
    assert capsys.readouterr().err == "error: give the words of a sentence\n"


@only_images
def test_an_image_of_another_size_is_refused(finished, tmp_path, capsys):
    path = tmp_path / "image.npy"
    np.save(path, np.zeros((8, 9)))
    assert jaxnlp_main(["classify", str(finished), str(path)]) == 2
    assert capsys.readouterr().err == f"error: {path}: expected 8 x 8 pixels, got the shape (8, 9)\n"


def test_what_only_the_data_can_tell_is_refused_before_the_first_step(tmp_path):
    config = update(images.get_config(), **{"model.patch": 3})
    with pytest.raises(DataError, match=r"model\.patch must divide the side of the images, 8 pixels, got 3"):
        fit(config, tmp_path / "run", console=Console(quiet=True))


def test_every_metric_of_a_batch_is_declared_and_differs_from_its_count(family):
    config = family.get_config()
    corpus = config.data.load(0)
    split = corpus.splits["validation"]
    model, inputs = config.model.build(corpus.processor), config.model.inputs(corpus.processor)
    params = random_parameters(model, *inputs)
    _, (metrics, _) = jax.jit(config.task.objective(model, corpus).loss)(params, split.batches[0], None, ())
    assert metrics.keys() <= config.task.metrics(corpus.processor, split).keys()
    assert all(total != count for total, count in metrics.values())


@pytest.mark.sweep(1)
def test_another_compute_changes_only_rounding(finished, family):
    trained, config = load_run(finished), family.get_config()
    batch = config.data.load(0).splits["validation"].batches[0]
    losses = []
    for compute in (Compute(), Compute(dtype="bfloat16")):
        model = dataclasses.replace(trained.model.config, compute=compute).build(trained.processor)
        losses.append(jax.jit(trained.task.objective(model, None).loss)(trained.params, batch, None, ())[0])
    assert losses[0].dtype == losses[1].dtype == np.float32
    assert losses[0] != losses[1]
    np.testing.assert_allclose(losses[1], losses[0], atol=0.02)


def test_the_report_draws_the_sections_of_the_family(finished, family):
    page = write_report(finished).read_text()
    names = {tagger: ["Tags", "Marked"], images: ["Least certain", "Its pixels", "Margins"]}[family]
    assert all(name in page for name in names)
    assert "<script>" not in page


@pytest.mark.sweep(1)
def test_its_verb_runs_from_the_command_line(finished, family, tmp_path, capsys):
    image = np.zeros((8, 8), np.float32)
    image[:, 3] = 1.0
    np.save(tmp_path / "image.npy", image)
    arguments = {
        tagger: ["tag", str(finished), "the", "dog"],
        images: ["classify", str(finished), str(tmp_path / "image.npy")],
    }
    expected = {tagger: "DET NOUN\n", images: "vertical\n"}
    assert jaxnlp_main(arguments[family]) == 0
    assert capsys.readouterr().out == expected[family]


def test_a_verb_that_the_task_does_not_have_is_refused_with_those_it_has(finished, family, capsys):
    assert jaxnlp_main(["generate", str(finished)]) == 2
    assert {tagger: "tag", images: "classify"}[family] in capsys.readouterr().err


@pytest.mark.thorough
@only_tagger
@pytest.mark.parametrize("trusted", ["", "tests"])
@pytest.mark.parametrize("program", ["tag", "evaluate"])
def test_a_command_reads_a_run_of_another_package_where_the_environment_trusts_it(program, trusted, finished):
    texts = {"tag": ["the", "dog"], "evaluate": []}[program]
    environment = os.environ | {"JAXNLP_TRUST": trusted, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "jaxnlp", program, str(finished), *texts]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if trusted:
        assert done.returncode == 0
        assert re.fullmatch(r"loading JAX\n(scoring .* on validation; it compiles first\n)?", done.stderr)
        assert {"tag": "DET NOUN\n", "evaluate": "validation accuracy "}[program] in done.stdout
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert "error: " in done.stderr
        assert "set JAXNLP_TRUST=tests\n" in done.stderr


@pytest.mark.thorough
def test_another_run_begins_with_its_parameters(finished, family, tmp_path):
    config = update(family.get_config(init_from=str(finished), total_steps=1), **{"optimizer.learning_rate": 1e-9})
    state = fit(config, tmp_path / "run", console=Console(quiet=True)).state
    for a, b in zip(jax.tree.leaves(params_of(finished)), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
