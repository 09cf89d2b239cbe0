import json

import pytest

from jaxnlp.__main__ import main

pytestmark = pytest.mark.thorough

CONTEXT = "Marina Dovsen. Marina Dovsen was born in Harkstad .\nAlanna Moretti. Moretti was <b>a poet</b> .\n"
QUESTION = "Where was Marina Dovsen born?"


@pytest.fixture
def context(tmp_path):
    path = tmp_path / "context.txt"
    path.write_text(CONTEXT)
    return str(path)


def test_answers_are_those_of_python_one_a_line(run, trained, context, capsys):
    options = ["--no-answer-threshold", "1000"]
    assert main(["ask", str(run), QUESTION, " ", "--context", context, *options]) == 0
    printed, error = capsys.readouterr()
    assert printed == f"{trained.ask(QUESTION, CONTEXT, no_answer_threshold=1000.0).text}\n\n"
    assert "1 of 2 texts is blank and has no answer; text 2" in error
    assert main(["ask", str(run), QUESTION, "--context", context, "--no-answer-threshold=-1000"]) == 0
    printed, error = capsys.readouterr()
    assert printed == "\n"
    assert f"{context} has no answer to 1 of 1 questions" in error


def test_several_answers_have_their_confidences(run, trained, context, capsys):
    assert main(["ask", str(run), QUESTION, "--context", context, "--n-best", "3"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    answers = trained.ask(QUESTION, CONTEXT, n_best=3)
    assert first == QUESTION
    assert lines == [
        f"{answer.confidence:.3f}\t{answer.text or '(no answer)'}".replace("\n", " ") for answer in answers
    ]
    assert main(["ask", str(run), QUESTION, "--context", context, "--n-best", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["question"] == QUESTION
    assert [one["text"] for one in found["answers"]] == [answer.text for answer in answers]
    assert all(CONTEXT[one["start"] : one["stop"]] == one["text"] for one in found["answers"])
    assert found["answers"][0]["confidence"] == pytest.approx(answers[0].confidence, rel=1e-4)


def test_the_page_has_the_answer_marked_and_escapes_every_text(run, trained, context, tmp_path, capsys):
    page, questions = tmp_path / "page.html", tmp_path / "questions.txt"
    questions.write_text(f"{QUESTION}\n<i>Why?\n")
    arguments = ["--file", str(questions), "--html", str(page), "--no-answer-threshold", "1000"]
    assert main(["ask", str(run), "--context", context, *arguments]) == 0
    best = trained.ask(QUESTION, CONTEXT, no_answer_threshold=1000.0).text
    content = page.read_text()
    assert f">{best}</mark>" in content
    assert "&lt;b&gt;a poet" in content
    assert "<h2>&lt;i&gt;Why?</h2>" in content
    assert "<b>" not in content
    assert (
        main(["ask", str(run), QUESTION, "--context", context, "--html", str(page), "--no-answer-threshold=-99"]) == 0
    )
    assert "No answer was found" in page.read_text()


def test_questions_may_be_a_column_of_a_table(run, context, tmp_path, capsys):
    lines, table = tmp_path / "questions.txt", tmp_path / "questions.jsonl"
    lines.write_text(f"{QUESTION}\nWho?\n")
    table.write_text("".join(json.dumps({"id": 1, "question": one}) + "\n" for one in (QUESTION, "Who?")))
    found = []
    for file in (lines, table):
        assert main(["ask", str(run), "--file", str(file), "--context", context, "--json"]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]
    assert found[0].count("\n") == 2


def test_the_context_has_the_encoding_of_the_other_files_and_its_own_line_ends(run, tmp_path, capsys):
    path = tmp_path / "context.txt"
    text = "\r\n\r\nZoë was born\r\nin Rome.\r\n"
    path.write_bytes(text.encode("cp1252"))
    options = ["ask", str(run), "Where?", "--context", str(path), "--json", "--no-answer-threshold", "1000"]
    assert main(options) == 2
    assert "set --data.encoding latin1" in capsys.readouterr().err
    assert main([*options, "--data.encoding", "cp1252"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["text"] == text[answer["start"] : answer["stop"]] != ""


def test_the_context_or_the_questions_may_come_from_standard_input(run, trained, context, on_standard_input, capsys):
    on_standard_input(CONTEXT.encode())
    assert main(["ask", str(run), QUESTION, "--context", "-", "--n-best", "2"]) == 0
    first = capsys.readouterr().out
    on_standard_input(f"{QUESTION}\n".encode())
    assert main(["ask", str(run), "--context", context, "--n-best", "2"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([QUESTION, "--context", "none.txt"], "none.txt"),
        ([QUESTION, "--context", "blank.txt"], "blank.txt is blank"),
        (["--context", "-"], "standard input has either the text or the questions"),
        ([QUESTION, "--context", "text.txt", "--n-best", "0"], "n-best"),
        ([QUESTION, "--context", "text.txt", "--html", "blank.txt/page.html"], "blank.txt"),
    ],
)
def test_what_cannot_be_answered_is_refused(run, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "text.txt").write_text(CONTEXT)
    assert main(["ask", str(run), *arguments]) == 2
    assert words in capsys.readouterr().err
