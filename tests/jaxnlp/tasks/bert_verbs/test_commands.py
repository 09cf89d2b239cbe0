import html
import json

import numpy as np
import pytest

from jaxnlp.input_files import rows
from jaxnlp.pages.attention_page import render_page
from jaxnlp.tasks.bert_verbs.commands import Embed, PairAttention
from jaxnlp.tasks.bert_verbs.encodings import attend, embed_texts

VECTOR_TEXTS = ("the cats sat", 'a "big"\tdog', "fish 中")


@pytest.fixture(scope="module")
def vectors(trained):
    return embed_texts(trained, VECTOR_TEXTS).values


@pytest.mark.thorough
def test_truncated_texts_are_counted_on_standard_error_and_the_first_is_named(trained, tmp_path, capsys):
    lines = ["fish"] * rows.CHUNK + ["cat " * 99]  # in the second chunk
    (tmp_path / "texts").write_text("\n".join(lines))
    Embed(file=tmp_path / "texts", out=tmp_path / "x.npy")(trained)
    message = "note: 1 of 1,025 texts was truncated to 40 tokens; the first is text 1,025\n"
    assert capsys.readouterr() == ("", message)


def test_embeddings_are_printed_as_objects_that_read_back_to_the_same_bits(trained, vectors, capsys):
    Embed(texts=VECTOR_TEXTS)(trained)
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert (tuple(row["text"] for row in rows), err) == (VECTOR_TEXTS, "")
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], np.float32), vectors)


def test_embeddings_are_written_to_a_file_that_numpy_reads(trained, vectors, tmp_path, capsys, on_standard_input):
    on_standard_input("".join(f"{text}\n" for text in VECTOR_TEXTS).encode())
    Embed(out=tmp_path / "new" / "vectors")(trained)
    note = (
        "note: standard input: each line is read as one text, also one with a tab: 1 of 3 lines, the first in line 2\n"
    )
    assert capsys.readouterr() == ("", note)
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


def test_a_pair_is_drawn_as_the_encoder_reads_it(trained, tmp_path, capsys):
    out, row = tmp_path / "new" / "page.html", ("The cats ate </script> a fish.", "<b>dog</b>")
    PairAttention(row[0], pair=row[1], out=out)(trained)
    assert capsys.readouterr() == (f"{out}\n", "")
    page = out.read_text(encoding="utf-8")
    assert page == render_page(attend(trained, *row).maps, title=" | ".join(row), model="tiny")
    assert f'<h1 dir="auto">{html.escape(" | ".join(row))}</h1>' in page
    assert page.count("</script>") == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": " "}, "the text is blank"),
        ({"text": "a", "pair": ""}, "the text is blank, or its pair is"),
        ({"text": "a", "max_length": 2}, "must be at least 3, got 2"),
        ({"text": "a", "max_length": 0}, "must be at least 3, got 0"),
    ],
)
def test_a_text_that_cannot_be_drawn_is_refused_and_nothing_is_written(trained, tmp_path, capsys, fields, message):
    with pytest.raises(ValueError, match=message):
        PairAttention(**fields, out=tmp_path / "page.html")(trained)
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []
