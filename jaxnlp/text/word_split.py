"""Splitting a text into words by a simple rule."""

import re
from typing import Literal, NamedTuple

Unit = Literal["words", "characters"]
"""What a sentence consists of: words, or single characters, as in Chinese."""

_WORDS = re.compile(
    r"(?:[^\W\d_]\.){2,}"  # U.N.
    r"|\d+(?:[.,:/-]\d+)+"  # 1996-08-22, 3,000.50
    r"|\w+?(?=n['\u2019]t\b)|n['\u2019]t\b"  # does n't
    r"|['\u2019](?:s|re|ve|ll|d|m)\b"  # it 's
    r"|\w+(?:-\w+)*"
    r"|\S"
)


class PlacedWord(NamedTuple):
    """A word, and its first character and the one after its last in the text."""

    word: str
    start: int
    stop: int


def split_words(text: str, unit: Unit = "words") -> list[PlacedWord]:
    """The words of a text with their places; white space belongs to none of them.

    Args:
      text: the text.
      unit: "words": English words, numbers, abbreviations and single signs, where n't and 's are words of their own;
        "characters": all characters.

    >>> [word for word, _, _ in split_words("The U.N. doesn't meet Ann-Marie's team.")]
    ['The', 'U.N.', 'does', "n't", 'meet', 'Ann-Marie', "'s", 'team', '.']
    """
    pattern = _WORDS if unit == "words" else re.compile(r"\S")
    return [PlacedWord(found.group(), *found.span()) for found in pattern.finditer(text)]
