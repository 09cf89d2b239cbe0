"""The tables of docs/translation.md have the numbers of the ledger, and its script measures what the page says."""

import csv
import importlib.util
import json
import re

import numpy as np
import pytest


@pytest.fixture
def page(root):
    return (root / "docs" / "translation.md").read_text(encoding="utf-8")


def by_search(root, name, split="validation"):
    """The newest values of a recipe by metric, number of beams and length penalty."""
    held = json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return {
        (entry["metric"], entry["num_beams"], entry["length_penalty"]): entry
        for entry in held
        if entry["split"] == split and "num_beams" in entry
    }


def test_beams_are_what_the_ledger_holds(root, page):
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert len(rows) == 8
    for name, beams, penalty, bleu, chrf in rows:
        held = by_search(root, name)
        for metric, shown in (("bleu", bleu), ("chrf", chrf)):
            entry = held[metric, int(beams), float(penalty)]
            assert float(shown) == pytest.approx(entry["value"], abs=0.0051)


def test_results_are_what_the_ledger_holds(root, page):
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d,]+) \| ([\d,]+) s \|$", page, re.M)
    assert rows
    for name, split, bleu, chrf, steps, seconds in rows:
        held = by_search(root, name, split)
        for metric, shown in (("bleu", bleu), ("chrf", chrf)):
            entry = held[metric, 5, 0.6]
            assert float(shown) == pytest.approx(entry["value"], abs=0.0051)
            assert int(steps.replace(",", "")) == entry["steps"]
            assert int(seconds.replace(",", "")) == pytest.approx(entry["train_seconds"], abs=0.51)


