"""Texts that look the same to a reader: validation examples that are also in training, and similar names."""

import collections
import contextlib
import itertools
import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]")
"""Soft hyphens, characters without a width, marks of direction and variants of signs."""
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")
_logger = logging.getLogger(__name__)

Texts = Sequence[str]
"""The texts of an example, in any order."""


def as_seen(text: str) -> str:
    """A text without what a reader ignores: case, kinds of blanks, signs, and accents as signs."""
    if text.isascii():
        return " ".join(text.lower().split())
    composed = unicodedata.normalize("NFC", _UNSEEN.sub("", text))
    return " ".join(unicodedata.normalize("NFC", composed.casefold()).split())


def also_in(rows: Iterable[Texts], others: Iterable[Texts]) -> list[bool]:
    """Whether each row has the texts of one of the others, as a reader sees them, pairs in any order."""
    seen = frozenset(map(_key, others))
    return [_key(row) in seen for row in rows]


def repeated_notes(counted: str, train: Sequence[Texts], splits: Mapping[str, Sequence[Texts]]) -> list[str]:
    """Lines that count the examples of other splits that are also in training.

    Args:
      counted: the noun for examples.
      train: the training examples.
      splits: those of each other split.
    """
    seen = frozenset(map(_key, train))
    counts = {name: sum(_key(row) in seen for row in rows) for name, rows in splits.items()}
    return [f"{counted} of {name} that are also in training: {count:,}" for name, count in counts.items() if count]


def _number(name: str) -> float | None:
    """The number that a name is, such as 1000 for 1e3; None = it is none."""
    with contextlib.suppress(ValueError):
        return float(name)
    return None


def warn_of_alike(where: str, names: Iterable[str], what: str) -> None:
    """Warns of names that look the same to a reader, and of those that are the same number, such as 1000 and 1e3.

    Args: where: the file; what: the noun for them.
    """
    alike, numbers = (collections.defaultdict[Any, list[str]](list) for _ in range(2))
    for name in sorted(set(names)):
        alike[as_seen(name)].append(name)
        numbers[_number(name)].append(name)
    for same in alike.values():
        if len(same) > 1:
            composed = {unicodedata.normalize("NFC", name) for name in same}
            folded = {name.casefold() for name in composed}
            forms = {unicodedata.is_normalized("NFC", name) for name in same}
            how = {
                "case": len(folded) < len(composed),
                "how accents are written (write all in NFC)": len(forms) > 1,
                "blanks or signs that are not seen": len(folded) > 1,
            }
            shown = same if [*how.values()] == [True, False, False] else [*map(ascii, same)]
            differ = " and ".join(itertools.compress(how, how.values()))
            _logger.warning("%s: %s are different %s; they differ only in %s", where, " and ".join(shown), what, differ)
    for value, same in numbers.items():
        plain = all(map(_DECIMAL.fullmatch, same))  # 3.1 and 3.10 may be chapters, and 7 and 007 codes
        if value is not None and len(same) > 1 and not plain:
            _logger.warning("%s: %s are different %s, but the same number", where, " and ".join(map(ascii, same)), what)


def _key(texts: Texts) -> tuple[str, ...]:
    return tuple(sorted(map(as_seen, texts)))
