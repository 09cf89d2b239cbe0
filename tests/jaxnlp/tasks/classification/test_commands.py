import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxnlp.__main__ import main

pytestmark = pytest.mark.thorough


def test_the_verbs_name_the_class_of_a_file_and_show_its_attention(run, digit, tmp_path, capsys):
    assert main(["predict", str(run), str(digit)]) == 0
    name, probability, shown = capsys.readouterr().out.strip().split("\t")
    assert shown == str(digit)
    assert main(["predict", str(run), str(digit.parent), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["class"] == name
    assert answer["probabilities"][name] == pytest.approx(float(probability), abs=0.006)
    assert sum(answer["probabilities"].values()) == pytest.approx(1.0, abs=1e-4)
    assert main(["attention", str(run), str(digit), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().count("data:image/png;base64,") == 1


def test_files_that_cannot_be_read_are_one_line(run, digit, tmp_path, capsys):
    Image.new("RGB", (30, 20)).save(tmp_path / "wide.png")
    empty = tmp_path / "empty"
    (empty / "cats").mkdir(parents=True)
    (empty / "notes.txt").write_text("no image")
    for arguments, message in (
        ([str(tmp_path / "wide.png")], "wide.png has 30 x 20 pixels, but the model reads 8 x 8; --resize, in Python"),
        ([str(tmp_path / "none.png")], "does not exist"),
        ([], "give image files, or a folder of them"),
        (
            [str(empty)],
            "empty has no image files (.png, .jpg, .jpeg, .bmp, .gif, .webp, .tif, .tiff); its subfolders are not",
        ),
    ):
        assert main(["predict", str(run), *arguments]) != 0
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert main(["predict", str(run), str(tmp_path / "wide.png"), "--resize"]) == 0


def test_an_image_that_cannot_be_read_costs_no_other_its_answer(run, digit, tmp_path, capsys):
    for name in ("a.png", "c.png"):
        (tmp_path / name).write_bytes(digit.read_bytes())
    (tmp_path / "b.png").write_text("no image")
    assert main(["predict", str(run), str(tmp_path)]) == 0
    printed = capsys.readouterr()
    lines = [line.split("\t") for line in printed.out.splitlines()]
    assert [Path(line[2]).name for line in lines] == ["a.png", "b.png", "c.png"]
    assert lines[0][:2] == lines[2][:2] != ["", ""] == lines[1][:2]
    assert printed.err.startswith("note: 1 of 3 images has no class; ")
    assert "b.png is not an image that Pillow can read" in printed.err
    assert main(["predict", str(run), str(tmp_path), "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["class"] for answer in answers] == [lines[0][0], None, lines[2][0]]
    page = tmp_path / "page.html"
    assert main(["attention", str(run), str(tmp_path), "--out", str(page)]) == 0
    assert page.read_text().count("data:image/png;base64,") == 2
    assert "note: 1 of 3 images has no place on the page; " in capsys.readouterr().err
    for arguments in (["predict"], ["attention", "--out", str(page)]):
        assert main([arguments[0], str(run), str(tmp_path / "b.png"), *arguments[1:]]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith("error: ")
        assert printed.err.count("\n") == 1


def test_a_bert_shows_all_layers_and_heads_on_a_text_or_on_a_pair_read_together(text_run, tmp_path, capsys):
    run, page = str(text_run("class")), str(tmp_path / "page.html")
    assert main(["attention", run, "the cat", "--pair", "sat </script>", "--out", page]) == 0
    assert capsys.readouterr() == (f"{page}\n", "")
    text = (tmp_path / "page.html").read_text()
    assert "the cat | sat &lt;/script&gt;" in text
    assert '"layers": 1, "heads": 2' in text
    assert main(["attention", run, "the cat sat", "--max-length", "3", "--out", page]) == 0
    assert capsys.readouterr().err == "note: the text was truncated to 3 tokens\n"
    for arguments, message in (
        (["a", "b"], "the page of a BERT shows one text: give one"),
        ([], "the page of a BERT shows one text: give one"),
        (["a", "--pair", "b", "c"], "the page of a BERT shows one text"),
        (["--file", page], "shows one text: give one text, or a pair with --pair, without --file"),
        (["a", "--resize"], "--resize applies only to images; remove it"),
        (["a", "--max-length", "0"], "must be at least 3, got 0"),
        ([" "], "the text is blank"),
    ):
        assert main(["attention", run, *arguments, "--out", page]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_bert_embeds_texts_and_is_exported(text_run, tmp_path, capsys):
    run = str(text_run("class"))
    assert main(["embed", run, "the cat", "the cat sat", "--out", str(tmp_path / "vectors.npy")]) == 0
    assert np.load(tmp_path / "vectors.npy").shape == (2, 16)
    assert main(["embed", run, "the cat", "the cat", "--similarities"]) == 0
    assert capsys.readouterr().out == "1.0000\t1.0000\tthe cat\n" * 2
    assert main(["export", run, str(tmp_path / "bert")]) == 0
    assert "truncation=True, trust_remote_code=True" in capsys.readouterr().out
    assert (tmp_path / "bert" / "classify.py").exists()


def test_verbs_that_a_model_cannot_do_are_one_line(run, digit, tmp_path, capsys):
    for option in (["--file", str(digit)], ["--pooling", "mean"]):
        assert main(["embed", str(run), str(digit), *option]) == 2
        assert capsys.readouterr().err == "error: --file and --pooling apply only to texts; remove them\n"
    assert main(["export", str(run), str(tmp_path / "out"), "--format", "jax"]) == 0
    assert "classify(images): outputs [B, C]" in capsys.readouterr().out
    assert main(["attention", str(run), str(digit), "--max-length", "9"]) == 2
    assert capsys.readouterr().err == "error: --max-length applies only to a BERT; remove it\n"
    for option in (["--file", str(digit)], ["--pair", "b"]):
        assert main(["attention", str(run), str(digit), *option]) == 2
        assert capsys.readouterr().err == "error: --pair and --file apply only to texts; remove them\n"


def test_a_run_with_a_class_token_is_exported_and_predicts_the_same(run, digit, tmp_path, capsys):
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    exported = capsys.readouterr().out
    assert "transformers.ViTForImageClassification.from_pretrained reads it" in exported
    assert "images with transparent pixels get other predictions than in the run" in exported
    printed = []
    for folder in (run, tmp_path / "out"):
        assert main(["predict", str(folder), str(digit)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


def test_a_table_is_answered_as_its_texts_and_blank_ones_keep_their_places(text_run, tmp_path, capsys):
    table, texts, run = tmp_path / "T.TSV", tmp_path / "texts.txt", str(text_run("class"))
    table.write_text('label\ttext\narts\tthe paint cat\nsport\t\n\trun "sat"\n')
    texts.write_text('the paint cat\n\nrun "sat"\n')
    assert main(["predict", run, "--file", str(texts)]) == 0
    expected = capsys.readouterr().out
    assert len(expected.splitlines()) == 3
    assert main(["predict", run, "--file", str(table)]) == 0
    printed, error = capsys.readouterr()
    assert printed == expected
    assert f"note: 1 of 3 texts is blank and has no answer; {table}, row 2\n" in error
    assert main(["embed", run, "--file", str(table)]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()][::2] == [
        "the paint cat",
        'run "sat"',
    ]
    table.write_text("label\tbody\narts\tthe paint cat\n")
    assert main(["predict", run, "--file", str(table)]) == 2
    printed, error = capsys.readouterr()
    assert (printed, "line 1: expected the column text between tabs, got label, body; missing" in error) == ("", True)
