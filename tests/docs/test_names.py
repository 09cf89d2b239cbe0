"""The table of docs/names.md is the ledger's."""

import json
import re
from pathlib import Path

import pytest


def entries(root: Path, name: str) -> dict[tuple[str, str], dict]:
    """The newest entry of each metric and split."""
    held = json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return {(entry["metric"], entry["split"]): entry for entry in held}


def rows(root: Path) -> list[tuple[str, ...]]:
    page = (root / "docs" / "names.md").read_text(encoding="utf-8")
    return re.findall(r"\| `(names_[\w-]+)` \| ([\d.]+)% \| ([\d.]+)% \| ([\d,]+) \| (\d+) s \|", page)


def test_there_is_a_row_for_each_ledger_file_of_the_names(root):
    files = {path.stem for path in (root / "docs" / "results").glob("names_*.json")}
    assert {name for name, *_ in rows(root)} == files
    assert len(files) >= 2


def test_rows_are_what_the_ledger_holds(root):
    for name, dev, validation, steps, seconds in rows(root):
        held = entries(root, name)
        for split, shown in (("dev", dev), ("validation", validation)):
            entry = held["exact_match", split]
            assert float(shown) == pytest.approx(100 * entry["value"], abs=0.051), (name, split)
            assert int(steps.replace(",", "")) == entry["steps"]
            assert float(seconds) == pytest.approx(entry["train_seconds"], abs=0.51)
        assert held["exact_match", "dev"]["examples"] == 500


def test_the_readme_says_the_same(root):
    page = (root / "README.md").read_text(encoding="utf-8")
    shown, minutes = re.search(r"([\d.]+)% of the dev questions right after (\d+) minutes", page).groups()
    entry = entries(root, "names_finetune")["exact_match", "dev"]
    assert float(shown) == pytest.approx(100 * entry["value"], abs=0.051)
    seconds = entry["train_seconds"] + entry["begun_with"]["train_seconds"]
    assert float(minutes) == pytest.approx(seconds / 60, abs=0.51)
    named = {"perceiver": "Perceiver", "perceiver-along": "with latents along the text", "synthesizer": "Synthesizer"}
    for variant, name in named.items():
        (share,) = re.findall(rf"{name} ([\d.]+)%", page)
        held = entries(root, f"names_finetune-{variant}")["exact_match", "dev"]
        assert float(share) == pytest.approx(100 * held["value"], abs=0.051), variant
