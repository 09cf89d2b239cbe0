"""Names of missing values in files of other programs."""

import logging
from collections.abc import Iterable
from pathlib import Path

MISSING = {
    *("#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "-nan", "1.#ind", "1.#qnan", "<na>", "n/a", "na", "nan", "nat"),
    *("none", "null"),
}
"""Names of missing values, in lower case: those of pandas.read_csv, which Excel, R, databases and Python also write."""
_logger = logging.getLogger(__name__)


def is_missing(text: str) -> bool:
    """Whether a text is the name of a missing value."""
    return text.lower() in MISSING


def warn_of_missing(path: Path, texts: Iterable[tuple[int, str]]) -> None:
    """Warns of texts that are names of missing values. Args: path: the file; texts: each with its line."""
    found = [(line, text) for line, text in texts if is_missing(text)]
    if found:
        line, text = found[0]
        _logger.warning(
            "%s: %s texts are names of missing values, the first %r in line %s; if they are no texts, make their "
            "fields empty",
            *(path, f"{len(found):,}", text, line),
        )
