"""Splitting a text into words by a simple rule."""

import re
from typing import Literal, NamedTuple

Unit = Literal["words", "characters"]
"""Units of a sentence: words, or single characters, as in Chinese."""

_WORDS = re.compile(
    r"(?:[^\W\d_]\.){2,}"  # U.N.
    r"|\d+(?:[.,:/-]\d+)+"  # 1996-08-22, 3,000.50
    r"|\w+?(?=n['\u2019]t\b)|n['\u2019]t\b"  # does n't
    r"|['\u2019](?:s|re|ve|ll|d|m)\b"  # it 's
    r"|\w+(?:-\w+)*"
    r"|\S"
)


class PlacedWord(NamedTuple):
    """A word, and the positions of its first character and after its last character in the text."""

    word: str
    start: int
    stop: int


def split_words(text: str, unit: Unit = "words") -> list[PlacedWord]:
    """The words of a text with their positions, without white space.

    Args:
      text: the text.
      unit: "words": English words, numbers, abbreviations and punctuation marks; n't and 's are separate words.
        "characters": all characters.

    >>> [word for word, _, _ in split_words("The U.N. doesn't meet Ann-Marie's team.")]
    ['The', 'U.N.', 'does', "n't", 'meet', 'Ann-Marie', "'s", 'team', '.']
    """
    pattern = _WORDS if unit == "words" else re.compile(r"\S")
    return [PlacedWord(found.group(), *found.span()) for found in pattern.finditer(text)]
