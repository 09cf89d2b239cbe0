"""The table of docs/names.md is the ledger's."""

import re

import numpy as np
import pytest

PATTERN = r"names_[\w-]+"
SEEDS = ("names_finetune", "names_finetune-seed1", "names_finetune-seed2")


def test_there_is_a_row_for_each_ledger_file_of_the_names(root, table):
    files = {path.stem for path in (root / "docs" / "results").glob("names_*.json")}
    files = {name for name in files if "_text" not in name and "span" not in name}  # see docs/translation.md
    assert {name for name, *_ in table("names.md", PATTERN)} == files
    assert len(files) >= 2


def test_rows_are_what_the_ledger_holds(table, entries):
    for name, dev, validation, steps, seconds in table("names.md", PATTERN):
        held = entries(name)
        for split, shown in (("dev", dev), ("validation", validation)):
            entry = held["exact_match", split]
            assert float(shown.removesuffix("%")) == pytest.approx(100 * entry["value"], abs=0.051), (name, split)
            assert int(steps.replace(",", "")) == entry["steps"]
            assert float(seconds.removesuffix(" s")) == pytest.approx(entry["train_seconds"], abs=0.51)
        assert held["exact_match", "dev"]["examples"] == 500


def seeds_of(root, name):
    """The ledger entries of a run's further seeds."""
    return sorted(path.stem for path in (root / "docs" / "results").glob(f"{name}-seed?.json"))


def test_the_readme_says_the_same(root, entries):
    page = (root / "README.md").read_text(encoding="utf-8")
    mean, lowest, highest, minutes = re.search(
        r"([\d.]+)% of the dev questions right, mean of three seeds \(([\d.]+) to ([\d.]+)\), after (\d+) minutes", page
    ).groups()
    seeds = [entries(name)["exact_match", "dev"] for name in SEEDS]
    assert [entry["seed"] for entry in seeds] == [0, 1, 2]
    values = [100 * entry["value"] for entry in seeds]
    assert [float(mean), float(lowest), float(highest)] == pytest.approx(
        [np.mean(values), min(values), max(values)], abs=0.051
    )
    page_of_names = " ".join((root / "docs" / "names.md").read_text(encoding="utf-8").split())
    mean, deviation = re.search(
        r"([\d.]+)% of dev in the mean, with a standard deviation of (\d+\.\d+)", page_of_names
    ).groups()
    assert [float(mean), float(deviation)] == pytest.approx([np.mean(values), np.std(values, ddof=1)], abs=0.051)
    entry = seeds[0]
    seconds = entry["train_seconds"] + entry["begun_with"]["train_seconds"]
    assert float(minutes) == pytest.approx(seconds / 60, abs=0.51)
    shares = {
        "perceiver": r"Perceiver ([\d.]+)%",
        "perceiver-along": r"([\d.]+)% with `--model\.latent-placement along`",
        "synthesizer": r"Synthesizer ([\d.]+)%",
    }
    for variant, pattern in shares.items():
        (share,) = re.findall(pattern, page)
        name = f"names_finetune-{variant}"
        values = [100 * entries(seed)["exact_match", "dev"]["value"] for seed in (name, *seeds_of(root, name))]
        assert float(share) == pytest.approx(np.mean(values), abs=0.051), variant
        said = re.findall(
            rf"`{name}` has ([\d.]+)% of dev in the mean, with a standard deviation of (\d+\.\d+)", page_of_names
        )
        assert len(said) == (len(values) > 1)
        for mean, deviation in said:
            assert [float(mean), float(deviation)] == pytest.approx(
                [np.mean(values), np.std(values, ddof=1)], abs=0.051
            )
