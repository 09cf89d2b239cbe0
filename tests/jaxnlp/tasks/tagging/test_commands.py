import json

import pytest

from jaxnlp.__main__ import main
from jaxnlp.runs import load_run

TEXT = "Anna visits New York."


def test_entities_are_printed_with_type_place_confidence_and_words(run, capsys):
    assert main(["predict", str(run), TEXT, "the dog sleeps ."]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == TEXT
    kind, place, confidence, words = lines[1].strip().split("\t")
    assert (kind, place, words) == ("PER", "0-4", "Anna")
    assert 0.3 < float(confidence) <= 1.0
    assert lines[2].split("\t")[3] == "New York"
    assert lines[3:] == ["the dog sleeps ."]


def test_json_lines_and_pages_have_the_same_entities(run, tmp_path, capsys):
    assert main(["predict", str(run), TEXT, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == TEXT
    assert all(TEXT[one["start"] : one["end"]] == one["text"] for one in answer["entities"])
    assert [one["text"] for one in answer["entities"]] == ["Anna", "New York"]
    page = tmp_path / "page.html"
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n<b>Anna</b>\n")
    assert main(["predict", str(run), "--file", str(tmp_path / "texts.txt"), "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert "New York<b>LOC</b></mark>" in page.read_text()
    assert "&lt;b" in page.read_text()


def test_files_of_columns_get_a_further_column(run, tmp_path, capsys):
    path, out = tmp_path / "x.conll", tmp_path / "y.conll"
    path.write_text("1\tAnna\tB-PER\n2\tsleeps\tO\n\n1\tOslo\tB-LOC\n")
    arguments = ["predict", str(run), "--conll", str(path), "--word-column", "1"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    lines = printed.split("\n")
    assert lines[0] == "1\tAnna\tB-PER\tS-PER"
    assert lines[1] == "2\tsleeps\tO\tO"
    assert lines[2] == ""
    assert lines[3].startswith("1\tOslo\tB-LOC\t")
    assert main([*arguments, "--out", str(out)]) == 0
    assert out.read_text() == printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--conll", "x"], "--conll excludes texts, --file, --json and --html"),
        (["a", "--out", "x"], "--out and --word-column apply only to --conll"),
        (["a", "--json", "--html", "x"], "--json and --html exclude each other"),
        ([" "], "text 1 is blank"),
        (["--conll", "none.conll"], "none.conll"),
    ],
)
def test_options_that_do_not_fit_are_one_line(run, capsys, arguments, message):
    assert main(["predict", str(run), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_in_python_a_text_has_its_entities(run):
    trained = load_run(run)
    first, second = trained.tag([TEXT, "the dog sleeps ."])
    assert [(one.type, TEXT[one.start : one.stop]) for one in first] == [("PER", "Anna"), ("LOC", "New York")]
    assert second == []
    assert [one.type for one in trained.tag(TEXT)] == ["PER", "LOC"]
    with pytest.raises(ValueError, match=r"^text 2 is blank; give texts with characters$"):
        trained.tag([TEXT, " "])
