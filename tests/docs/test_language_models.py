"""The table of docs/language_models.md is the ledger's."""

import json
import re
from pathlib import Path

import pytest

METRICS = (("next_word_nll", "prediction"), ("perplexity", "validation"), ("perplexity_with_cache", "validation"))


def entries(root: Path, name: str) -> dict[tuple[str, str], dict]:
    """The newest entry of each metric and split."""
    held = json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return {(entry["metric"], entry["split"]): entry for entry in held}


def rows(root: Path) -> list[list[str]]:
    page = (root / "docs" / "language_models.md").read_text(encoding="utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\| `\w*lstm\w*` .*$", page, re.M)
    ]


def test_there_is_a_row_for_each_ledger_file_of_a_recurrent_model(root):
    files = {path.stem for path in (root / "docs" / "results").glob("*lstm*.json")}
    assert {name.strip("`") for name, *_ in rows(root)} == files
    assert files


def test_rows_are_what_the_ledger_holds(root):
    for name, *shown, steps, seconds in rows(root):
        held = entries(root, name.strip("`"))
        for metric, value in zip(METRICS, shown, strict=True):
            if metric not in held:
                assert value == "", (name, metric)
                continue
            entry = held[metric]
            assert float(value) == pytest.approx(entry["value"], abs=0.0051 if metric[0] == "next_word_nll" else 0.051)
            assert int(steps.replace(",", "")) == entry["steps"]
            assert int(seconds.removesuffix(" s").replace(",", "")) == pytest.approx(entry["train_seconds"], abs=0.51)


def test_the_readme_says_the_same(root):
    page = (root / "README.md").read_text(encoding="utf-8")
    shown = r"next word ([\d.]+) nats, perplexity ([\d.]+), with a cache ([\d.]+), after (\d+) minutes"
    found = re.findall(rf"`(\w*lstm\w*)` \| works \| {shown}", page)
    assert found
    for name, *shown, minutes in found:
        held = entries(root, name)
        for metric, value in zip(METRICS, shown, strict=True):
            assert float(value) == pytest.approx(held[metric]["value"], abs=0.0051 if "nll" in metric[0] else 0.051)
        assert float(minutes) == pytest.approx(held[METRICS[0]]["train_seconds"] / 60, abs=0.51)
