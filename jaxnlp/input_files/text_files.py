"""Text files: from bytes to text, with a guess of the encoding if it is not the expected one."""

import codecs
import gzip
import logging
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from jaxnlp.corpus import DataError
from jaxnlp.input_files.web_addresses import absence

SEEN = re.compile("[^\\s\\0\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]")
"""All characters but white space, NUL, soft hyphens, characters without a width, marks of direction and variants."""
UTF_8 = "utf-8"
_GZIP = b"\x1f\x8b"
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte-order marks, longer ones first."""
_WINDOWS = "cp1252"
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x80-\x9f]")
"""Control characters beyond ASCII: texts have none."""

_logger = logging.getLogger(__name__)


def check_encoding(name: str, field: str = "encoding") -> None:
    """Raises ValueError, naming the field, when Python has no text encoding of this name."""
    try:
        "a".encode(name)
    except (LookupError, ValueError) as error:
        raise ValueError(
            f"{field} must be an encoding such as utf-8, cp1252, latin1, utf-16 or gb18030, got {name!r}"
        ) from error


def read_text_file(
    path: Path, encoding: str | None = None, *, old_line_ends: bool = True, may_be_empty: bool = False
) -> str:
    """The text of a file, perhaps gzip, with LF at line ends.

    Args:
      path: the file.
      encoding: of the file; None = UTF-8, without --data.encoding. A byte-order mark is removed.
      old_line_ends: whether a single CR also ends a line; otherwise it becomes a blank, as by `line_feeds`.
      may_be_empty: whether an empty file has an empty text; otherwise it is an error.

    Raises:
      FileNotFoundError: when there is no such file.
      DataError: when it is damaged, empty, or not in this encoding; names the line and the offset of the first bad byte
        and, if possible, the probable encoding.
    """
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else absence(path)
        options = "--data.path, --data.files, --data.train, --file"
        raise FileNotFoundError(f"the text file {path} {problem}; give a text file ({options})")
    text = decoded(path.read_bytes(), path, encoding or UTF_8, option=encoding is not None)
    if not text and not may_be_empty:
        raise DataError(f"{path} is empty; give a file with text")
    return line_feeds(text, old=old_line_ends)


def line_feeds(text: str, *, old: bool = True) -> str:
    """The text with LF at its line ends.

    Args:
      text: with CR LF, LF or CR at its line ends.
      old: whether a single CR is one; otherwise it becomes a blank, unless the text has no LF.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n" if old or "\n" not in text else " ")


def decoded(raw: bytes, file: Path | str, encoding: str = UTF_8, *, option: bool = True) -> str:
    """The text of a file's bytes, without a byte-order mark. Line ends stay unchanged.

    Args:
      raw: all bytes of the file, perhaps gzip by content or name.
      file: its name.
      encoding: of the text.
      option: whether --data.encoding can set it.

    Raises: DataError as `read_text_file`.
    """
    if is_gzip(raw, file):
        raw = uncompressed(raw, file)
    try:
        text = raw.decode(UTF_8 if is_utf8(encoding) else encoding).lstrip("\ufeff")  # offsets count the mark, too
    except UnicodeDecodeError as error:
        raise DataError(bad_byte(raw, error.start, _place(raw, error.start, file), encoding, option=option)) from error
    if (position := text.find("\0")) >= 0:
        start = raw.index(0) if is_utf8(encoding) else len(text[:position].encode(encoding))
        raise DataError(bad_byte(raw, start, _place(raw, start, file), encoding, option=option))
    if option and not is_utf8(encoding):
        _warn_of_another_encoding(raw, text, file, encoding)
    return text


def _warn_of_another_encoding(raw: bytes, text: str, file: Path | str, encoding: str) -> None:
    """Warns of a probably wrong text: the bytes are another text in UTF-8, or they are Windows-1252 and the text has
    control characters, as Latin-1 reads them."""
    if 0 not in raw and _fits(raw, UTF_8):
        if raw.decode(UTF_8).lstrip("\ufeff") != text:
            _logger.warning("%s is also UTF-8; it is read as %s, as --data.encoding says", file, encoding)
    elif _CONTROL.search(text) and probable_encoding(raw) == _WINDOWS:
        kind, read = "is probably Windows-1252, as of Excel", f"it is read as {encoding}, with control characters"
        _logger.warning("%s %s; %s; set --data.encoding %s", file, kind, read, _WINDOWS)


def is_gzip(start: bytes, file: Path | str) -> bool:
    """Whether a file is compressed, by its name or by its first bytes."""
    return start.startswith(_GZIP) or str(file).lower().endswith(".gz")


def uncompressed(raw: bytes, file: Path | str) -> bytes:
    """The bytes in a gzip file. Raises: DataError naming the file when it is damaged."""
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} is not a gzip file, or is damaged: {error}") from error


