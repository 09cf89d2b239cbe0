import re

import pytest

from data import DataError
from data.invented_people import invent, write
from data.names import NamesQuestions
from data.readers.birth_places import read_documents, read_questions
from jaxnlp.text.characters import MASK, PAD

PEOPLE = invent(1, train=12, dev=5, test=3)


@pytest.fixture
def folder(tmp_path):
    write(PEOPLE, tmp_path)
    return tmp_path


def questions(folder):
    return NamesQuestions(path=str(folder), batch_size=4, held_out=3)


def test_missing_files_are_named(folder):
    (folder / "birth_dev.tsv").unlink()
    (folder / "wiki.txt").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"does not have wiki\.txt, birth_dev\.tsv; copy the assignment's files there"
    ):
        questions(folder).load(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"Ada. Born {MASK}.\n", f"line 1: contains {MASK!r} (U+2047), which is the MASK token; replace it"),
        (f"Ada. Born .\nBob{PAD}. Born\n", f"line 2: contains {PAD!r} (U+25A1), which is the PAD token; replace it"),
    ],
    ids=["mask", "pad"],
)
def test_a_line_that_is_no_document_is_refused_with_its_number(tmp_path, text, message):
    path = tmp_path / "wiki.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"{path}, {message}")):
        read_documents(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Where?\tHere\nWhere was she born?\n", "line 2: expected a tab and a place, got 'Where was she born?'"),
        ("Where?\tHere\tThere\n", "line 1: expected 'question', or 'question TAB place'"),
        (f"Where{MASK}?\tHere\n", f"line 1: contains {MASK!r}"),
    ],
    ids=["no_tab", "two_tabs", "mask"],
)
def test_a_line_that_is_no_question_is_refused_with_its_number(tmp_path, text, message):
    path = tmp_path / "questions.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"{path}, {message}")):
        read_questions(path, labelled=True)


def test_blank_lines_are_skipped_and_counted_and_questions_keep_their_places(folder, tmp_path, caplog):
    path = tmp_path / "file.tsv"
    path.write_text("\nAda. Born .\n \u200b\nBob. Born .\n", encoding="utf-8")
    assert read_documents(path) == ["Ada. Born .", "Bob. Born ."]
    assert caplog.messages == [f"{path}: lines without text, which are skipped: 2 of 4, the first in line 1"]
    path.write_text(f"\n{PEOPLE.test[0]}\n \tRome\n{PEOPLE.test[1]}\n")
    split = questions(folder).read_file(path, questions(folder).load(0).processor)
    assert [question.text for question in split.examples] == list(PEOPLE.test[:2])
    assert split.in_rows(["x", "y"], "") == ["", "x", "", "y"]
    path.write_text("\n\n")
    with pytest.raises(DataError, match="all 2 lines are without text"):
        read_questions(path)


def test_short_documents_and_questions_without_a_place_stop_no_training(tmp_path, caplog):
    path = tmp_path / "file.tsv"
    path.write_text("Ada. Born .\nAb.\nBob. Born .\n")
    assert read_documents(path) == ["Ada. Born .", "Bob. Born ."]
    path.write_text("Where?\tHere\nWhen?\t\u200b\nWho?\tAda\t\n", encoding="utf-8")
    read = read_questions(path, labelled=True)
    asked = [(question.text, question.answer) for question in read.questions.values()]
    assert asked == [("Where?", "Here"), ("Who?", "Ada")]
    assert read.source(read.questions).indices == [0, 2]
    assert [question.text for question in read.without.values()] == ["When?"]
    assert caplog.messages == [
        f"{path}: lines shorter than 4 characters, which are skipped: 1 of 3, the first in line 2",
        f"{path}: questions without a place, which are skipped: 1 of 3, the first in line 2",
    ]


@pytest.mark.parametrize("end", ["", "\t", "\t "])
def test_a_question_without_a_place_is_answered_but_not_scored(folder, tmp_path, caplog, end):
    config, path = questions(folder), tmp_path / "file.tsv"
    (first, place), (second, _) = PEOPLE.dev[:2]
    vocabulary = config.load(0).processor
    path.write_text(f"{second}{end}\n\n{first}\t{place}\n")
    split = config.read_file(path, vocabulary)
    assert f"{path}: questions without a place, which are not scored: 1 of 3, the first in line 1" in caplog.messages
    assert ([one.text for one in split.examples], split.in_rows(["x"], "")) == ([first], ["", "", "x"])
    others = split.unlabelled
    assert ([one.text for one in others.examples], others.in_rows(["y"], "")) == ([second], ["y", "", ""])
    assert (split.scored, others.scored) == (True, False)
    path.write_text(f"{second}{end}\n{first}\t \n")
    split = config.read_file(path, vocabulary)
    assert (len(split.examples), split.scored, split.unlabelled) == (2, False, None)
    with pytest.raises(DataError, match="all 2 questions are without a place" if end else "line 1: expected a tab"):
        read_questions(path, labelled=True)


def test_questions_of_dev_and_test_may_have_other_characters_than_those_of_training(folder):
    for name, line in (
        ("birth_dev.tsv", "Where was Žé born?\tÅrhus\n"),
        ("birth_test_inputs.tsv", "Where was ÿ born?\n"),
    ):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(line)
    corpus = questions(folder).load(0)
    assert {"Ž", "é", "Å", "ÿ"} <= set(corpus.processor.characters)
    assert corpus.split("dev").examples[-1].text == "Where was Žé born?"


def test_an_encoding_is_not_an_option_of_these_files(folder):
    (folder / "birth_dev.tsv").write_text("Where was Zoë born?\tOslo\n", encoding="latin1")
    with pytest.raises(DataError, match=r"line 1, .* probably Latin-1; convert it: iconv"):
        questions(folder).load(0)


def test_training_questions_must_have_places(folder):
    (folder / "birth_places_train.tsv").write_text("Where was Ada born?\n")
    with pytest.raises(DataError, match=re.escape("birth_places_train.tsv, line 1: expected a tab and a place")):
        questions(folder).load(0)


def test_a_file_without_a_question_of_known_characters_is_refused(folder, tmp_path):
    path = tmp_path / "other.tsv"
    path.write_text("Where was Ж born?\tRome\n", encoding="utf-8")
    config = questions(folder)
    vocabulary = config.load(0).processor
    shown = f"{path}, line 1: question 'Where was Ж born?': not in the vocabulary"
    with pytest.raises(DataError, match=re.escape(shown)):
        config.read_file(path, vocabulary)
