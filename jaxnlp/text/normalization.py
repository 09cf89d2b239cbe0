"""The normalization of texts in SentencePiece models."""

import base64
import dataclasses
import functools
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np

from jaxnlp.text import require_fields


@dataclasses.dataclass(frozen=True)
class Normalization:
    """Changes of a text before it is tokenized. By default a blank is added before the text, and nothing else changes.

    Attributes:
      charsmap: SentencePiece's table of replacements, such as `nmt_nfkc`, applied to the longest match at each
        position. Empty = none.
      strip: remove blanks at both ends, and all but one of consecutive blanks.
      prefix: tokenize each text as if a blank preceded it.
      sign_is_blank: read a ▁ of the text as a blank, as SentencePiece does, and keep consecutive ones.
      nfc: first compose letters and accents (NFC).
    """

    charsmap: bytes = b""
    strip: bool = False
    prefix: bool = True
    sign_is_blank: bool = False
    nfc: bool = False

    def __post_init__(self):
        check_charsmap(self.charsmap)

    def apply(self, text: str) -> str:
        """The changed text, with the blank before it."""
        text = unicodedata.normalize("NFC", text) if self.nfc else text
        strings: Iterable[str] = self._rewritten(text.encode()) if self.charsmap else text
        changed = "".join(_without_repeated_blanks(strings) if self.strip else strings)
        if self.sign_is_blank:
            changed = changed.replace("\u2581", " ")
        if self.prefix and text:
            changed = " " + changed
        return changed.rstrip(" ") if self.strip else changed

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON; the charsmap in base 64."""
        return {
            "charsmap": base64.b64encode(self.charsmap).decode(),
            "strip": self.strip,
            "prefix": self.prefix,
            "sign_is_blank": self.sign_is_blank,
            "nfc": self.nfc,
        }

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """The normalization whose `to_json` this is. Raises: ValueError naming the wrong field."""
        flags = ("strip", "prefix", "sign_is_blank", "nfc")
        require_fields(fields, "normalization", charsmap=str, **dict.fromkeys(flags, bool))
        charsmap = base64.b64decode(fields["charsmap"], validate=True)
        return cls(charsmap, **{name: fields[name] for name in flags})

    def _rewritten(self, text: bytes) -> Iterator[str]:
        position = 0
        while position < len(text):
            length, new = self._longest(text, position)
            if not length:  # keep the next character; its first byte encodes its number of bytes
                length = 1 + sum(text[position] >= least for least in (0xC0, 0xE0, 0xF0))
                new = text[position : position + length]
            yield new.decode()
            position += length

    def _longest(self, text: bytes, position: int) -> tuple[int, bytes]:
        """The length of the longest match in the table at a position of the text, 0 = none, and its replacement.

        The table is a trie in a double array: a unit has the label of its byte, the offset of its children, and whether
        a string ends in it.
        """
        units, texts = self._trie
        length, new, node = 0, b"", _children(units[0])
        for index in range(position, len(text)):
            node ^= text[index]
            if node >= len(units) or units[node] & 0x800000FF != text[index]:
                break
            ends, node = units[node] & 0x100, node ^ _children(units[node])
            if ends:
                start = units[node] & 0x7FFFFFFF
                length, new = index + 1 - position, texts[start : texts.index(b"\0", start)]
        return length, new

    @functools.cached_property
    def _trie(self) -> tuple[list[int], bytes]:
        size = int.from_bytes(self.charsmap[:4], "little")
        return np.frombuffer(self.charsmap, "<u4", size // 4, offset=4).tolist(), self.charsmap[4 + size :]


def check_charsmap(charsmap: bytes) -> None:
    """Raises ValueError unless a charsmap is empty, or large enough for its trie."""
    size = int.from_bytes(charsmap[:4], "little")
    if charsmap and (size % 4 or size < 4 or len(charsmap) < 4 + size):
        raise ValueError(f"normalization: a charsmap of {len(charsmap)} bytes cannot have a trie of {size}")


def check_charsmaps(normalizer: Any) -> None:
    """Checks a tokenizer.json's charsmaps: with a wrong size the tokenizers library runs out of memory, and aborts.
    Raises: ValueError."""
    parts = [normalizer]
    for part in parts:  # which grows
        if isinstance(part, dict):
            parts += part.get("normalizers") or []
            check_charsmap(base64.b64decode(part.get("precompiled_charsmap") or b""))


def _without_repeated_blanks(strings: Iterable[str]) -> Iterator[str]:
    """The strings without leading blanks, at the start of the text or after a string that ends with a blank."""
    after_blank = True
    for string in strings:
        kept = string.lstrip(" ") if after_blank else string
        if kept:
            after_blank = kept.endswith(" ")
            yield kept


UNCHANGED = Normalization()
"""Leaves texts unchanged."""
COMPOSED = Normalization(nfc=True)
"""Composes accents: texts in NFC and NFD have the same tokens."""


def _children(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)
