import dataclasses
import json

import numpy as np
import pytest

from jaxnlp.__main__ import main
from jaxnlp.runs import load_run
from jaxnlp.tasks.tagging.commands import Predict, entities_of
from jaxnlp.tasks.tagging.entities_page import Entity
from jaxnlp.tasks.tagging.inference import Labelled
from jaxnlp.text.word_split import placed_words

TEXT = "Anna visits New York."


@pytest.mark.thorough
def test_entities_are_printed_with_type_place_confidence_and_words(run, capsys):
    assert main(["predict", str(run), TEXT, "the dog sleeps ."]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == TEXT
    kind, place, confidence, words = lines[1].strip().split("\t")
    assert (kind, place, words) == ("PER", "0-4", "Anna")
    assert 0.3 < float(confidence) <= 1.0
    assert lines[2].split("\t")[3] == "New York"
    assert lines[3:] == ["the dog sleeps ."]


@pytest.mark.thorough
def test_json_lines_and_pages_have_the_same_entities(run, tmp_path, capsys):
    assert main(["predict", str(run), TEXT, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == TEXT
    assert all(TEXT[one["start"] : one["end"]] == one["text"] for one in answer["entities"])
    assert [one["text"] for one in answer["entities"]] == ["Anna", "New York"]
    page = tmp_path / "page.html"
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n<b>Anna</b>\n")
    assert main(["predict", str(run), "--file", str(tmp_path / "texts.txt"), "--json", "--html", str(page)]) == 0
    printed, error = capsys.readouterr()
    assert json.loads(printed.splitlines()[0]) == answer
    assert error.endswith(f"entities in {page}\n")
    assert "New York<b>LOC</b></mark>" in page.read_text()
    assert "&lt;b" in page.read_text()


def test_files_of_columns_get_a_further_column(run, tmp_path, capsys, on_standard_input):
    path, out = tmp_path / "x.conll", tmp_path / "y.conll"
    path.write_text("1\tAnna\tB-PER\n2\tsleeps\tO\n\n1\tOslo\tB-LOC\n")
    arguments = ["predict", str(run), "--conll", str(path), "--word-column", "1"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    lines = printed.split("\n")
    assert lines[0] == "1\tAnna\tB-PER\tB-PER"  # in the scheme of the file, not in BIOES
    assert lines[1] == "2\tsleeps\tO\tO"
    assert lines[2] == ""
    assert lines[3].startswith("1\tOslo\tB-LOC\t")
    on_standard_input(path.read_bytes())
    assert main(["predict", str(run), "--conll", "-", "--word-column", "1"]) == 0
    assert capsys.readouterr().out == printed
    on_standard_input(b"Anna\tO\nsleeps\n")
    assert main(["predict", str(run), "--conll", "-"]) == 2
    assert "standard input, line 2 (sentence 1, word 2): " in capsys.readouterr().err
    assert main([*arguments, "--out", str(out)]) == 0
    assert out.read_text() == printed
    assert capsys.readouterr().out == f"{out}\n"
    path.write_bytes(b"-DOCSTART- -X- O\r\n\r\nAnna NNP U-PER\r\nsleeps VBZ O")
    assert main(["predict", str(run), "--conll", str(path)]) == 0
    # BILOU, as in the file, and as many columns in each line.
    assert capsys.readouterr().out == "-DOCSTART- -X- O O\n\nAnna NNP U-PER U-PER\nsleeps VBZ O O\n"
    path.write_text("Anna B_PER\nsleeps O\n")
    assert main(["predict", str(run), "--conll", str(path)]) == 2
    assert f"{path}, last column: B_PER looks like the label of an entity" in capsys.readouterr().err
    path.write_text("Anna\tPROPN\nsleeps\tVERB\n")
    assert main(["predict", str(run), "--conll", str(path)]) == 0
    assert capsys.readouterr().out == "Anna\tPROPN\tS-PER\nsleeps\tVERB\tO\n"


def test_the_column_of_the_words_is_that_of_the_training_file(trained, tmp_path, capsys):
    path = tmp_path / "x.tsv"
    path.write_text("doc0\tAnna\tB-PER\ndoc0\tsleeps\tO\n")
    of_run = dataclasses.replace(trained, config={"data": {"word_column": 1}})
    Predict(conll=path)(of_run)
    assert capsys.readouterr().out == "doc0\tAnna\tB-PER\tB-PER\ndoc0\tsleeps\tO\tO\n"
    Predict(conll=path, word_column=0)(of_run)
    assert capsys.readouterr().out.startswith("doc0\tAnna\tB-PER\tO\n")


def test_a_model_of_characters_reads_a_file_with_their_positions(trained, tmp_path, monkeypatch, capsys):
    read = []
    label = lambda trained, words, of_one_text: read.extend(words) or [Labelled(["O"] * len(row), []) for row in words]  # noqa: E731
    monkeypatch.setattr("jaxnlp.tasks.tagging.commands.label_sentences", label)
    (tmp_path / "x.conll").write_text("京0\tO\n城1\tO\n")
    processor = dataclasses.replace(trained.processor, unit="characters")
    Predict(conll=tmp_path / "x.conll")(dataclasses.replace(trained, processor=processor))
    assert read == [("京", "城")]
    assert capsys.readouterr().out == "京0\tO\tO\n城1\tO\tO\n"


def test_a_blank_line_of_a_file_is_a_text_without_entities(run, tmp_path, capsys):
    path, page = tmp_path / "texts.txt", tmp_path / "page.html"
    path.write_text(f"{TEXT}\n \u200b\n{TEXT}\n")
    assert main(["predict", str(run), "--file", str(path), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(one["entities"]) for one in found] == [2, 0, 2]
    assert main(["predict", str(run), "--file", str(path), "--html", str(page)]) == 0
    assert page.read_text().count("New York<b>LOC</b></mark>") == 2


@pytest.fixture
def long_word(monkeypatch):
    """Treats the word Oslo as one with too many tokens."""
    problem = lambda self, words: "the word 'Oslo' is too long" if "Oslo" in words else None  # noqa: E731
    monkeypatch.setattr("jaxnlp.text.word_inputs.WordInputs.problem", problem)


@pytest.mark.thorough
@pytest.mark.usefixtures("long_word")
def test_a_text_with_a_word_that_is_too_long_is_reported_and_the_others_are_labelled(run, trained, tmp_path, capsys):
    path, page = tmp_path / "texts.txt", tmp_path / "page.html"
    path.write_text(f"{TEXT}\nOslo\n{TEXT}\n")
    place = f"{path}, line 2: the word 'Oslo' is too long"
    assert main(["predict", str(run), "--file", str(path), "--json"]) == 0
    printed, error = capsys.readouterr()
    assert [json.loads(line)["entities"] is None for line in printed.splitlines()] == [False, True, False]
    assert error.endswith(f"note: 1 of 3 texts has no labels; {place}\n")
    assert main(["predict", str(run), "--file", str(path)]) == 0
    assert "Oslo\n  not labelled: the word 'Oslo' is too long\n" in capsys.readouterr().out
    assert main(["predict", str(run), "--file", str(path), "--html", str(page)]) == 0
    assert page.read_text().count("<p>Oslo</p>") == 1
    assert main(["predict", str(run), "Oslo"]) == 2
    assert "text 1: the word 'Oslo' is too long" in capsys.readouterr().err
    with pytest.raises(ValueError, match="text 2: the word 'Oslo' is too long"):
        trained.tag([TEXT, "Oslo"])
    (tmp_path / "x.conll").write_text("Anna\n\nOslo\n")
    assert main(["predict", str(run), "--conll", str(tmp_path / "x.conll")]) == 2
    printed, error = capsys.readouterr()
    assert printed == ""
    assert "x.conll, line 3 (sentence 2): the word 'Oslo' is too long" in error


def test_a_page_has_the_texts_before_a_failure(run, tmp_path, capsys, monkeypatch):
    def until_failure(*arguments, **options):
        yield (TEXT,)
        raise OSError("the disk is gone")

    monkeypatch.setattr("jaxnlp.tasks.tagging.commands.chunks", lambda items: ([item] for item in items))
    monkeypatch.setattr("jaxnlp.tasks.tagging.commands.rows_of", until_failure)
    page = tmp_path / "page.partial.html"
    assert main(["predict", str(run), "--html", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err
    assert "the disk is gone" in error
    assert f"note: {page} has only texts before the failure" in error
    assert "New York<b>LOC</b></mark>" in page.read_text()
    assert list(tmp_path.iterdir()) == [page]


def test_files_of_columns_have_the_encoding_of_files_of_texts_and_are_not_json(run, tmp_path, capsys):
    path = tmp_path / "x.conll"
    path.write_bytes("Zoë\tB-PER\n".encode("cp1252"))
    assert main(["predict", str(run), "--conll", str(path)]) == 2
    assert "set --data.encoding" in capsys.readouterr().err
    assert main(["predict", str(run), "--conll", str(path), "--data.encoding", "cp1252"]) == 0
    assert capsys.readouterr().out.startswith("Zoë\tB-PER\t")
    path.write_text('{"tokens": ["Ann"], "ner_tags": ["B-PER"]}\n')
    assert main(["predict", str(run), "--conll", str(path)]) == 2
    assert f"{path} is JSON; --conll reads a word a line" in capsys.readouterr().err


def test_a_file_of_columns_is_not_read_as_texts(run, tmp_path, capsys):
    path = tmp_path / "x.txt"
    path.write_text("-DOCSTART- X O\n\nAnna X B-PER\nsleeps X O\n")
    assert main(["predict", str(run), "--file", str(path)]) == 2
    printed, error = capsys.readouterr()
    assert (printed, f"not a text; give --conll {path}\n" in error) == ("", True)
    path.write_text("Anna has blood group O\nAnna sleeps\n")
    assert main(["predict", str(run), "--file", str(path)]) == 0
    assert "Anna" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--conll", "x"], "--conll excludes texts, --file, --json and --html"),
        (["a", "--out", "x"], "--out and --word-column apply only to --conll"),
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
    assert [(one.type, one.text) for one in first] == [("PER", "Anna"), ("LOC", "New York")]
    assert all(one.text == TEXT[one.start : one.stop] for one in first)
    assert second == []
    assert [one.type for one in trained.tag(TEXT)] == ["PER", "LOC"]
    assert [len(one) for one in trained.tag([TEXT, " "])] == [2, 0]
    assert (trained.tag(""), trained.tag([])) == ([], [])


def test_in_python_words_may_be_split_already(trained):
    words = ["Anna", "visits", "New", "York", "."]
    split, text = trained.tag([words, TEXT])
    assert [one[:3] for one in split] == [(0, 1, "PER"), (2, 4, "LOC")]
    assert [one.text for one in split] == [one.text for one in text] == ["Anna", "New York"]
    np.testing.assert_allclose([one.confidence for one in split], [one.confidence for one in text])
    assert trained.tag([tuple(words)]) == trained.tag([np.array(words)]) == trained.tag(np.array([words])) == [split]
    (spaced,) = trained.tag([["Anna", " ", "visits", "New", "York", "."]])
    assert [(one[:3], one.text) for one in spaced] == [((0, 1, "PER"), "Anna"), ((3, 5, "LOC"), "New York")]
    assert trained.tag([["", " "]]) == [[]]
    # A list of strings is a list of texts.
    assert [[one.text for one in found] for found in trained.tag(["Anna", "visits"])] == [["Anna"], []]


def test_characters_of_an_entity_are_joined_without_blanks(trained):
    processor = dataclasses.replace(trained.processor, unit="characters")
    found = Labelled(["B-LOC", "E-LOC", "O"], [0.5, 0.25, 1.0])
    for sentence in (list("北京市"), "北京市"):
        words = placed_words(sentence, processor.unit)
        assert entities_of(processor, sentence, words, found) == [Entity(0, 2, "LOC", 0.25, "北京")]
