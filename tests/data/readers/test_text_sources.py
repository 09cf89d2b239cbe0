import functools
import gzip
import logging
import os
import re
from collections import Counter

import pytest

from data import DataError
from data.readers.text_sources import python_docs, source_documents, source_text, text_files


def written(folder, content):
    path = folder / "text.txt"
    path.write_bytes(content)
    return path


def test_python_docs_is_english_prose_long_enough_to_learn_from():
    text = python_docs()
    words = re.findall(r"[a-z]+", text.lower())
    assert len(text) > 400_000
    assert Counter(words).most_common(1)[0][0] == "the"
    assert Counter(letter for word in words for letter in word).most_common(1)[0][0] == "e"
    assert len(set(text)) < 200


def test_python_docs_holds_the_topics_of_help_in_alphabetical_order():
    text = python_docs()
    places = [text.index(f'The "{keyword}" statement\n*') for keyword in ("assert", "break", "try", "while")]
    assert places == sorted(places)


def test_python_docs_is_the_same_text_each_time():
    assert python_docs() == source_text("python_docs") == python_docs()


@pytest.mark.parametrize("source", ["text_file", "tiny_shakespeare"])
def test_a_given_path_is_read_whatever_the_source(tmp_path, source):
    assert source_text(source, str(written(tmp_path, b"my own text"))) == "my own text"


def test_text_file_without_path_says_which_option_is_missing():
    with pytest.raises(DataError, match=r"text_file needs the file: give it with --data\.path FILE"):
        source_text("text_file")


def test_python_docs_refuses_a_path():
    with pytest.raises(
        DataError, match=r"python_docs takes no path, got my\.txt; for your own text, set --data.source text_file"
    ):
        source_text("python_docs", "my.txt")


@pytest.mark.realdata
def test_tiny_shakespeare_has_its_published_size():
    text = source_text("tiny_shakespeare")
    assert (len(text), len(set(text))) == (1_115_394, 65)
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.")


