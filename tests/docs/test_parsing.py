"""docs/parsing.md: its traces are those of the oracle, and its results those of the ledger."""

import json
import re

import pytest

from benchmarks.parse import SENTENCES
from data.pipelines.transition_oracle import oracle
from jaxnlp.text.transitions import KINDS, Configuration

WORDS = ["ROOT", "I", "parsed", "this", "sentence", "correctly"]
HEADS = [2, 0, 4, 2, 2]


@pytest.fixture
def page(root):
    return (root / "docs" / "parsing.md").read_text(encoding="utf-8")


def prose(page):
    """The page with single blanks between words, so that its line breaks do not matter."""
    return " ".join(page.split())


def part(page, name):
    return re.search(rf"<!-- begin {name} -->\n(.*?)\n<!-- end {name} -->", page, re.DOTALL)[1]


def cells(row):
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("system", ["arc_standard", "arc_eager"])
def test_the_traces_are_those_of_the_oracle(page, system):
    rows = [cells(row) for row in part(page, system).splitlines()[2:]]
    configuration, expected = Configuration(system, len(HEADS)), []
    for step, kind in enumerate([None, *oracle(HEADS, system)]):
        dependent = -1 if kind is None else configuration.apply(kind)
        arc = "" if dependent < 1 else f"{WORDS[configuration.heads[dependent]]} → {WORDS[dependent]}"
        stack, buffer = (" ".join(WORDS[i] for i in side) for side in (configuration.stack, configuration.buffer))
        expected.append([str(step), "" if kind is None else KINDS[kind], stack, buffer, arc])
    assert rows == expected
    assert configuration.finished


def test_results_are_what_the_ledger_holds(page, root):
    rows = part(page, "results").splitlines()[2:]
    assert rows
    for row in rows:
        name, _, uas, las = cells(row)
        entries = json.loads((root / "docs" / "results" / f"{name.strip('`')}.json").read_text(encoding="utf-8"))
        found = {entry["metric"]: entry["value"] for entry in entries if entry["split"] == "validation"}
        assert [float(uas), float(las)] == pytest.approx([found["uas"], found["las"]], abs=0.00051)


def test_scores_with_predicted_tags_are_what_the_ledger_holds(page, root):
    shown = re.search(
        r"predicts, ([\d.]+)% of which are right, .* a UAS of ([\d.]+) and a LAS of ([\d.]+\d)", prose(page)
    ).groups()
    entries = [
        {entry["metric"]: entry["value"] for entry in json.loads((root / "docs" / "results" / name).read_text())}
        for name in ("ud_tagger.json", "ud_parser-upos.json")
    ]
    assert float(shown[0]) == pytest.approx(100 * entries[0]["accuracy"], abs=0.051)
    parsed = [entries[1][f"{metric}_predicted_tags"] for metric in ("uas", "las")]
    assert [float(score) for score in shown[1:]] == pytest.approx(parsed, abs=0.00051)


def test_means_are_those_of_the_seeds_in_the_ledger(table, assert_means):
    assert_means([row for row in table("parsing.md", r"[\w-]+") if row[1] in ("uas", "las")])


def test_each_run_of_the_ledger_has_a_row(page, root):
    held = {re.sub("-seed.$", "", path.stem) for path in (root / "docs" / "results").glob("*_parser*.json")}
    assert {cells(row)[0].strip("`") for row in part(page, "results").splitlines()[2:]} == held


def test_the_speed_is_that_of_the_benchmark(page, root):
    sentences, seconds, rate = re.search(
        r"parses ([\d,]+) sentences .* in ([\d.]+) s .*, ([\d,]+) sentences per", prose(page)
    ).groups()
    rows = json.loads((root / "docs" / "results" / "benchmarks_bfloat16_search.json").read_text(encoding="utf-8"))
    measured = next(row["ours_seconds"] for row in rows if row["case"] == "parse")
    assert int(sentences.replace(",", "")) == SENTENCES
    assert float(seconds) == pytest.approx(measured, abs=0.0051)
    assert int(rate.replace(",", "")) == pytest.approx(SENTENCES / measured, abs=51)
