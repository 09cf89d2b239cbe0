import codecs
import gzip
import re

import pytest

from jaxnlp.corpus import DataError
from jaxnlp.input_files.text_files import (
    bad_byte,
    check_encoding,
    decoded,
    probable_encoding,
    read_text_file,
    warn_of_skipped,
)

QUOTED = "a film\n\u201cnice\u201d for \u20ac 5\n"


def written(folder, content, name="text.txt"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_become_lf(tmp_path, line_end):
    path = written(tmp_path, line_end.join([b"one", b"", b"two", b""]))
    assert read_text_file(path) == "one\n\ntwo\n"
    assert read_text_file(path, old_line_ends=False) == "one\n\ntwo\n"


def test_a_carriage_return_in_a_line_is_no_line_end_where_others_are(tmp_path):
    path = written(tmp_path, b"one\rand\ntwo")
    assert read_text_file(path) == "one\nand\ntwo"
    assert read_text_file(path, old_line_ends=False) == "one and\ntwo"


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_characters_are_kept_and_a_byte_order_mark_is_none(tmp_path, mark):
    text = "zwölf 汉字 \U0001f600 \u2028 end"
    assert read_text_file(written(tmp_path, mark + text.encode())) == text


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "utf-32", "UTF8"])
def test_another_encoding_is_read(tmp_path, encoding):
    assert read_text_file(written(tmp_path, QUOTED.encode(encoding)), encoding) == QUOTED


@pytest.mark.parametrize(
    ("content", "place", "byte", "advice"),
    [
        (b"\xff", "line 1, offset 0", "0xff", "--data.encoding cp1251 (Cyrillic), gb18030"),
        (b"one\ntwo\ncaf\xe9 three\nfour", "line 3, offset 11", "0xe9", "--data.encoding latin1, or convert it"),
        (
            b"one\r\ntwo \x80",
            "line 2, offset 9",
            "0x80",
            "Windows-1252, as of Excel; set --data.enc",
        ),
        (QUOTED.encode("cp1252"), "line 2, offset 7", "0x93", "iconv -f cp1252 -t utf-8 FILE > NEW_FILE"),
        (b"one\rtwo \x80 ab", "line 2, offset 8", "0x80", "--data.encoding cp1252"),
        (b"abcdefgh \x81\n", "line 1, offset 9", "0x81", "--data.encoding cp1251 (Cyrillic), gb18030"),
        (bytes(range(0xC0, 0xF0)) + b" no", "line 1, offset 0", "0xc0", "cp1251 (Cyrillic)"),
        (QUOTED.encode("utf-16"), "line 1, offset 0", "0xff", "probably UTF-16; set --data.encoding utf-16,"),
        (QUOTED.encode("utf-32"), "line 1, offset 0", "0xff", "--data.encoding utf-32,"),
        ("text\tlabel".encode("utf-16-le"), "line 1, offset 1", "0x00", "--data.encoding utf-16-le,"),
        ("text\tlabel".encode("utf-16-be"), "line 1, offset 0", "0x00", "--data.encoding utf-16-be,"),
        ("zwölf ä\nb\xe9".encode()[:-1] + b"!", "line 2, offset 11", "0xc3", "other characters of the file are; mend"),
        ("äone two\0".encode(), "line 1, offset 9", "0x00", "is not text: this is a binary file, or it is damaged"),
        (
            b"PK\x03\x04\x14\xac\0\0ab",
            "line 1, offset 5",
            "0xac",
            "a binary file, such as an archive or an image; give a text",
        ),
    ],
)
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_bytes_that_are_not_utf8_are_named_with_their_place_and_the_probable_encoding(
    tmp_path, content, place, byte, advice, mark
):
    if mark:  # counts as bytes of the file
        if content[:1] == b"\xff" or b"\0" in content:
            return  # two byte-order marks, or not UTF-8
        place = re.sub(r"\d+$", lambda found: str(int(found[0]) + 3), place)
    path = written(tmp_path, mark + content)
    with pytest.raises(DataError) as error:
        read_text_file(path, "utf-8")
    assert str(error.value).startswith(f"{path}, {place}: byte {byte} is not ")
    assert mark or advice in str(error.value)
    with pytest.raises(DataError) as error:
        read_text_file(path)
    assert "--data.encoding" not in str(error.value)


