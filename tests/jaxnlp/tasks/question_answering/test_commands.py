import json

import jax
import numpy as np
import pytest

from jaxnlp.decoding.generation import decoder_of
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.question_answering import QuestionAnswering
from jaxnlp.tasks.question_answering.answers import QuestionError, answer
from jaxnlp.tasks.question_answering.commands import Predict
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.raw_texts import one_line


@pytest.fixture(scope="module")
def trained():
    vocabulary = CharacterVocabulary.of("abcdefgh?", special=PAD + MASK)
    model = GPTConfig(num_layers=1, num_heads=2, width=8, context_length=20).build(vocabulary)
    params = jax.jit(lambda: model.init(jax.random.key(0), np.zeros((1, 1), np.int32)))()["params"]
    return Trained(QuestionAnswering(), model, params, vocabulary)


@pytest.mark.thorough
def test_each_question_has_a_line(trained, tmp_path, capsys):
    questions = ["a?", "bad?", "h?"]
    Predict(texts=tuple(questions))(trained)
    printed = capsys.readouterr().out
    expected = answer(decoder_of(trained.model), trained.params, trained.processor, questions)
    assert printed == "".join(f"{one_line(line)}\n" for line in expected)
    (tmp_path / "questions.txt").write_text("".join(f"{question}\n" for question in questions))
    Predict(file=tmp_path / "questions.txt")(trained)
    assert capsys.readouterr().out == printed


@pytest.mark.thorough
def test_files_of_the_assignment_are_read_with_and_without_places(trained, tmp_path, capsys):
    Predict(texts=("a?", "bad?"))(trained)
    printed = capsys.readouterr().out
    for name, content in (("test_inputs.tsv", "a?\nbad?\n"), ("dev.tsv", "a?\tbeach\nbad?\thead\n")):
        (tmp_path / name).write_text(content)
        Predict(file=tmp_path / name)(trained)
        assert capsys.readouterr() == (printed, "")


def test_a_question_that_cannot_be_read_stops_no_others(trained, tmp_path, capsys):
    questions = ["a?", "who?", "", "bad?", "a" * 20]
    (tmp_path / "questions.txt").write_text("\n".join(questions))
    Predict(file=tmp_path / "questions.txt")(trained)
    out, err = capsys.readouterr()
    a, bad = trained.ask(["a?", "bad?"])
    assert out == f"{one_line(a)}\n\n\n{one_line(bad)}\n\n"
    assert f"2 of 5 questions have no answer; the first: {tmp_path / 'questions.txt'}, line 2: question 'who?'" in err
    assert "1 of 5 texts is blank" in err
    with pytest.raises(ValueError, match=r"text 1: question 'who\?': not in the vocabulary"):
        Predict(texts=("who?",))(trained)
    with pytest.raises(QuestionError, match=r"question 'who\?': not in the vocabulary"):
        trained.ask(["a?", "who?"])


def test_a_model_that_was_not_trained_on_questions_is_refused(trained):
    vocabulary = CharacterVocabulary.of("abcdefgh?")
    plain = Trained(trained.task, trained.model, trained.params, vocabulary, folder="runs/x")
    with pytest.raises(ValueError, match="the run in runs/x was not trained on questions"):
        Predict(texts=("a?",))(plain)


def test_in_python_a_question_has_an_answer_and_a_list_has_a_list(trained):
    answers = trained.ask(["a?", "bad?"])
    assert answers == answer(decoder_of(trained.model), trained.params, trained.processor, ["a?", "bad?"])
    assert trained.ask("bad?") == answers[1]
    assert trained.generate("a", max_new_tokens=3, temperature=0.0).startswith("a")


def test_as_json_each_question_has_its_answer(trained, capsys):
    Predict(texts=("a?", "bad?"), json=True)(trained)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    answers = trained.ask(["a?", "bad?"])
    assert found == [{"question": "a?", "answer": answers[0]}, {"question": "bad?", "answer": answers[1]}]


def test_a_blank_question_has_a_blank_answer(trained, capsys):
    assert trained.ask(["a?", " "]) == [trained.ask("a?"), ""]
    assert trained.ask([]) == []
    Predict(texts=("a?", ""))(trained)
    assert capsys.readouterr() == (
        f"{trained.ask('a?')}\n\n",
        "note: 1 of 2 texts is blank and has no answer; text 2\n",
    )
