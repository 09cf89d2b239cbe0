"""The numbers of docs/classification.md are those of the ledger."""

import json
import re

import pytest


def test_results_are_what_the_ledger_holds(root):
    page = (root / "docs" / "classification.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+)% \| ([\d.]+) \| ([\d.]+) \| (\d+) s \|$", page, re.M)
    assert rows
    for name, accuracy, macro_f1, calibration_error, seconds in rows:
        entries = json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        held = {entry["metric"]: entry for entry in entries if entry["split"] == "validation"}
        assert float(accuracy) == pytest.approx(100 * held["accuracy"]["value"], abs=0.0051)
        assert float(macro_f1) == pytest.approx(held["macro_f1"]["value"], abs=0.00051)
        assert float(calibration_error) == pytest.approx(held["calibration_error"]["value"], abs=0.051)
        assert int(seconds) == pytest.approx(held["accuracy"]["train_seconds"], abs=0.51)
