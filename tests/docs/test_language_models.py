"""The table of docs/language_models.md is the ledger's."""

import re

import pytest

METRICS = (("next_word_nll", "prediction"), ("perplexity", "validation"), ("perplexity_with_cache", "validation"))
PATTERN = r"\w*lstm\w*"


def test_there_is_a_row_for_each_ledger_file_of_a_recurrent_model(root, table):
    files = {path.stem for path in (root / "docs" / "results").glob("*lstm*.json")}
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
    shown = r"next word ([\d.]+) nats, perplexity ([\d.]+), with a cache ([\d.]+), after (\d+) minutes"
    found = re.findall(rf"`(\w*lstm\w*)` \| works \| {shown}", page)
    assert found
    for name, *shown, minutes in found:
        held = entries(name)
        for metric, value in zip(METRICS, shown, strict=True):
            assert float(value) == pytest.approx(held[metric]["value"], abs=0.0051 if "nll" in metric[0] else 0.051)
        assert float(minutes) == pytest.approx(held[METRICS[0]]["train_seconds"] / 60, abs=0.51)