def test_seeds_are_what_the_ledger_holds(root, page):
    rows = re.findall(r"^\| `(\w+)` \| (\d) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert len(rows) >= 5
    for name, seed, *values in rows:
        file = name if seed == "0" else f"{name}-seed{seed}"
        for split, shown in zip(("validation", "test"), values, strict=True):
            entry = by_search(root, file, split)["bleu", 5, 0.6]
            assert float(shown) == pytest.approx(entry["value"], abs=0.0051)
            assert entry["seed"] == int(seed)
    said = re.findall(
        r"`(\w+)` (?:has )?a mean of (\d+\.\d+)(?: on the test split)?, with a\s+standard deviation of (\d\.\d+)", page
    )
    assert {name for name, *_ in said} == {name for name, *_ in rows}
    on_validation = re.findall(
        r"`(\w+)` has a mean of ([\d.]+) on its validation pairs, with a standard deviation of ([\d.]+):"
        r"\s([\d., \n]+)\.\n",
        page,
    )
    assert {name for name, *_ in on_validation} == {"zh_en_lstm", "chr_en_lstm"}
    for name, mean, deviation, each in on_validation:
        held = [by_search(root, f"{name}{seed}")["bleu", 5, 0.6]["value"] for seed in ("", "-seed1", "-seed2")]
        assert [float(one) for one in each.split(",")] == pytest.approx(held, abs=0.0051)
        assert [float(mean), float(deviation)] == pytest.approx([np.mean(held), np.std(held, ddof=1)], abs=0.0051)
    for name, mean, deviation in said:
        tests = [float(row[3]) for row in rows if row[0] == name]
        assert len(tests) == 3
        assert float(mean) == pytest.approx(np.mean(tests), abs=0.011)
        assert float(deviation) == pytest.approx(np.std(tests, ddof=1), abs=0.011)


def test_positions_are_what_the_ledger_holds(root, page):
    section = page.split("Rotary positions helped most.", 1)[1]
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| ([\d.]*) ?\| ([\d.]+) \|$", section, re.M)
    assert [name for name, *_ in rows] == [
        *("multi30k_transformer", "multi30k_transformer-sinusoidal", "multi30k_transformer-r-drop"),
        *("chr_en_transformer", "chr_en_transformer-sinusoidal"),
    ]
    for name, validation, test, greedy in rows:
        assert float(validation) == pytest.approx(by_search(root, name)["bleu", 5, 0.6]["value"], abs=0.0051)
        if test:
            assert float(test) == pytest.approx(by_search(root, name, "test")["bleu", 5, 0.6]["value"], abs=0.0051)
        lines = (root / "docs" / "results" / f"{name}.metrics.jsonl").read_text(encoding="utf-8").splitlines()
        best = max(row["bleu"] for row in map(json.loads, lines) if row["split"] == "validation")
        assert float(greedy) == pytest.approx(best, abs=0.0051)
    said = re.findall(r"`(multi30k\S+)` has (?:means of )?(\d+\.\d+)(?: on validation)?\sand\s(\d+\.\d+)", section)
    assert [name for name, *_ in said] == ["multi30k_transformer-sinusoidal", "multi30k_transformer"]
    for name, *means in said:
        for split, mean in zip(("validation", "test"), means, strict=True):
            files = [f"{name}{seed}" for seed in ("", "-seed1", "-seed2")]
            held = [by_search(root, file, split)["bleu", 5, 0.6]["value"] for file in files]
            assert float(mean) == pytest.approx(np.mean(held), abs=0.0051)


def test_birth_places_are_what_the_ledger_holds(root, page):
    rows = re.findall(r"^\| `(names_[\w-]+)`.* \| ([\d.]+)% \| (\d+) \| ([\d,]+) s \|$", page, re.M)
    held = {path.stem for path in (root / "docs" / "results").glob("names_text_to_text*.json")}
    assert {name for name, *_ in rows} == held
    for name, right, steps, seconds in rows:
        entries = json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        (entry,) = [one for one in entries if one["metric"] == "exact_match" and one["examples"] == 500]
        assert float(right) == pytest.approx(100 * entry["value"], abs=0.051)
        assert int(steps) == entry["steps"]
        assert int(seconds.replace(",", "")) == pytest.approx(entry["train_seconds"], abs=0.51)
    before = json.loads((root / "docs" / "results" / "names_text_to_text-span-corruption.json").read_text())[-1]
    assert f"after {before['begun_with']['train_seconds']:.0f} s of span corruption" in page


def test_pretraining_on_captions_helps_only_early(root, page):
    (early, without, late) = map(
        float,
        re.search(
            r"a BLEU of\s+([\d.]+) on validation after 500 steps, not ([\d.]+), but ([\d.]+) after 4,500 steps, as",
            page,
        ).groups(),
    )
    found = {}
    for name in ("multi30k_transformer-sinusoidal", "multi30k_transformer-pretrained"):
        lines = (root / "docs" / "results" / f"{name}.metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found[name] = {row["step"]: row["bleu"] for row in map(json.loads, lines) if row["split"] == "validation"}
    plain, pretrained = found.values()
    assert (early, without) == pytest.approx((pretrained[500], plain[500]), abs=0.051)
    assert (late, late) == pytest.approx((pretrained[4_500], plain[4_500]), abs=0.051)


def test_ablations_are_what_the_sweep_measured(root, page):
    with (root / "docs" / "results" / "multi30k_ablation.csv").open(encoding="utf-8") as file:
        runs = {row["run"].replace("=", " "): row for row in csv.DictReader(file) if row["status"] == "finished"}
    section = page.split("## Ablations", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) \| ([-+\d.]*) ?\| ([\d.]+) \| (\d+) s \|$", section, re.M)
    unchanged = runs["unchanged"]
    assert {name.strip("`") for name, *_ in rows[1:]} | {"unchanged"} == runs.keys()
    for name, bleu, difference, loss, seconds in rows:
        run = runs.get(name.strip("`"), unchanged)
        assert float(bleu) == pytest.approx(float(run["best_bleu"]), abs=0.051)
        assert float(loss) == pytest.approx(float(run["best_loss"]), abs=0.00051)
        assert int(seconds) == pytest.approx(float(run["seconds"]), abs=0.51)
        if run is not unchanged:
            assert float(difference) == pytest.approx(
                float(run["best_bleu"]) - float(unchanged["best_bleu"]), abs=0.051
            )


@pytest.fixture
def script(root):
    spec = importlib.util.spec_from_file_location("experiments", root / "docs" / "translation_experiments.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_a_row_of_norms_is_what_the_script_measures(script, page):
    rows = re.findall(r"^\| (Glorot|0\.02) \| (post|pre) \| (\d) \| (.+) \| [\d.]+ \|$", page, re.M)
    assert len(rows) == 8
    (shown,) = [values for start, norm, depth, values in rows if (start, norm, depth) == ("Glorot", "post", "2")]
    corpus = script.get_config().data.load(0)
    size = corpus.processor.target.size
    found = script.layer_norms("post", 2, next(iter(corpus.train)), size, published=True)
    measured = [found[side][place] for side in ("encoder", "decoder") for place in (0, -1)]
    np.testing.assert_allclose([float(value) for value in shown.split(" | ")], measured, rtol=0.05)


@pytest.mark.thorough
def test_the_script_measures_the_gradient_of_each_block(script, monkeypatch):
    monkeypatch.setattr(script, "SEEDS", 1)
    generator = np.random.default_rng(0)
    batch = {name: generator.integers(4, 40, (4, 8)) for name in ("source", "inputs", "targets")}
    batch |= {name: np.ones((4, 8), bool) for name in ("source_mask", "loss_mask")}
    with_norm_after = script.layer_norms("post", 6, batch, 40, published=True)["decoder"]
    assert with_norm_after.shape == (6,)
    assert with_norm_after[-1] > 2 * with_norm_after[0]
