"""The tables of docs/bert.md are the ledger's."""

import re

import pytest

TASKS = ("sst/accuracy", "cfimdb/accuracy", "quora/accuracy", "sts/pearson")
COLUMNS = (*TASKS, "mean_score")
EXAMPLES = {"sst": 1101, "cfimdb": 245, "quora": 4212, "sts": 863}


def value_of(shown):
    """74.3% or 0.743, and half a unit of its last digit."""
    digits = len(shown.removesuffix("%").partition(".")[2])
    value, unit = float(shown.removesuffix("%")), 10.0**-digits
    return (value / 100, 0.51 * unit / 100) if shown.endswith("%") else (value, 0.51 * unit)


def assert_shows(shown, entry):
    value, tolerance = value_of(shown)
    assert value == pytest.approx(entry["value"], abs=tolerance), entry["metric"]


def seconds_of(shown):
    return int(shown.removesuffix(" s").replace(",", ""))


def test_there_is_a_row_for_each_ledger_file(root, table):
    files = {path.stem for path in (root / "docs" / "results").glob("bert_*.json")}
    names = [name for name, *_ in table("bert.md", r"bert_[\w-]+")]
    assert sorted(names) == sorted(files)
    assert len(files) >= 2


def test_rows_of_tasks_are_what_the_ledger_holds(table, entries):
    for name, *scores, steps, seconds in table("bert.md", r"bert_(?!pretrain)[\w-]+"):
        held = entries(name)
        tasks = [metric for metric in TASKS if (metric, "dev") in held]
        assert tasks
        for metric, shown in zip(COLUMNS, scores, strict=True):
            # The mean over one task is the task's own score.
            if metric not in tasks and (metric != "mean_score" or len(tasks) == 1):
                assert shown == "", (name, metric)
                continue
            entry = held[metric, "dev"]
            assert_shows(shown, entry)
            assert int(steps.replace(",", "")) == entry["steps"]
            assert seconds_of(seconds) == pytest.approx(entry["train_seconds"], abs=0.51)
            if metric in tasks:
                assert entry["examples"] == EXAMPLES[metric.partition("/")[0]]


def test_the_readme_says_the_same(root, entries):
    page = (root / "README.md").read_text(encoding="utf-8")
    for metric, recipe, shown in (
        ("sst/accuracy", "bert_sst", r"SST ([\d.]+%)"),
        ("cfimdb/accuracy", "bert_cfimdb", r"CFIMDB ([\d.]+%)"),
        ("quora/accuracy", "bert_quora", r"Quora ([\d.]+%)"),
        ("sts/pearson", "bert_sts", r"STS ([\d.]+)"),
    ):
        (found,) = re.findall(shown, page)
        assert_shows(found, entries(recipe)[metric, "dev"])
