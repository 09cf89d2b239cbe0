import re

import pytest

from data import DataError
from data.readers.documents import file_documents, python_documents, read_documents, sentences


def written(folder, content):
    path = folder / "text.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "one one\ntwo\n\nthree\n",
        "\n\n one one \r\ntwo\r\n \t\r\n\r\nthree",
        "\ufeffone one\ntwo\n\n\n\nthree\n\n",
    ],
    ids=["plain", "blank lines and line ends", "byte-order mark"],
)
def test_lines_are_sentences_and_blank_lines_part_documents(tmp_path, content):
    path = written(tmp_path, content)
    assert file_documents(path) == [["one one", "two"], ["three"]]
    assert read_documents("text_file", str(path)) == [["one one", "two"], ["three"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"text\.txt is empty"),
        ("\n \n\t\n", r"text\.txt has no sentences; expected one a line, and a blank line between documents"),
        (b"one\ntwo\n\nthr\xe9e\n", r"text\.txt, line 4, offset 12: byte 0xe9 is not UTF-8; "),
        ("one\n\ntwo [MASK] three\n", r"text\.txt, line 3: contains \[MASK\], which is a special token; replace it"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_with_its_name_and_line(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        file_documents(written(tmp_path, content))


def test_sources_and_paths_belong_together(tmp_path):
    with pytest.raises(
        DataError, match=r"python_docs takes no path, got a\.txt; for your own text, set --data.source text_file"
    ):
        read_documents("python_docs", "a.txt")
    with pytest.raises(DataError, match=r"text_file needs the file: give it with --data\.path FILE"):
        read_documents("text_file")
    with pytest.raises(FileNotFoundError, match=r"text file .*missing\.txt does not exist"):
        read_documents("text_file", str(tmp_path / "missing.txt"))


def test_documents_of_a_labelled_data_set_are_its_training_pairs_without_labels(tmp_path):
    lines = (
        '{"sentence1": "a b", "sentence2": "c", "label": "1"}',
        '{"sentence1": "d", "sentence2": "e", "label": "0"}',
    )
    (tmp_path / "train.json").write_text("\n".join(lines))
    assert read_documents("afqmc", str(tmp_path)) == [["a b", "c"], ["d", "e"]]
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere; give a folder that contains train\.json"):
        read_documents("afqmc", str(tmp_path / "nowhere"))


def test_python_documents_are_sections_of_english_sentences_that_do_not_repeat():
    documents = python_documents()
    assert documents == read_documents("python_docs")
    assert len(documents) > 100
    found = [sentence for document in documents for sentence in document]
    assert sum(map(len, found)) > 250_000
    assert all(sentence == " ".join(sentence.split()) and re.search(r"\w", sentence) for sentence in found)
    # Of long sentences: short ones, such as "Changed in version 3.5:", may well occur again.
    long = [sentence for sentence in found if len(sentence) > 80]
    assert len(long) > 1_000
    assert len(set(long)) > 0.97 * len(long)
    (assertion,) = [document for document in documents if document[0] == 'The "assert" statement']
    assert assertion[1] == "Assert statements are a convenient way to insert debugging assertions into a program:"


def test_sentences_end_where_a_capital_letter_follows():
    text = 'It is so, e.g. here. Is it? "Yes!" (No.) *Perhaps* it is: In 3.5 it was. version 2.'
    expected = ["It is so, e.g. here.", "Is it?", '"Yes!"', "(No.)", "*Perhaps* it is:", "In 3.5 it was. version 2."]
    assert sentences(text) == expected


def test_a_table_that_is_read_as_sentences_is_reported(tmp_path, caplog):
    path = tmp_path / "corpus.csv"
    path.write_text("text\none\ntwo\n")
    assert file_documents(path) == [["text", "one", "two"]]
    assert [message.split(":")[0] for message in caplog.messages] == [str(path)]
