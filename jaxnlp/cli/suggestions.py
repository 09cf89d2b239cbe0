"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name that is most like a name, as a question; where no name is like it, all names."""
    names = [*known]
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names) or 'none'}"


def similar_options(option: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known options that are most like an option: their last parts count too, as `width` of `model.width`.

    Args:
      option: without leading dashes.
      known: options such as `model.width`.
      most: how many there are at most.
    """
    names = [*known]
    last = option.rpartition(".")[2]
    ends: dict[str, list[str]] = {}
    for name in names:
        ends.setdefault(name.rpartition(".")[2], []).append(name)
    close = difflib.get_close_matches(option, names, n=1, cutoff=0.8)
    found = ends.get(last) or close
    if not found:
        found = [name for end in difflib.get_close_matches(last, ends, n=most) for name in ends[end]]
    if not found and len(last) > 3:
        found = [name for end in ends if last in end for name in ends[end]]
    return found[:most]
