"""The numbers of docs/classification.md are those of the ledger."""

import csv
import json
import re

import numpy as np
import pytest


@pytest.fixture
def page(root):
    return (root / "docs" / "classification.md").read_text(encoding="utf-8")


@pytest.fixture
def held(root):
    """A function of a ledger's name: its newest entries of the validation split, by metric."""

    def newest(name):
        entries = json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        return {entry["metric"]: entry for entry in entries if entry["split"] == "validation"}

    return newest


def test_results_are_what_the_ledger_holds(page, held):
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+)% \| ([\d.]+) \| ([\d.]+) \| (\d+) s \|$", page, re.M)
    assert rows
    for name, accuracy, macro_f1, calibration_error, seconds in rows:
        entries = held(name)
        assert float(accuracy) == pytest.approx(100 * entries["accuracy"]["value"], abs=0.0051)
        assert float(macro_f1) == pytest.approx(entries["macro_f1"]["value"], abs=0.00051)
        assert float(calibration_error) == pytest.approx(entries["calibration_error"]["value"], abs=0.051)
        assert int(seconds) == pytest.approx(entries["accuracy"]["train_seconds"], abs=0.51)


def test_means_are_those_of_the_seeds_in_the_ledger(table, assert_means):
    rows = [row for row in table("classification.md", r"[\w-]+") if len(row) == 6]
    assert len(rows) >= 5
    assert_means(rows)


