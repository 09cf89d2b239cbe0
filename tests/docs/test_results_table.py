"""The table of results says what the ledger says."""

import json
import statistics

import pytest

from docs import results_table


def entry(**changes):
    plain = {
        "recipe": "a",
        "metric": "accuracy",
        "split": "validation",
        "value": 0.5,
        "steps": 10,
        "train_seconds": 3.0,
    }
    return plain | {"commit": "1", "seed": 0, "config": {"best_metric": "accuracy"}} | changes


@pytest.fixture
def ledger(tmp_path):
    """Writes entries to files of a ledger: `ledger(a=[...])`."""

    def write(**files):
        for name, entries in files.items():
            (tmp_path / f"{name.replace('_seed', '-seed')}.json").write_text(json.dumps(entries), encoding="utf-8")
        return tmp_path

    return write


def test_seeds_become_mean_and_standard_deviation(ledger):
    folder = ledger(a=[entry()], a_seed1=[entry(value=0.6, steps=20)], a_seed2=[entry(value=0.7, train_seconds=9.0)])
    ((name, entries),) = results_table.read(folder).items()
    (row,) = results_table.rows(name, entries)
    assert row == ["`a`", "validation", "accuracy **0.6 ± 0.1**", "", "3", "13", "5\u00a0s"]


def test_only_the_newest_run_of_a_file_counts(ledger):
    old, new = entry(value=0.1), entry(value=0.9, commit="2")
    assert results_table.read(ledger(a=[old, new, new | {"value": 0.8}])) == {"a": [new | {"value": 0.8}]}


def test_the_metric_that_selected_comes_first_and_classes_are_left_out():
    others = [("loss", "validation"), ("f1", "bad/validation"), ("pearson", "sts/validation")]
    entries = [entry(metric=metric, split=split) for metric, split in others] + [entry()]
    (row,) = results_table.rows("a", entries)
    assert row[2:4] == ["accuracy **0.5**", "loss 0.5, sts/pearson 0.5"]


def test_splits_and_searches_have_rows_of_their_own():
    entries = [entry(num_beams=1), entry(num_beams=5, length_penalty=0.6), entry(split="test", num_beams=5)]
    measured = [row[1] for row in results_table.rows("a", entries)]
    assert measured == ["validation", "validation, 5 beams, penalty 0.6", "test, 5 beams"]


def test_greedy_search_is_one_row_whatever_its_length_penalty(ledger):
    greedy = [entry(num_beams=1, length_penalty=penalty) for penalty in (0.6, 0.0)]
    folder = ledger(a=[*greedy, entry(split="test")], a_seed1=[entry()])
    ((name, entries),) = results_table.read(folder).items()
    rows = results_table.rows(name, entries)
    assert [(row[1], row[4]) for row in rows] == [("validation", "2"), ("test", "1")]


def test_the_page_has_every_run_of_the_ledger(root):
    page = results_table.page(root / "docs" / "results")
    runs = results_table.read(root / "docs" / "results")
    assert len(runs) > 30
    for name in runs:
        assert f"| `{name}` |" in page
    assert "benchmarks" not in runs
    values = [found["value"] for found in runs["bert_sst"] if found["metric"] == "accuracy"]
    assert len(values) == 3
    assert f"accuracy **{statistics.mean(values):.4g} ± {statistics.stdev(values):.2g}**" in page
