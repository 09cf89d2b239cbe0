"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name that is most like a name, as a question; where no name is like it, all names."""
    names = [*known]
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names) or 'none'}"


def similar_options(option: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """At most `most` known options that are like an option, both without dashes, such as `model.width`.

    An option with the same last part comes first, as for `width`; then similar options, and those with a similar last
    part, or with a last part that contains the option's.
    """
    names, last = [*known], option.rpartition(".")[2]
    ends = [name.rpartition(".")[2] for name in names]
    similar_ends = difflib.get_close_matches(last, {*ends}, n=most) or [end for end in ends if last in end[1:]]
    return (
        [name for name, end in zip(names, ends, strict=True) if end == last]
        or difflib.get_close_matches(option, names, n=1, cutoff=0.8)
        or [name for name, end in zip(names, ends, strict=True) if end in similar_ends and len(last) > 3]
    )[:most]