def warn_of_skipped(
    path: Path | str, places: Sequence[int | str], count: int, what: str, why: str, fate: str = "skipped"
) -> None:
    """Warns of parts of a file that are skipped, if there are any.

    Args:
      path: the file.
      places: of the skipped parts: a line, from 1, or such as "question 2".
      count: number of all parts, the skipped ones included.
      what: the parts, such as "rows".
      why: the reason, such as "without a text".
      fate: of these parts.

    Raises: DataError when all parts are skipped.
    """
    if places and len(places) == count:
        raise DataError(f"{path}: all {count:,} {what} are {why}; expected at least one other")
    if places:
        skipped = f"{len(places):,} of {count:,}"
        first = places[0] if isinstance(places[0], str) else f"line {places[0]}"
        _logger.warning("%s: %s %s, which are %s: %s, the first in %s", path, what, why, fate, skipped, first)


def bad_byte(raw: bytes, start: int, where: str, encoding: str = UTF_8, *, option: bool = True) -> str:
    """The message about bytes that are not text.

    Args:
      raw: the known bytes.
      start: index of the first wrong byte.
      where: the file and the line.
      encoding: the expected encoding.
      option: whether --data.encoding can set it.
    """
    problem, guess = f"{where}: byte {raw[start]:#04x} is not", probable_encoding(raw)
    if not is_utf8(encoding):
        return f"{problem} {'text' if raw[start] == 0 else encoding}; set --data.encoding to the file's encoding"
    if guess == UTF_8:
        return f"{problem} UTF-8, but other characters of the file are; mend this line"
    if guess is not None:
        kind = {_WINDOWS: "Windows-1252, as of Excel", "latin1": "Latin-1"}.get(guess, guess.upper())
        return (
            f"{problem} UTF-8; the file is probably {kind}; "
            + f"set --data.encoding {guess}, or " * option
            + f"convert it: iconv -f {guess} -t utf-8 FILE > NEW_FILE"
        )
    if raw[start] == 0:
        return f"{problem} text: this is a binary file, or it is damaged; give a text file"
    if b"\0" in raw:
        by_option = ", or if it is text in another encoding, set --data.encoding" * option
        return f"{problem} UTF-8: this is a binary file, such as an archive or an image; give a text file{by_option}"
    by_option = "set the file's encoding, such as --data.encoding cp1251 (Cyrillic), gb18030 (Chinese) or "
    return f"{problem} UTF-8; {(by_option + 'shift_jis (Japanese), or ') * option}convert it to UTF-8"


def probable_encoding(raw: bytes) -> str | None:
    """The encoding of bytes that are not UTF-8, by their byte-order mark, zero bytes, or letters.

    Returns:
      "utf-16" or "utf-32" for a byte-order mark; "utf-16-le" or "utf-16-be" if every other byte is mostly zero; "utf-8"
      if most characters beyond ASCII are; "cp1252" for Western texts with bytes 0x80 to 0x9F, control characters in
      Latin-1; "latin1" for other Western texts; None for all others.
    """
    for mark, name in _MARKS.items():
        if raw.startswith(mark):
            return name
    if b"\0" in raw:
        zeros = [raw[index::2].count(0) / max(1, len(raw[index::2])) for index in (0, 1)]
        return "utf-16-le" if zeros[1] > 0.4 > zeros[0] else "utf-16-be" if zeros[0] > 0.4 > zeros[1] else None
    valid = raw.decode(UTF_8, errors="ignore")
    beyond_ascii = sum(byte > 0x7F for byte in raw)
    if 2 * sum(len(character.encode()) for character in valid if not character.isascii()) > beyond_ascii:
        return UTF_8
    if 2 * beyond_ascii > len(raw):  # letters of Western languages are mostly ASCII
        return None
    if any(0x80 <= byte <= 0x9F for byte in raw):
        return _WINDOWS if _fits(raw, _WINDOWS) else None
    return "latin1"


def is_blank(text: str) -> bool:
    """Whether a reader sees nothing of a text: it is empty, or has only white space and signs that are not seen."""
    return SEEN.search(text) is None


def has_surrogate(text: str) -> bool:
    """Whether a text has half of a surrogate pair, which UTF-8 cannot encode."""
    return bool(_SURROGATE.search(text))


def is_utf8(encoding: str) -> bool:
    """Whether this is a name of UTF-8."""
    return codecs.lookup(encoding).name in (UTF_8, "utf-8-sig")


def _place(raw: bytes, start: int, file: Path | str) -> str:
    line = raw[:start].replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n") + 1
    return f"{file}, line {line}, offset {start}"


def _fits(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
