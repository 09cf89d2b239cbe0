"""Splitting a text into words by a simple rule.

The rule of the unit "words", from the first choice to the last:

- Web addresses (http://, https://, ftp:// or www.), without marks that end a sentence, and e-mail addresses are one
  word each.
- Letters with a full stop after each are one word: U.N.
- Numbers with points, commas, colons, slashes or hyphens between their digits are one word: 3,000.50, 1996-08-22.
- n't and 's, 're, 've, 'll, 'd, 'm at the end of a word are words of their own, as in English treebanks: do n't.
- An elided word keeps its apostrophe and is a word of its own, as in French and Italian: l' eau, dell' acqua.
- Letters, digits and underscores in a row are one word, with hyphens and apostrophes between them: Ann-Marie, O'Brien.
- Two or more full stops, or hyphens, in a row are one word.
- Each other character that is seen is one word.

Combining marks, such as accents and the vowel signs of Hindi and Thai, belong to the character before them. So do
joiners: an emoji of several characters, such as a family or a flag, is one word. The rule does not know the words of
languages without spaces, such as Chinese and Thai: characters between two spaces or punctuation marks are one word.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

from jaxnlp.input_files.text_files import SEEN, is_blank

Unit = Literal["words", "characters"]
"""Units of a sentence: words, or single characters, as in Chinese."""

_ELIDED = (
    "c|d|j|l|m|n|s|t|z|qu|jusqu|lorsqu|puisqu|quoiqu|"  # French
    "all|coll|dall|dell|nell|sull|un|quest|quell|dov|com|anch"  # Italian
)
_MARKED = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))
"""Code points that include all combining marks."""


class PlacedWord(NamedTuple):
    """A word, and the positions of its first character and after its last character in the text."""

    word: str
    start: int
    stop: int


def split_words(text: str, unit: Unit = "words") -> list[PlacedWord]:
    """The words of a text with their positions. White space and signs that are not seen, see `SEEN`, are no words.

    Args:
      text: the text.
      unit: "words", by the rule of this module, or "characters": all characters, combining marks included.

    >>> [word for word, _, _ in split_words("The U.N. doesn't meet Ann-Marie's team.")]
    ['The', 'U.N.', 'does', "n't", 'meet', 'Ann-Marie', "'s", 'team', '.']
    """
    pattern = _words() if unit == "words" else SEEN
    return [PlacedWord(match.group(), *match.span()) for match in pattern.finditer(text)]


def placed_words(sentence: str | Sequence[str], unit: Unit = "words") -> list[PlacedWord]:
    """The words of a text, by `split_words`; or the words of a list, stripped and without blank ones, with their
    indices as positions.

    >>> placed_words(["New York", "sleeps "])[1]
    PlacedWord(word='sleeps', start=1, stop=2)
    """
    if isinstance(sentence, str):
        return split_words(sentence, unit)
    return [PlacedWord(word.strip(), index, index + 1) for index, word in enumerate(sentence) if not is_blank(word)]


@functools.cache
def _words() -> re.Pattern[str]:
    marks = _class_of_marks()
    character = rf"\w[{marks}\u00ad\u200c\u200d]*"  # soft hyphens and joiners are inside words
    modifiers = rf"[{marks}\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"  # also skin tones, and the letters of flags
    endings = r"['\u2019](?:s|re|ve|ll|d|m)\b"
    inside = rf"(?:[-\u2010\u2011]|(?!{endings})['\u2019])"
    choices = (
        r"(?:https?://|ftp://|www\.)[^\s<>\"]*[^\s<>\"'\u2019\u201d)\]}.,;:!?\u2026]",
        r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+",
        rf"(?:[^\W\d_][{marks}]*\.){{2,}}",
        r"\d+(?:[.,:/-]\d+)+",
        rf"(?:{character})+?(?=n['\u2019]t\b)|n['\u2019]t\b",
        endings,
        rf"(?:{_ELIDED})['\u2019](?=\w)(?!(?:s|re|ve|ll|d|m|t)\b)",
        rf"(?:{character})+(?:{inside}(?:{character})+)*",
        r"[\U0001f1e6-\U0001f1ff]{2}",  # a flag
        r"\.{2,}|-{2,}",
        rf"{SEEN.pattern}{modifiers}(?:\u200d[^\w\s]{modifiers})*",
    )
    return re.compile("|".join(choices), re.IGNORECASE)


def _class_of_marks() -> str:
    """All combining marks, as ranges of a character class."""
    marks = [code for code in _MARKED if unicodedata.category(chr(code)).startswith("M")]
    groups = itertools.groupby(enumerate(marks), key=lambda pair: pair[1] - pair[0])
    runs = [[code for _, code in group] for _, group in groups]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)
