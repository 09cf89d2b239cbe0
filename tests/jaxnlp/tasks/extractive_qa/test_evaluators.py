import json

import pytest

from jaxnlp.__main__ import main
from jaxnlp.tasks.extractive_qa.answers import find_answers
from jaxnlp.tasks.extractive_qa.scores import exact_match, f1
from jaxnlp.text.question_contexts import AnswerSpan, ContextQuestion

PEOPLE = "Marina Dovsen. Marina Dovsen was born in Harkstad . Alanna Moretti. Moretti was a poet who died in Rusport ."


@pytest.fixture(scope="module")
def squad(tmp_path_factory):
    """A file in SQuAD's format: an answer, none, and an answer that no model finds."""
    rows = [
        ("one", "Where was Marina Dovsen born?", [{"text": "Harkstad", "answer_start": PEOPLE.index("Harkstad")}]),
        ("two", "Where was Alanna Moretti born?", []),
        ("three", "Where was Marina Dovsen born?", [{"text": "poet", "answer_start": PEOPLE.index("poet")}]),
    ]
    questions = [{"id": name, "question": question, "answers": answers} for name, question, answers in rows]
    path = tmp_path_factory.mktemp("squad") / "questions.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": PEOPLE, "qas": questions}]}]}))
    return path


@pytest.mark.thorough
def test_scores_and_files_are_those_of_the_answers(run, trained, squad, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["evaluate", str(run), "--file", str(squad), "--predictions", str(out)]) == 0
    printed = capsys.readouterr().out
    (predictions,) = out.rglob("*predictions.json")
    answers = json.loads(predictions.read_text())
    texts = [trained.ask(f"Where was {name} born?", PEOPLE).text for name in ("Marina Dovsen", "Alanna Moretti")]
    assert answers == {"one": texts[0], "two": texts[1], "three": texts[0]}
    right = [["Harkstad"], [], ["poet"]]
    for name, score in (("exact_match", exact_match), ("f1", f1)):
        expected = sum(map(score, answers.values(), right)) / 3
        assert f"{name} {expected:.4f}  (3 questions)" in printed
    assert "unanswerable/accuracy" in printed
    (margins,) = out.rglob("*no_answer_scores.json")
    expected = find_answers(
        trained, [ContextQuestion("", "Where was Alanna Moretti born?", PEOPLE, (AnswerSpan(0, 6, "Marina"),))]
    )
    assert json.loads(margins.read_text())["two"] == pytest.approx(expected[0].margin, rel=1e-3, abs=1e-3)


@pytest.mark.thorough
def test_the_best_threshold_gives_the_best_f1(run, squad, capsys):
    assert main(["evaluate", str(run), "threshold", "--file", str(squad)]) == 0
    values = dict(line.split()[1:3] for line in capsys.readouterr().out.splitlines() if "questions" in line)
    threshold = values["no_answer_threshold"]
    assert main(["evaluate", str(run), "--file", str(squad), f"--no-answer-threshold={threshold}"]) == 0
    scored = dict(line.split()[1:3] for line in capsys.readouterr().out.splitlines() if "questions" in line)
    assert float(scored["f1"]) == pytest.approx(float(values["best_f1"]), abs=1e-3)


def test_a_file_without_answers_has_predictions_and_no_scores(run, squad, tmp_path, capsys):
    path, out = tmp_path / "asked.jsonl", tmp_path / "out"
    asked = [("Where was Marina Dovsen born?", PEOPLE), (" ", PEOPLE), ("Where was Alanna Moretti born?", " ")]
    path.write_text("".join(json.dumps({"question": one, "context": context}) + "\n" for one, context in asked))
    assert main(["evaluate", str(run), "--file", str(path), "--predictions", str(out)]) == 0
    assert "f1" not in capsys.readouterr().out
    answers = json.loads(next(out.rglob("*predictions.json")).read_text())
    assert answers == {"1": answers["1"], "2": "", "3": ""}
    assert json.loads(next(out.rglob("*no_answer_scores.json")).read_text()).keys() == answers.keys()
    assert main(["evaluate", str(run), "threshold", "--file", str(path)]) == 2
    assert "needs questions with an answer, and questions without one" in capsys.readouterr().err
