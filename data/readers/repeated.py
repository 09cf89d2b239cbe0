"""Texts that look the same to a reader: examples of validation that are also in training, and names that are alike."""

import collections
import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]")
"""Soft hyphens, characters without a width, marks of direction and variants of signs."""
_logger = logging.getLogger(__name__)

Texts = Sequence[str]
"""The texts of an example, in any order."""


def as_seen(text: str) -> str:
    """A text without what a reader does not see or mind: case, kinds of blanks, signs, and accents as signs."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", _UNSEEN.sub("", text))
    return " ".join(text.casefold().split())


def also_in(rows: Iterable[Texts], others: Iterable[Texts]) -> list[bool]:
    """Whether each row has the texts of one of the others, as a reader sees them; a pair may be in the other order."""
    seen = set(map(_key, others))
    return [_key(row) in seen for row in rows]


def repeated_notes(counted: str, train: Sequence[Texts], splits: Mapping[str, Sequence[Texts]]) -> list[str]:
    """Lines that count the examples of the other splits that are also in training.

    Args:
      counted: the noun for examples.
      train: the training examples.
      splits: those of each other split.
    """
    counts = {name: sum(also_in(rows, train)) for name, rows in splits.items()}
    return [f"{counted} of {name} that are also in training: {count:,}" for name, count in counts.items() if count]


def warn_of_alike(where: str, names: Iterable[str], what: str) -> None:
    """Warns of names that differ only in what a reader does not see. Args: where: the file; what: the noun for them."""
    alike = collections.defaultdict(list)
    for name in sorted(set(names)):
        alike[as_seen(name)].append(name)
    for same in alike.values():
        if len(same) > 1:
            shown, how = same, "case"
            if len({unicodedata.normalize("NFC", name) for name in same}) == 1:
                shown, how = [*map(ascii, same)], "how accents are written, in NFC or NFD; write all in NFC"
            elif len({name.casefold() for name in same}) > 1:
                shown, how = [*map(ascii, same)], "blanks or signs that are not seen"
            _logger.warning("%s: %s are different %s; they differ only in %s", where, " and ".join(shown), what, how)


def _key(texts: Texts) -> tuple[str, ...]:
    return tuple(sorted(map(as_seen, texts)))