def test_cross_validation_is_what_the_sweep_measured(root, page):
    with (root / "docs" / "results" / "text_cnn_mr.csv").open(encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    assert sorted(int(run["data.fold"]) for run in runs) == list(range(10))
    values = [100 * float(run["best_accuracy"]) for run in runs]
    mean, deviation = re.search(
        r"ten folds: a mean accuracy of ([\d.]+)%, with a standard deviation of ([\d.]+)", page
    ).groups()
    assert float(mean) == pytest.approx(np.mean(values), abs=0.051)
    assert float(deviation) == pytest.approx(np.std(values, ddof=1), abs=0.051)


def test_an_ensemble_is_better_than_its_runs(page, held):
    text = " ".join(page.split())
    forward = r"`text_rnn-forward-sst2` have ([\d.]+)% of dev as a mean, and their ensemble has ([\d.]+)%"
    both = r"`text_rnn-sst2` have ([\d.]+)% as a mean, and their ensemble has ([\d.]+)%"
    said = {"text_rnn-forward-sst2": re.search(forward, text).groups(), "text_rnn-sst2": re.search(both, text).groups()}
    for (name, (mean, together)), members in zip(said.items(), (3, 6), strict=True):
        seeds = [held(f"{name}{seed}") for seed in ("", *(f"-seed{seed}" for seed in range(1, members)))]
        assert float(mean) == pytest.approx(100 * np.mean([one["accuracy"]["value"] for one in seeds]), abs=0.051)
        assert float(together) == pytest.approx(100 * seeds[0]["ensemble_accuracy"]["value"], abs=0.051)
        assert float(together) > float(mean)
        assert len(seeds[0]["ensemble_accuracy"]["members"]) == members


def test_an_earlier_version_is_not_clearly_better(page, root):
    earlier, now = list[float](), list[float]()
    for file in ("", *(f"-seed{seed}" for seed in range(1, 6))):
        entries = json.loads((root / "docs" / "results" / f"text_rnn-sst2{file}.json").read_text(encoding="utf-8"))
        values = [entry["value"] for entry in entries if entry["metric"] == "accuracy"]
        earlier.append(values[0])
        now.append(values[-1])
    said = r"Its six runs of the recipe have ([\d.]+)% as a mean, a difference of ([\d.]+) standard errors"
    mean, errors = map(float, re.search(said, " ".join(page.split())).groups())
    assert mean == pytest.approx(100 * np.mean(earlier), abs=0.051)
    error = np.sqrt((np.var(earlier, ddof=1) + np.var(now, ddof=1)) / len(now))
    assert errors == pytest.approx((np.mean(earlier) - np.mean(now)) / error, abs=0.051)
    assert errors < 2


def test_what_collapses_and_what_cures_it_is_what_the_ledger_holds(page, held):
    rows = re.findall(r"^\| `(afqmc_encoder[\w-]*)` \| [^|]+ \| ([\d.]+)% \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert len(rows) == 8
    for name, accuracy, macro_f1, area in rows:
        entries = held(name)
        assert float(accuracy) == pytest.approx(100 * entries["accuracy"]["value"], abs=0.051)
        assert float(macro_f1) == pytest.approx(entries["macro_f1"]["value"], abs=0.00051)
        assert float(area) == pytest.approx(entries["roc_auc"]["value"], abs=0.00051)
    names = [f"afqmc_encoder-undersampled{seed}" for seed in ("", "-seed1", "-seed2")]
    for metric, what in {"macro_f1": "a macro-F1 of", "roc_auc": "an area of"}.items():
        together = held(names[0])[f"ensemble_{metric}"]
        assert len(together["members"]) == 4
        assert f"{what} {together['value']:.3f}" in " ".join(page.split())
        assert f"{np.mean([held(name)[metric]['value'] for name in names]):.3f}" in page
    threshold = held("afqmc_encoder-steady")["threshold_macro_f1"]["value"]
    assert f"macro-F1 of {threshold:.3f}" in page


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("text_cnn_overfitting", "Against overfitting"),
        ("text_cnn_trec", "Kinds of questions"),
        ("text_rnn_trec", "Kinds of questions by a recurrent network"),
        ("text_cnn_sst5", "Five degrees of sentiment"),
    ],
)
def test_changes_of_one_field_have_the_numbers_that_their_sweep_measured(root, page, name, title):
    with (root / "docs" / "results" / f"{name}.csv").open(encoding="utf-8") as file:
        runs = {re.sub("=|_(?=[0-9])", " ", run["run"]): run for run in csv.DictReader(file)}
    section = page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([\d.]+)% \| ([\d.]+) \| ([\d.]+) \|$", section, re.M)
    assert {name for name, *_ in rows} == runs.keys()
    for name, accuracy, loss, calibration_error in rows:
        assert float(accuracy) == pytest.approx(100 * float(runs[name]["best_accuracy"]), abs=0.051)
        assert float(loss) == pytest.approx(float(runs[name]["best_loss"]), abs=0.00051)
        assert float(calibration_error) == pytest.approx(float(runs[name]["best_calibration_error"]), abs=0.051)


def test_depths_are_what_the_sweep_measured(root, page):
    with (root / "docs" / "results" / "afqmc_depth.csv").open(encoding="utf-8") as file:
        runs = {(run["model.encoder.num_layers"], run["model.encoder.pre_norm"]): run for run in csv.DictReader(file)}
    section = page.split("### Depth", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d) \| (.*) \|$", section, re.M)
    assert {(layers, norm) for layers, _ in rows for norm in ("True", "False")} == runs.keys()
    for layers, cells in rows:
        shown = [float(cell.removesuffix("%")) for cell in cells.split(" | ")]
        for norm, (accuracy, macro_f1, area) in (("True", shown[:3]), ("False", shown[3:])):
            run = runs[layers, norm]
            assert accuracy == pytest.approx(100 * float(run["best_accuracy"]), abs=0.051)
            assert macro_f1 == pytest.approx(float(run["best_macro_f1"]), abs=0.00051)
            assert area == pytest.approx(float(run["best_roc_auc"]), abs=0.00051)
    areas = [float(run["best_roc_auc"]) for run in runs.values()]
    lowest, highest = re.search(r"between ([\d.]+) and ([\d.]+) for all twelve", section).groups()
    assert [float(lowest), float(highest)] == pytest.approx([min(areas), max(areas)], abs=0.00051)
