"""Raw texts: checks of arguments, and texts in one line."""

import logging
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxnlp.input_files import text_files
from jaxnlp.input_files.text_files import has_surrogate
from jaxnlp.text import UnknownTokenError

_logger = logging.getLogger(__name__)

_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """Texts as a list, also a single one.

    Raises: ValueError for an empty list, and for an entry that is not a text.
    """
    rows = require_texts([texts] if isinstance(texts, str) else list(texts))
    if not rows:
        raise ValueError("there are no texts")
    return rows


def require_texts(texts: Sequence[Any], what: str = "texts") -> list[str]:
    """The texts as a list. Args: what: their name in messages.

    Raises: ValueError for an entry that is not a text, or that UTF-8 cannot encode.
    """
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            remedy = '; replace missing values, such as with "" for a blank text' if is_missing(text) else ""
            raise ValueError(f"expected {what}, got {type(text).__name__} at index {index}{remedy}")
        if has_surrogate(text):
            raise ValueError(
                f"expected {what} of characters, got half of a surrogate pair at index {index}: {text[:40]!a}"
            )
    return list(texts)


def is_missing(value: Any) -> bool:
    """Whether an entry of a column is missing: None, or NaN or NA of pandas."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def refuse_surrogates(text: str) -> None:
    """Raises: UnknownTokenError for a text that UTF-8 cannot encode."""
    if has_surrogate(text):
        raise UnknownTokenError("the text is not Unicode: it has half of a pair of UTF-16")


def one_line(text: str) -> str:
    """The text with blanks instead of line breaks and tabs."""
    return _BREAKS.sub(" ", text)


def require_sentences(texts: Sequence[Any]) -> list[str | list[str]]:
    """Texts, or lists of their words. A warning counts blank words, which `placed_words` leaves out.

    Raises: ValueError as `require_texts`, and naming a word that is not a text.
    """
    sentences = [list(one) if isinstance(one, list | tuple | np.ndarray) else one for one in texts]
    blank = list[str]()
    for number, words in enumerate(sentences, 1):
        for index, word in enumerate(words if isinstance(words, list) else ()):
            if not isinstance(word, str):
                raise ValueError(f"text {number}: expected words, got {type(word).__name__} at index {index}")
            if text_files.is_blank(word):
                blank.append(f"text {number}, index {index}")
    if blank:
        _logger.warning("blank words, which are left out: %s, the first in %s", f"{len(blank):,}", blank[0])
    require_texts([" ".join(one) if isinstance(one, list) else one for one in sentences])
    return sentences