def test_bytes_that_are_not_of_the_given_encoding_are_named(tmp_path):
    message = r"text.txt, line 2, offset 4: byte 0x81 is not cp1252; set --data.encoding to the file's encoding"
    with pytest.raises(DataError, match=message):
        read_text_file(written(tmp_path, b"one\n\x81\n"), "cp1252")
    for encoding in ("utf-8", "utf-8-sig"):
        with pytest.raises(DataError, match=r"line 1, offset 4: byte 0xe9 is not UTF-8"):
            read_text_file(written(tmp_path, b"\xef\xbb\xbfa\xe9\n"), encoding)
    with pytest.raises(DataError, match=r"line 1, offset 0: byte 0x00 is not text; set --data.encoding"):
        read_text_file(written(tmp_path, "ab".encode("utf-16-be")), "latin1")


def test_utf8_that_is_read_in_another_encoding_is_reported(tmp_path, caplog):
    assert read_text_file(written(tmp_path, "café".encode()), "cp1252") == "cafÃ©"
    assert "text.txt is also UTF-8; it is read as cp1252" in caplog.text
    caplog.clear()
    read_text_file(written(tmp_path, b"a cafe"), "utf-16-le")
    assert "text.txt is also UTF-8; it is read as utf-16-le" in caplog.text
    caplog.clear()
    for content, encoding in ((b"cafe", "cp1252"), ("cafe".encode("utf-16-le"), "utf-16-le")):
        read_text_file(written(tmp_path, content), encoding)
    assert not caplog.messages


def test_windows_1252_that_is_read_as_latin_1_is_reported(tmp_path, caplog):
    text = read_text_file(written(tmp_path, QUOTED.encode("cp1252")), "latin1")
    assert "\x93nice\x94" in text
    assert "text.txt is probably Windows-1252, as of Excel; it is read as latin1, with control char" in caplog.text
    caplog.clear()
    read_text_file(written(tmp_path, "café\n".encode("latin1")), "latin1")
    read_text_file(written(tmp_path, QUOTED.encode("cp1252")), "cp1252")
    assert not caplog.messages


def test_only_names_of_text_encodings_are_encodings():
    for name in ("utf-8", "cp1252", "UTF-16", "gb18030"):
        check_encoding(name)
    for name in ("windows", "base64", ""):
        with pytest.raises(ValueError, match=f"data.encoding must be an encoding such as utf-8, .*, got '{name}'"):
            check_encoding(name, "data.encoding")


@pytest.mark.parametrize("name", ["text.txt.gz", "TEXT.TXT.GZ", "text.txt"])
def test_compressed_text_is_read_as_the_text(tmp_path, name):
    path = written(tmp_path, gzip.compress(codecs.BOM_UTF8 + "naïve\r\n".encode()), name)
    assert read_text_file(path) == "naïve\n"


def test_damaged_compression_is_named(tmp_path):
    whole = gzip.compress(b"one two three " * 50)
    for content in (b"text", whole[:-9], whole[:12] + b"\xff\xff" + whole[14:]):
        path = written(tmp_path, content, "text.txt.gz")
        with pytest.raises(DataError, match=re.escape(f"{path} is not a gzip file, or is damaged: ")):
            read_text_file(path)


@pytest.mark.parametrize("content", [b"", codecs.BOM_UTF8])
def test_empty_file_is_refused_by_name(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=re.escape(f"{path} is empty")):
        read_text_file(path)
    assert decoded(content, "input") == ""


def test_missing_file_is_named_with_the_option_that_gives_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the text file .*absent\.txt does not exist; .*--data\.path"):
        read_text_file(tmp_path / "absent.txt")
    with pytest.raises(FileNotFoundError, match=re.escape(f"the text file {tmp_path} is a folder;")):
        read_text_file(tmp_path)


def test_a_line_of_bytes_is_enough_for_the_message():
    assert bad_byte(b"\x80 5", 0, "input, line 7").startswith("input, line 7: byte 0x80 is not UTF-8; ")
    assert probable_encoding(b"\x80 5") == "cp1252"


def test_what_is_skipped_is_counted_and_the_first_is_named(caplog):
    warn_of_skipped("t.csv", [], 3, "rows", "without a text")
    assert not caplog.messages
    warn_of_skipped("t.csv", [2, 4], 3, "rows", "without a text")
    assert caplog.messages == ["t.csv: rows without a text, which are skipped: 2 of 3, the first in line 2"]
    with pytest.raises(DataError, match=r"t.csv: all 2 rows are without a text; expected at least one other"):
        warn_of_skipped("t.csv", [2, 4], 2, "rows", "without a text")


def test_byte_order_marks_at_the_start_are_no_text(tmp_path):
    path = written(tmp_path, 2 * codecs.BOM_UTF8 + b"text,label\n")
    assert read_text_file(path) == "text,label\n"
