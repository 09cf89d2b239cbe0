"""docs/extractive_qa.md: its formats are read, its code finds the answers, and its results are those of the ledger."""

import re

import jax
import numpy as np
import pytest

from configs.invented_people_qa import get_config
from data.squad import read_questions
from jaxnlp.text.question_contexts import AnswerSpan, ContextQuestion
from tests.jaxnlp.tasks.two_devices import train
from train.config import update


@pytest.fixture
def page(root):
    return (root / "docs" / "extractive_qa.md").read_text(encoding="utf-8")


def test_the_formats_of_the_page_are_read_as_the_same_question(page, tmp_path):
    contents = re.findall(r"^\| .* \| `(\{.*\})` \|$", page, re.M)
    assert len(contents) == 4
    for content in contents:
        path = tmp_path / "questions.json"
        path.write_text(content)
        (question,) = read_questions(path).questions
        expected = ContextQuestion("1", "Where is Ann?", "Ann is in Rome.", (AnswerSpan(10, 14, "Rome"),))
        assert question == expected


@pytest.mark.thorough
def test_half_of_the_training_is_enough_for_the_answers_of_the_page(page, tmp_path, monkeypatch, capsys):
    steps = dict.fromkeys(("total_steps", "evaluate_every_steps", "checkpoint_every_steps"), 200)
    train(update(get_config(), **steps), tmp_path / "runs" / "invented_people_qa")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    capsys.readouterr()
    with jax.numpy_dtype_promotion("standard"):
        exec(code, {})
    first, *others = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"London 0\.\d+ London", first)
    assert others == ["Warsaw", "no answer"]
    assert "It prints London, Warsaw and no answer." in page


def test_results_are_what_the_ledger_holds(entries, table):
    rows = table("extractive_qa.md", r"invented_people_qa[\w-]*")
    assert [name for name, *_ in rows] == ["invented_people_qa", "invented_people_qa-seed1", "invented_people_qa-seed2"]
    for seed, (name, exact, f1, answerable, unanswerable, seconds) in enumerate(rows):
        held = entries(name)
        shown = {("exact_match", ""): exact, ("f1", ""): f1}
        shown |= {("f1", "answerable/"): answerable, ("accuracy", "unanswerable/"): unanswerable}
        for (metric, part), value in shown.items():
            assert float(value) == pytest.approx(held[metric, f"{part}validation"]["value"], abs=0.00051)
        assert held["f1", "validation"]["seed"] == seed
        took = int(seconds.removesuffix(" s"))
        assert took == pytest.approx(held["f1", "validation"]["train_seconds"], abs=0.51)


def test_the_readme_says_the_same(root, entries):
    row = re.search(r"\| `invented_people_qa` \| works \| (.*) \|\n", (root / "README.md").read_text("utf-8"))
    mean, lowest, highest = map(float, re.search(r"F1 ([\d.]+) .* \(([\d.]+) to ([\d.]+)\)", row[1]).groups())
    values = [entries(f"invented_people_qa{seed}")["f1", "validation"]["value"] for seed in ("", "-seed1", "-seed2")]
    assert [mean, lowest, highest] == pytest.approx([np.mean(values), min(values), max(values)], abs=0.00051)
