"""Notes on inputs that are blank, truncated or without a result: of verbs on standard error, of methods in the log."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxnlp.input_files.rows import position_of

_logger = logging.getLogger(__name__)


def report_truncated(truncated: Sequence[int], texts: int, max_length: int) -> None:
    """Prints the number of truncated texts, if any, and names the first.

    Args:
      truncated: indices of the truncated texts.
      texts: number of all texts.
      max_length: maximum length in tokens.
    """
    if truncated:
        print(f"note: {_truncated(truncated, texts, max_length)}", file=sys.stderr)


def warn_of_truncated(truncated: Sequence[int], texts: int, max_length: int) -> None:
    """Logs a warning as `report_truncated`, for methods of a trained model."""
    if truncated:
        _logger.warning(_truncated(truncated, texts, max_length))


def _truncated(truncated: Sequence[int], texts: int, max_length: int) -> str:
    shown, first = "the text was", ""
    if texts > 1:
        shown = f"{len(truncated):,} of {texts:,} texts {'was' if len(truncated) == 1 else 'were'}"
        first = f"; the first is text {min(truncated) + 1:,}"
    return f"{shown} truncated to {max_length} tokens{first}"


def report_blank(blank: Sequence[int], count: int, texts: Sequence[str], file: Path | None) -> None:
    """Prints the number of blank texts, if any, and names the first.

    Args:
      blank: the numbers of blank rows, from `jaxnlp.text.blank_texts.blank_rows`.
      count: number of all rows.
      texts, file: the source of the rows, as in `rows_of`.
    """
    if blank:
        verb = "is blank and has" if len(blank) == 1 else "are blank and have"
        first = "" if len(blank) == 1 else "the first is "
        where = position_of(texts, file, blank[0])
        print(f"note: {len(blank):,} of {count:,} texts {verb} no answer; {first}{where}", file=sys.stderr)


def report_skipped(skipped: Sequence[str], count: int, inputs: str, what: str) -> None:
    """Prints the number of inputs without a result, if any, and the reason of the first.

    Args:
      skipped: the position and the reason of each input without a result.
      count: number of all inputs.
      inputs: their name, such as "texts".
      what: the missing result, such as "tree".
    """
    if skipped:
        verb = "has" if len(skipped) == 1 else "have"
        first = "" if len(skipped) == 1 else "the first: "
        print(f"note: {len(skipped):,} of {count:,} {inputs} {verb} no {what}; {first}{skipped[0]}", file=sys.stderr)
