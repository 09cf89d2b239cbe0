"""The code of docs/tagging.md runs, and its tables are those of the code."""

import csv
import re

import jax
import numpy as np
import pytest

from configs import conll_bilstm_crf, conll_tagger
from data.readers.annotations import annotated_sentences
from data.readers.raw_sentences import Counts
from jaxnlp.text.tag_schemes import PREFIXES, LabelledSpan, labels_of_spans


@pytest.fixture
def page(root):
    return (root / "docs" / "tagging.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_code_of_the_page_runs(page, capsys):
    _, code = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    found: dict = {}
    with jax.numpy_dtype_promotion("standard"):
        exec(code, found)
    assert found["labels"].tolist() == [[0, 0, 0]]
    assert capsys.readouterr().out.startswith("[[0 0 0]] [0.")


def test_the_schemes_of_the_page_write_entities_so(page):
    rows = re.findall(r"^\| `(\w+)` \| (\w)-X[^|]*\| (\w)-X \| (\w)-X[^|]*\| (\w)-X \|$", page, re.M)
    assert {scheme for scheme, *_ in rows} == {*PREFIXES}
    for scheme, first, inside, last, single in rows:
        assert labels_of_spans([LabelledSpan(0, 3, "X")], 3, scheme) == [f"{p}-X" for p in (first, inside, last)]
        assert labels_of_spans([LabelledSpan(0, 1, "X")], 1, scheme) == [f"{single}-X"]


def test_the_exports_of_annotation_tools_are_read_so(page):
    objects = re.findall(r'`(\{"(?:text|data)": .*?\})`', page)
    assert len(objects) == 5
    for one in annotated_sentences("\n".join(objects), "docs/tagging.md", "words", Counts()):
        assert (one.words, one.labels) == (("Ann", "is", "in", "Rome", "."), ("B-PER", "O", "O", "O", "O"))


def test_the_models_of_the_page_are_those_of_the_recipes(page):
    (widths,) = re.findall(r"^\| `recurrent-widths` \|(.*)\|$", page, re.M)
    cells = [cell.strip() for cell in widths.split("|")]
    assert [int(cell) for cell in cells[2:4]] == [
        recipe.get_config().model.recurrent_widths[0] for recipe in (conll_tagger, conll_bilstm_crf)
    ]


def test_results_are_what_the_ledger_holds(table, entries, root):
    rows = table("tagging.md", r"(?:conll|resume|weibo|ud|small_grammar)_\w*(?:tagger|crf)")
    rows = [row for row in rows if row[1] not in ("f1", "accuracy")]
    held = {path.stem for path in (root / "docs" / "results").glob("*_tagger.json")}
    held |= {path.stem for path in (root / "docs" / "results").glob("*_crf.json")}
    assert {name for name, *_ in rows} == held
    for name, *scores, accuracy, steps, seconds in rows:
        found = entries(name)
        for shown, metric in zip(scores, ("f1", "precision", "recall"), strict=True):
            entry = found.get((metric, "validation"))
            if entry is None:  # labels that are no entities
                assert shown == ""
                continue
            assert float(shown) == pytest.approx(entry["value"], abs=0.00051)
        entry = found["accuracy", "validation"]
        assert float(accuracy) == pytest.approx(entry["value"], abs=0.00051)
        assert int(steps.replace(",", "")) == entry["steps"]
        assert int(seconds.removesuffix(" s").replace(",", "")) == pytest.approx(entry["train_seconds"], abs=0.51)


def test_means_are_those_of_the_seeds_in_the_ledger(table, assert_means):
    assert_means([row for row in table("tagging.md", r"[\w-]+") if row[1] in ("f1", "accuracy")])


def test_the_score_with_neighbours_is_that_of_the_ledger(page, entries):
    shown, alone = re.search(
        r"24` has an F1 of ([\d.]+)\s\(`conll_tagger-context`\), where .* has ([\d.]+)\.", page
    ).groups()
    for name, value in (("conll_tagger-context", shown), ("conll_tagger", alone)):
        assert float(value) == pytest.approx(entries(name)["f1", "validation"]["value"], abs=0.00051)
    seconds = entries("conll_tagger-context")["f1", "validation"]["train_seconds"]
    assert f"Training took {seconds / 60:.0f} minutes" in page


def test_all_kinds_of_tags_have_the_shares_of_three_seeds(page, entries):
    text = " ".join(page.split())
    shown = re.search(
        r"Over three seeds, ([\d.]+)% of its Universal POS tags are right, ([\d.]+)% of the treebank's own tags, and "
        r"([\d.]+)% of the features; each standard deviation is ([\d.]+)\. All three are right for ([\d.]+)%",
        text,
    )
    *shares, deviation, together = map(float, shown.groups())
    runs = [entries(f"ud_tagger_bert-tags{seed}") for seed in ("", "-seed1", "-seed2")]
    splits = ("upos/validation", "xpos/validation", "feats/validation", "validation")
    for split, share in zip(splits, (*shares, together), strict=True):
        values = [100 * run["accuracy", split]["value"] for run in runs]
        assert share == pytest.approx(np.mean(values), abs=0.051)
        assert split == "validation" or deviation == pytest.approx(np.std(values, ddof=1), abs=0.051)


def test_changes_of_the_resume_tagger_that_were_made_together_are_those_of_the_ledger(page, entries):
    text = " ".join(page.split())
    for name in ("rare-two-layers", "rare-two-layers-unknown"):
        f1 = re.search(rf"(\d\d\.\d) \(`resume_tagger-{name}`\)", text)[1]
        assert float(f1) == pytest.approx(
            100 * entries(f"resume_tagger-{name}")["f1", "validation"]["value"], abs=0.051
        )


def test_the_ablations_are_what_the_sweeps_measured(table, root):
    rows = table("tagging.md", r"\w+ \S+")
    for recipe in ("conll_bilstm_crf", "conll_tagger", "resume_tagger"):
        with (root / "docs" / "results" / f"{recipe}_ablation.csv").open(encoding="utf-8") as file:
            unchanged, *runs = csv.DictReader(file)
        assert [name for name, *_ in rows[: len(runs)]] == [run["run"].replace("=", " ") for run in runs]
        assert_differences(unchanged, runs, rows[: len(runs)])
        rows = rows[len(runs) :]
    assert not rows


def assert_differences(unchanged, runs, rows):
    for run, (_, *shown) in zip(runs, rows, strict=True):
        f1, precision, recall = (100 * float(run[f"best_{name}"]) for name in ("f1", "precision", "recall"))
        expected = [f1, f1 - 100 * float(unchanged["best_f1"]), precision, recall]
        assert [float(value) for value in shown] == pytest.approx(expected, abs=0.051)


def test_the_shares_of_unknown_characters_are_what_the_sweep_measured(page, root):
    with (root / "docs" / "results" / "resume_tagger_unknown.csv").open(encoding="utf-8") as file:
        runs = [
            (100 * float(run["model.word_dropout_rate"]), 100 * float(run["best_f1"]), float(run["best_loss"]))
            for run in csv.DictReader(file)
        ]
    rows = [tuple(map(float, row)) for row in re.findall(r"^\| (\d+)% \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)]
    np.testing.assert_allclose(rows, runs, atol=0.051)
    np.testing.assert_allclose([row[2] for row in rows], [run[2] for run in runs], atol=0.00051)
