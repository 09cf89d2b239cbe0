"""The table of docs/language_models.md has the numbers of the ledger."""

import json
import re

import jax
import numpy as np
import pytest
import torch
from rich.console import Console

from configs import lstm_lm_hw4
from train.config import update
from train.loop import fit

METRICS = (("next_word_nll", "prediction"), ("perplexity", "validation"), ("perplexity_with_cache", "validation"))
PATTERN = r"[\w-]*lstm[\w-]*"


def test_there_is_a_row_for_each_ledger_file_of_a_recurrent_model(root, table):
    files = {path.stem for path in (root / "docs" / "results").glob("lstm_lm*.json")}
    assert {name for name, *_ in table("language_models.md", PATTERN)} == files
    assert files


def test_rows_are_what_the_ledger_holds(table, entries):
    for name, *shown, steps, seconds in table("language_models.md", PATTERN):
        held = entries(name)
        for metric, value in zip(METRICS, shown, strict=True):
            if metric not in held:
                assert value == "", (name, metric)
                continue
            entry = held[metric]
            assert float(value) == pytest.approx(entry["value"], abs=0.0051 if metric[0] == "next_word_nll" else 0.051)
            assert int(steps.replace(",", "")) == entry["steps"]
            assert int(seconds.removesuffix(" s").replace(",", "")) == pytest.approx(entry["train_seconds"], abs=0.51)


def test_the_readme_says_the_same(root, entries):
    page = (root / "README.md").read_text(encoding="utf-8")
    shown = r"next word ([\d.]+) nats, perplexity ([\d.]+),(?: with a cache ([\d.]+),)? .*?after (\d+) minutes"
    found = re.findall(rf"`(\w*lstm\w*)` \| works \| {shown}", page)
    assert {name for name, *_ in found} == {"lstm_lm_cpu"}
    for name, *shown, minutes in found:
        held = entries(name)
        for metric, value in zip(METRICS, shown, strict=True):
            if metric not in held:
                assert value == "", (name, metric)
                continue
            assert float(value) == pytest.approx(held[metric]["value"], abs=0.0051 if "nll" in metric[0] else 0.051)
        assert float(minutes) == pytest.approx(held[METRICS[0]]["train_seconds"] / 60, abs=0.51)
    measure = r"([\d.]+)(?: nats)? \(([\d.]+) to ([\d.]+)\)"
    means = rf"means of three seeds: next word {measure}, perplexity {measure}, after (\d+) to (\d+) minutes"
    (values,) = re.findall(rf"`lstm_lm_hw4` \| works \| {means}", page)
    seeds = [entries(f"lstm_lm_hw4{seed}") for seed in ("", "-seed1", "-seed2")]
    for shown, metric, digits in ((values[:3], METRICS[0], 2), (values[3:6], METRICS[1], 1)):
        held = [one[metric]["value"] for one in seeds]
        assert list(map(float, shown)) == [round(x, digits) for x in (np.mean(held), min(held), max(held))]
    minutes = [one[METRICS[0]]["train_seconds"] / 60 for one in seeds]
    assert list(map(int, values[6:])) == [round(min(minutes)), round(max(minutes))]


def test_the_losses_that_the_page_compares_are_the_runs(root):
    page = " ".join((root / "docs" / "language_models.md").read_text(encoding="utf-8").split())
    lines = (root / "docs" / "results" / "lstm_lm_cpu.metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    training = {row["step"]: row["loss"] for row in rows if row["split"] == "train"}
    half, end = (np.mean([training[step] for step in training if abs(step - to) <= 100]) for to in (2_250, 4_400))
    assert f"fell from {half:.2f} to {end:.2f} nats" in page
    found = [round(np.exp(row["loss"])) for row in rows if row["split"] == "validation"]
    assert f"validation perplexity was {', '.join(map(str, found[:-1]))} and {found[-1]} after each fifth" in page


def test_dynamic_evaluation_is_that_of_the_ledger(root, entries):
    page = " ".join((root / "docs" / "language_models.md").read_text(encoding="utf-8").split())
    (dynamic,) = re.search(
        r"With dynamic evaluation, the perplexity of `lstm_lm_hw4-seed1` is ([\d.]+),", page
    ).groups()
    held = entries("lstm_lm_hw4-seed1")
    assert float(dynamic) == pytest.approx(held["dynamic_perplexity", "validation"]["value"], abs=0.051)


@pytest.mark.thorough
def test_the_python_of_the_page_runs_unchanged(root, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("The statement is a line .\nSo it is .\n" * 40, encoding="utf-8")
    config = update(
        lstm_lm_hw4.get_config(),
        **{
            "data.source": "text_file",
            "data.path": str(tmp_path / "text.txt"),
            "data.batch_size": 8,
            "model.embedding_width": 4,
            "model.widths": (4,),
            "total_steps": 1,
            "task.sample_prompt": None,
        },
    )
    with jax.numpy_dtype_promotion("standard"):  # Optax needs it
        fit(config, tmp_path / "run", console=Console(quiet=True))
    page = (root / "docs" / "language_models.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    found: dict = {}
    exec(code.replace('"RUN"', repr(str(tmp_path / "run"))), found)
    written, shapes, _ = capsys.readouterr().out.rsplit("\n", 2)
    assert written.count("\n") + len(written.split()) == 5  # words and line ends
    assert shapes == "(2, 7, 128) 2"
    assert found["logits"].shape == (1, found["run"].processor.size)
    with torch.no_grad():
        expected, _ = found["theirs"](torch.as_tensor(found["x"]))
    np.testing.assert_allclose(found["outputs"], expected, atol=1e-5)
