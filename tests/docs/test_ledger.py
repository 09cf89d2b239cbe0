"""Numbers of the ledger are those that training saw at the same step."""

import json
import math

import pytest


def logged(entry, row):
    """What training logged of an entry's metric; None where it does not log it, or not of that split."""
    *part, split = entry["split"].split("/")
    config = entry["config"]
    texts = config.get("objective") == "text_tasks" or "TextTasks" in str(config.get("task"))  # their dev is validation
    if split != "validation" and not (split == "dev" and texts):
        return None
    if entry.get("num_beams", 1) > 1 and entry["metric"] not in ("loss", "perplexity"):
        return None  # training translates greedily
    if entry["metric"] == "perplexity":
        return math.exp(row["loss"])
    return row.get("/".join([*part, entry["metric"]]))


def test_entries_are_what_the_runs_metrics_say_at_their_step(root):
    compared = set()
    for file in sorted((root / "docs" / "results").glob("*.metrics.jsonl")):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        validation = {row["step"]: row for row in rows if row["split"] == "validation"}
        name = file.name.removesuffix(".metrics.jsonl")
        entries = json.loads(file.with_name(f"{name}.json").read_text(encoding="utf-8"))
        for entry in entries:
            if entry["commit"] != entries[-1]["commit"]:
                continue  # of an earlier run; the metrics are the newest one's
            value = logged(entry, validation[entry["steps"]])
            if value is not None:
                assert entry["value"] == pytest.approx(value, rel=1e-4), (name, entry["split"], entry["metric"])
                compared.add((name, entry["metric"]))
    names = {name for name, _ in compared}
    assert names == {file.name.removesuffix(".metrics.jsonl") for file in (root / "docs" / "results").glob("*.jsonl")}
    assert {metric for _, metric in compared} >= {"loss", "accuracy", "pearson", "exact_match", "perplexity"}
