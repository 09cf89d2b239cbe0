import pytest

from data.data_sets import DATA_SETS, RemoteFile, read_data_sets

PLAYS = RemoteFile("plays", "plays/input.txt", "https://example.org/plays.txt", "0" * 64)
LEADING_OUT = ("../x", "a/../../x", "/x", "..", "a/..", "..\\x", "C:\\x", "C:x", "\\\\host\\share\\x", "../folder/")
"""Paths that are absolute or leave their folder, by the rules of POSIX or of Windows."""
TABLE = """
[plays]
title = "Plays"
page = "https://example.org/"
licence = "public domain"
megabytes = 1.5
address = "https://example.org/files/"
note = "Ask for the notes."

[plays.files]
"input.txt" = "{a}"
"scenes.txt.gz" = "{b}"
"notes.txt" = "{c}"

[plays.served]
"scenes.txt.gz" = "scenes.txt"
"notes.txt" = ""
""".format(a="a" * 64, b="b" * 64, c="c" * 64)


@pytest.fixture
def table(tmp_path):
    def read(text):
        path = tmp_path / "table.toml"
        path.write_text(text)
        return read_data_sets(path)

    return read


def test_a_table_says_which_files_are_downloaded_and_which_are_not(table):
    (plays,) = table(TABLE).values()
    assert (plays.name, plays.title, plays.megabytes, plays.note) == ("plays", "Plays", 1.5, "Ask for the notes.")
    assert plays.remote == (
        RemoteFile("plays", "plays/input.txt", "https://example.org/files/input.txt", "a" * 64),
        RemoteFile("plays", "plays/scenes.txt.gz", "https://example.org/files/scenes.txt", "b" * 64),
    )
    assert plays.by_hand == ("notes.txt",)
    assert list(plays.checksums) == ["input.txt", "scenes.txt.gz", "notes.txt"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            ('"notes.txt" = ""', '"note.txt" = ""'),
            ValueError,
            "plays: served names note.txt, which files does not have",
        ),
        (("https://example.org/files", "http://example.org/files"), ValueError, "https://"),
        (('title = "Plays"', ""), TypeError, "title"),
        (("licence", "license"), TypeError, "license"),
    ],
)
def test_a_table_with_an_error_is_refused(table, change, error, message):
    assert TABLE.replace(*change) != TABLE
    with pytest.raises(error, match=message):
        table(TABLE.replace(*change))


def test_addresses_name_a_version_that_does_not_change():
    """A branch's name in an address would serve other content one day; a commit's does not."""
    found = [file.url.split("/") for data_set in DATA_SETS.values() for file in data_set.remote]
    assert len(found) > 30
    for parts in found:
        assert parts[2] == "raw.githubusercontent.com"
        assert len(parts[5]) == 40, parts
        int(parts[5], 16)


def test_every_data_set_says_where_all_of_its_files_come_from():
    for data_set in DATA_SETS.values():
        assert data_set.page.startswith("https://")
        assert data_set.licence
        assert data_set.note or not data_set.by_hand, data_set.name


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("url", "http://example.org/plays.txt", "https://"),
        ("url", "file:///etc/passwd", "https://"),
        ("url", "https:///plays.txt", "https://"),
        ("sha256", "", "64 lower-case hex digits"),
        ("sha256", "0" * 63, "64 lower-case hex digits"),
        ("sha256", "0" * 64 + "\n", "64 lower-case hex digits"),
        ("sha256", "g" * 64, "64 lower-case hex digits"),
        ("relative_path", "", "without '..'"),
        ("relative_path", ".", "without '..'"),
        *(("relative_path", path, "without '..'") for path in LEADING_OUT),
    ],
)
def test_a_wrong_description_is_refused_with_what_was_given_and_what_is_expected(field, value, expected):
    fields = {"name": "plays", "relative_path": "plays/input.txt", "url": PLAYS.url, "sha256": PLAYS.sha256}
    assert RemoteFile(**fields) == PLAYS
    with pytest.raises(ValueError, match=field) as caught:
        RemoteFile(**fields | {field: value})
    assert repr(value) in str(caught.value)
    assert expected in str(caught.value)
