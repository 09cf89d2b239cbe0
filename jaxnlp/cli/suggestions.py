"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """The most similar known name, as a question; all names if none is similar."""
    names = [*known]
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names) or 'none'}"


def similar_options(option: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """At most `most` known options that are similar to an option, all without dashes, such as `model.width`.

    Those with the same last part, as for `width`; if there are none, very similar names; otherwise those whose last
    part is similar to the option's, or contains it.
    """
    ends = {name: name.rpartition(".")[2] for name in known}
    last = option.rpartition(".")[2]
    same = [name for name, end in ends.items() if end == last] or difflib.get_close_matches(option, ends, 1, 0.8)
    close = difflib.get_close_matches(last, ends.values(), most) or [end for end in ends.values() if last in end]
    return (same or [name for name, end in ends.items() if end in close and len(last) > 3])[:most]
