import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxnlp.__main__ import main
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.inference.batches import batches
from jaxnlp.input_files.rows import TextColumns
from jaxnlp.targets import OneClass
from jaxnlp.tasks.classification.inputs import CommandInputs, batch_shapes, given_rows, image_files, read_chunk
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

PROCESSOR = TextClassifierProcessor(
    WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat"]), 8, one_part(OneClass(("no", "yes")))
)


def test_every_text_is_in_one_row_of_one_batch():
    texts = tuple(" ".join(["the"] * (number % 9)) for number in range(70))
    (rows,) = given_rows(PROCESSOR, CommandInputs(texts))
    chunk = read_chunk(PROCESSOR, rows)
    assert chunk.blank == [number for number in range(70) if number % 9 == 0]
    found = list(batches(chunk.lengths, batch_shapes(PROCESSOR)))
    assert sorted(chunk.kept[n] for numbers, _ in found for n in numbers) == sorted({*range(70)} - {*chunk.blank})
    for numbers, shape in found:
        batch = chunk.batch(numbers, shape)
        assert (batch["tokens"].shape, batch["loss_mask"].sum()) == (shape, len(numbers))
        for row, number in enumerate(numbers):
            expected = min(chunk.kept[number] % 9, 6)
            assert (batch["tokens"][row] == PROCESSOR.vocabulary.id_of("the")).sum() == expected
    assert chunk.truncated == [number for number in range(70) if number % 9 > 6]


def test_inputs_that_do_not_fit_the_processor_are_refused():
    with pytest.raises(ValueError, match="--resize applies only to images"):
        next(given_rows(PROCESSOR, CommandInputs(("the",), resize=True)))
    with pytest.raises(ValueError, match="--pair applies only to pairs of texts"):
        next(given_rows(PROCESSOR, CommandInputs(("the",), ("cat",))))
    with pytest.raises(ValueError, match="inputs of a dict cannot be read"):
        next(given_rows({}, CommandInputs()))
    with pytest.raises(ValueError, match="give image files, or a folder of them"):
        image_files(())


@pytest.mark.parametrize(
    "kind", ["class", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("classes", "number"))]
)
def test_texts_are_predicted_as_lines_and_as_json(text_run, kind, capsys, tmp_path):
    run = str(text_run(kind))
    file = tmp_path / "texts.txt"
    file.write_text("the paint cat sat\nthe run sat cat\n")
    assert main(["predict", run, "--file", str(file)]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[-1] for line in lines] == ["the paint cat sat", "the run sat cat"]
    assert main(["predict", run, "--json", "the paint cat sat", "the run sat cat"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [found["text"] for found in objects] == ["the paint cat sat", "the run sat cat"]
    if kind == "number":
        assert [float(line[0]) for line in lines] == pytest.approx([1.5, 1.5], abs=0.7)
        assert [found["number"] for found in objects] == pytest.approx([float(line[0]) for line in lines], abs=1e-3)
    else:
        assert [line[0] for line in lines] == ["arts", "sport"]
        answers = [["arts"], ["sport"]] if kind == "classes" else ["arts", "sport"]
        assert [found[kind] for found in objects] == answers
        shown = [found["probabilities"][line[0]] for found, line in zip(objects, lines, strict=True)]
        assert shown == pytest.approx([float(line[1]) for line in lines], abs=0.006)


def test_files_of_a_folder_are_found_sorted_and_others_are_counted(tmp_path, monkeypatch, capsys):
    for name in ("b.png", "a.JPG", "c.txt", "._b.png"):
        (tmp_path / name).touch()
    (tmp_path / "d.png").mkdir()
    (other := tmp_path / "d.png" / "image").touch()
    assert image_files((tmp_path, other)) == [tmp_path / "a.JPG", tmp_path / "b.png", other]
    assert capsys.readouterr().err.endswith("): 2, such as c.txt\n")
    with pytest.raises(FileNotFoundError, match=r"the image none.png does not exist"):
        image_files((tmp_path, Path("none.png")))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert image_files((Path("~/b.png"),)) == [tmp_path / "b.png"]


def test_the_name_of_any_image_is_one_line_that_can_be_written(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n.png"))
    Image.new("RGB", (4, 4)).save(path)
    processor = ImageProcessor(4, 3, (0.5,) * 3, (0.5,) * 3, ("cat", "dog"))
    (rows,) = given_rows(processor, CommandInputs((str(tmp_path),)))
    chunk = read_chunk(processor, rows)
    assert chunk.shown == [(f"{tmp_path}/\\xff .png",)]
    assert chunk.fields == [{"file": f"{tmp_path}/\\xff\n.png"}]
    assert not chunk.unread
    chunk = read_chunk(processor, [(np.zeros((4, 4)),), (path,), (np.zeros((2, 2)),)])
    assert [name for (name,) in chunk.shown] == ["image 0", f"{tmp_path}/\\xff .png", "image 2"]
    assert (chunk.kept, list(chunk.unread), chunk.blank) == ([0, 1], [2], [])
    assert chunk.batch([1], batch_shapes(processor)[0])["images"].shape == (1, 4, 4, 3)


@pytest.mark.parametrize("name", ["more.csv", "more.TSV", "more.jsonl", "more.CSV.gz", "more.json.gz", "more.tsv.gz"])
def test_a_table_is_read_by_its_columns(tmp_path, name):
    between = "\t" if "tsv" in name.lower() else ","
    text = f"label{between}text\na{between}the cat\nb{between}cat\n"
    if "json" in name:
        text = '{"text": "the cat", "label": "a"}\n{"text": "cat"}\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    (rows,) = given_rows(PROCESSOR, CommandInputs(file=path))
    chunk = read_chunk(PROCESSOR, rows)
    assert chunk.shown == [("the cat",), ("cat",)]
    with pytest.raises(ValueError, match=r"expected .* body.*; missing: body; rename the columns, or"):
        next(given_rows(PROCESSOR, CommandInputs(file=path, columns=TextColumns(("body",)))))
