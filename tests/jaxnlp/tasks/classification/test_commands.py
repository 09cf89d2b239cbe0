import json

import pytest
from PIL import Image

from jaxnlp.__main__ import main


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
        ([str(tmp_path / "wide.png")], "wide.png: 30 x 20 pixels, and the model reads 8 x 8; --resize cuts and scales"),
        ([str(tmp_path / "none.png")], "no image at"),
        ([], "give image files, or a folder of them"),
        ([str(empty)], "empty has no image files (.png, .jpg, .jpeg, .bmp, .gif, .webp) in it; folders in it are not"),
    ):
        assert main(["predict", str(run), *arguments]) != 0
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert main(["predict", str(run), str(tmp_path / "wide.png"), "--resize"]) == 0
