"""docs/published.md: its numbers and counts of seeds are the ledger's, and its links lead to sections.

A message about a row that is wrong has the cells that the row must have: copy them to the page.
"""

import csv
import re
import statistics
from typing import Any, NamedTuple

import pytest

from docs import results_table

HEAD = "| system | run | measured | seeds | here | published | difference | source of the published number | tries |"
FEW_HEAD = "| run | seeds | training of a seed | other seeds |"
HOUR = 3_600


class Measure(NamedTuple):
    """Where the ledger has a measure: metrics with their splits, of which a run has one; and how the page writes it."""

    places: tuple[tuple[str, str], ...]
    scale: int = 100
    digits: int = 1
    beams: int | None = None
    lower_is_better: bool = False


ACCURACY = ("accuracy", "validation")
DEV_OF_A4 = "cs224n_a4_zh_en/dev.en cs224n_a4_zh_en/dev.zh"
MEASURES = {
    "UAS, dev, no tags": Measure((("uas", "validation"),)),
    "LAS, dev, no tags": Measure((("las", "validation"),)),
    "LAS, dev, gold tags": Measure((("las", "validation"),)),
    "UPOS, dev": Measure((("accuracy", "upos/validation"), ACCURACY)),
    "XPOS, dev": Measure((("accuracy", "xpos/validation"),)),
    "F1, dev": Measure((("f1", "validation"),)),
    "accuracy, dev": Measure((ACCURACY,)),
    "accuracy, held out": Measure((ACCURACY,)),
    "SST, dev": Measure((("accuracy", "sst/dev"), ("accuracy", "sst/validation"), ACCURACY)),
    "CFIMDB, dev": Measure((ACCURACY,)),
    "Quora, dev": Measure((("accuracy", "quora/dev"), ("accuracy", "quora/validation"), ACCURACY)),
    "STS, Pearson, dev": Measure(
        (("pearson", "sts/dev"), ("pearson", "sts/validation"), ("pearson", "validation")), scale=1, digits=3
    ),
    "BLEU, test 2016": Measure((("bleu", "test"),), scale=1, beams=5),
    "BLEU, dev": Measure((("bleu", "validation"),), scale=1, beams=5),
    "BLEU, held out": Measure((("bleu", "validation"),), scale=1, beams=5),
    "BLEU, dev of assignment 4": Measure((("bleu", DEV_OF_A4),), scale=1, beams=5),
    "perplexity, validation": Measure((("perplexity", "validation"),), scale=1, lower_is_better=True),
    "perplexity with a cache, validation": Measure(
        (("perplexity_with_cache", "validation"),), scale=1, lower_is_better=True
    ),
    "next word, nats": Measure((("next_word_nll", "prediction"),), scale=1, digits=2, lower_is_better=True),
    "nats per character, validation": Measure((("loss", "validation"),), scale=1, digits=3, lower_is_better=True),
    "nats per pixel, held out": Measure((("loss", "validation"),), scale=1, digits=3, lower_is_better=True),
    "exact match, dev": Measure((("exact_match", "dev"),)),
    "exact match, test": Measure((("exact_match", "test"),)),
    "macro-F1, dev": Measure((("macro_f1", "validation"),)),
    "area under the ROC curve, dev": Measure((("roc_auc", "validation"),)),
}


class Row(NamedTuple):
    system: str
    run: str
    measured: str
    seeds: str
    here: str
    published: str
    difference: str
    source: str
    tries: str


@pytest.fixture
def page(root):
    return (root / "docs" / "published.md").read_text(encoding="utf-8")


@pytest.fixture
def ledger(root):
    return results_table.read(root / "docs" / "results")