@pytest.fixture
def poems(tmp_path, monkeypatch):
    """A folder of texts, other files, and a subfolder; it is the current folder."""
    for name in ("b.txt", "a.txt", "E.TXT", "notes.md", "deep/c.txt", "deep/.x.png"):
        path = tmp_path / "poems" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    (tmp_path / "poems" / "d.txt.gz").write_bytes(gzip.compress(b"d\n"))
    (tmp_path / "poems" / "folder.txt").mkdir()
    monkeypatch.chdir(tmp_path / "poems")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["."], ["E.TXT", "a.txt", "b.txt", "d.txt.gz", "deep/c.txt"]),
        (["b.txt", "a.txt"], ["a.txt", "b.txt"]),
        (["*.txt"], ["a.txt", "b.txt"]),
        (["*"], ["E.TXT", "a.txt", "b.txt", "d.txt.gz", "notes.md"]),
        (["**/*.txt"], ["a.txt", "b.txt", "deep/c.txt"]),
        (["notes.md", "deep", "[a]*"], ["a.txt", "deep/c.txt", "notes.md"]),
    ],
)
def test_files_folders_and_patterns_are_sorted_files(poems, given, expected):
    assert [path.as_posix() for path in text_files(given)] == expected


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["a.txt", "a.txt"], DataError, "a.txt is given twice, by a.txt and by a.txt"),
        (["a.txt", "../poems/*.txt"], DataError, "../poems/a.txt is given twice, by a.txt and by ../poems/*.txt"),
        (["folder.txt"], DataError, 'the folder folder.txt has no .txt files; give others by a pattern: --data.path "'),
        (["*.rst"], DataError, "no file fits the pattern *.rst"),
        (
            ["c.txt"],
            FileNotFoundError,
            "the text file c.txt does not exist; give text files, a folder or a pattern with",
        ),
    ],
)
def test_files_that_cannot_be_meant_are_refused(poems, given, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        text_files(given)


def test_linked_folders_are_read_once_also_in_a_loop(poems, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "z.txt").write_text("z")
    for name, target in (("loop", "."), ("deep/up", "../.."), ("linked", "../elsewhere"), ("linked/b", "../poems")):
        (tmp_path / "poems" / name).symlink_to(target)
    own, linked = ["E.TXT", "a.txt", "b.txt", "d.txt.gz", "deep/c.txt"], "linked/z.txt"
    assert [path.as_posix() for path in text_files(["."])] == [*own, linked]
    assert [path.as_posix() for path in text_files(["linked"])] == [*(f"linked/b/{name}" for name in own), linked]
    assert [path.as_posix() for path in text_files(["deep/**/*.txt"])] == ["deep/c.txt"]


@pytest.mark.parametrize("given", [".", "**/*.txt", "deep", "dee?/*"])
def test_a_folder_that_cannot_be_read_is_an_error_with_its_name(given, poems, monkeypatch):
    def refuse(read, path="."):
        if os.path.basename(path) == "deep":
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return read(path)

    for name in ("listdir", "scandir"):  # of pathlib and glob; a superuser may read every folder
        monkeypatch.setattr(os, name, functools.partial(refuse, getattr(os, name)))
    with pytest.raises(PermissionError, match="deep"):
        text_files([given])


@pytest.mark.parametrize("given", [".", "*.txt", "**"])
def test_a_link_to_nothing_is_an_error_with_its_name(given, poems):
    os.symlink("gone.txt", "y.txt")
    with pytest.raises(FileNotFoundError, match=r"^y\.txt is a link to gone\.txt, which does not exist"):
        text_files([given])


def test_copies_and_notes_of_other_programs_are_not_texts(poems, tmp_path):
    for name in (".ipynb_checkpoints/a-checkpoint.txt", "deep/._c.txt", ".hidden.txt"):
        path = tmp_path / "poems" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0\5\x16\7")
    assert [path.name for path in text_files(["."])] == ["E.TXT", "a.txt", "b.txt", "d.txt.gz", "c.txt"]
    assert [path.name for path in text_files([".hidden.txt"])] == [".hidden.txt"]


def test_other_files_of_a_folder_are_counted(poems, caplog):
    text_files(["."])
    assert caplog.messages == [
        ".: files that are ignored, because their names do not end in .txt or .txt.gz: 1, such as notes.md"
    ]


def test_blank_files_do_not_stop_the_others(poems, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    (tmp_path / "poems" / "b.txt").write_bytes(b"")
    (tmp_path / "poems" / "d.txt.gz").write_bytes(gzip.compress("\ufeff \u200b\n".encode()))
    assert source_documents("text_file", ("a.txt", "b.txt", "d.txt.gz")) == ["a.txt\n"]
    assert caplog.messages == ["blank files, which are skipped: 2 of 3, the first is b.txt"]
    with pytest.raises(DataError, match=r"all 2 files are blank, such as b\.txt"):
        source_documents("text_file", ("b.txt", "d.txt.gz"))


def test_each_file_of_the_users_is_a_document(poems):
    assert source_documents("text_file", ("b.txt", "d.txt.gz", "a.txt")) == ["a.txt\n", "b.txt\n", "d\n"]
    assert source_documents("text_file", "a.txt") == ["a.txt\n"]
    assert source_documents("python_docs") == [python_docs()]


@pytest.mark.parametrize(
    ("source", "path", "message"),
    [
        ("text_file", None, "needs the text: give files, a folder or a pattern with --data.path"),
        ("text_file", (), "needs the text: give files, a folder or a pattern with --data.path"),
        ("tiny_shakespeare", ("a.txt", "b.txt"), "data.source tiny_shakespeare takes one path, got a.txt, b.txt"),
        ("python_docs", "a.txt", "python_docs takes no path, got a.txt; for your own text"),
    ],
)
def test_paths_that_a_source_does_not_take_are_refused(poems, source, path, message):
    with pytest.raises(DataError, match=re.escape(message)):
        source_documents(source, path)


@pytest.mark.parametrize("read", [source_text, lambda source, path: source_documents(source, path)[0]])
def test_a_table_that_is_read_as_text_is_reported(tmp_path, caplog, read):
    for name in ("corpus.jsonl", "corpus.txt"):
        (tmp_path / name).write_text('{"text": "my own text"}')
        assert read("text_file", str(tmp_path / name)) == '{"text": "my own text"}'
    assert [message.split(":")[0] for message in caplog.messages] == [str(tmp_path / "corpus.jsonl")]