def table(text: str, head: str) -> list[list[str]]:
    """The cells of the table with this head, without backticks around a run."""
    body = text.split(f"{head}\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in body]


def rows_of(text: str) -> list[Row]:
    return [Row(*cells) for cells in table(text, HEAD)]


def of_seeds(text: str) -> list[Row]:
    """The rows without the cross-validation, which is a sweep."""
    return [row for row in rows_of(text) if not row.seeds.endswith("folds")]


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def found_for(entries: list[dict[str, Any]], measure: Measure) -> list[dict[str, Any]]:
    """The newest entry of each seed, at the first place that the ledger has for it."""
    found: dict[int, dict[str, Any]] = {}
    for place in measure.places:
        at = [entry for entry in entries if (entry["metric"], entry["split"]) == place and as_searched(entry, measure)]
        assert len({entry["seed"] for entry in at}) == len(at)
        found = {entry["seed"]: entry for entry in at} | found
    assert found, measure
    return list(found.values())


def as_searched(entry: dict[str, Any], measure: Measure) -> bool:
    beams, penalty = results_table.search(entry)
    return beams == measure.beams and penalty in (None, 0.6)


def measured_cells(entries: list[dict[str, Any]], row: Row) -> tuple[str, str, str]:
    """What a row must have as its seeds, its number and the difference."""
    measure = MEASURES[row.measured]
    values = [entry["value"] for entry in found_for(entries, measure)]
    here = f"{measure.scale * statistics.mean(values):.{measure.digits}f}"
    return str(len(values)), here, difference(here, row)


def difference(here: str, row: Row) -> str:
    """Between the numbers as the page writes them; a minus sign is a hyphen."""
    return f"{float(here) - float(row.published):+.{MEASURES[row.measured].digits}f}" if row.published else ""


def seconds_of(entry: dict[str, Any]) -> float:
    """With the training of the run that it started from."""
    return entry["train_seconds"] + (entry.get("begun_with") or {}).get("train_seconds", 0)


def test_each_row_has_the_numbers_of_the_ledger(page, ledger):
    rows = of_seeds(page)
    assert len(rows) >= 40
    assert len({(row.run, row.measured) for row in rows}) == len(rows)
    wrong = []
    for row in rows:
        expected = measured_cells(ledger[row.run], row)
        if (row.seeds, row.here, row.difference) != expected:
            seeds, here, apart = expected
            wrong.append(
                f"the row `{row.run}`, {row.measured}, must have: | {seeds} | {here} | {row.published} | {apart} |"
            )
    assert not wrong, "\n".join(wrong)


def test_the_row_of_ten_folds_is_what_the_sweep_measured(page, root):
    (row,) = [row for row in rows_of(page) if row.seeds.endswith("folds")]
    with (root / "docs" / "results" / "text_cnn_mr.csv").open(encoding="utf-8") as file:
        values = [100 * float(run["best_accuracy"]) for run in csv.DictReader(file)]
    assert row.run == "text_cnn"
    assert row.seeds == f"{len(values)} folds"
    assert row.here == f"{statistics.mean(values):.1f}"
    assert row.difference == f"{float(row.here) - float(row.published):+.1f}"


def test_runs_of_fewer_than_three_seeds_are_listed_with_their_seconds(page, ledger):
    few = {}
    for row in of_seeds(page):
        runs = found_for(ledger[row.run], MEASURES[row.measured])
        if len(runs) < 3:
            seconds = statistics.mean(seconds_of(entry) for entry in runs)
            others = "a seed takes more than an hour" if seconds > HOUR else "not trained yet"
            few[row.run] = [row.run, str(len(runs)), f"{seconds:,.0f} s", others]
    shown = table(section(page, "Fewer than three seeds"), FEW_HEAD)
    expected = sorted(few.values(), key=lambda cells: -float(cells[2].removesuffix(" s").replace(",", "")))
    lines = "\n".join(f"| `{run}` | {' | '.join(cells)} |" for run, *cells in expected)
    assert shown == expected, f"the table must have these rows:\n{lines}"


def test_each_run_below_the_published_number_has_a_reason(page):
    reasons = section(page, "Below the published number")
    for row in rows_of(page):
        lower_is_better = row.measured in MEASURES and MEASURES[row.measured].lower_is_better
        gain = float(row.difference or 0) * (-1 if lower_is_better else 1)
        if gain < 0:
            assert f"`{row.run}`" in reasons, f"no reason for `{row.run}`, {row.measured}"


def test_recipes_without_a_number_are_still_without_one(page, ledger):
    names = re.findall(r"^- `(\w+)`", section(page, "Not measured yet"), re.M)
    assert names
    for name in names:
        assert name not in ledger, f"`{name}` is in the ledger now: it needs a row of the table"


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub and MkDocs make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_links_lead_to_sections_that_there_are(page, root):
    links = re.findall(r"\]\(([^()\s]+)\)", page)
    assert len(links) > 40
    for link in links:
        name, _, anchor = link.partition("#")
        target = root / "docs" / name if name else root / "docs" / "published.md"
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
            assert anchor in [slug(title) for title in titles], link
    for row in rows_of(page):
        assert "](" in row.tries, row
