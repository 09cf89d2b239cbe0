"""Schemes that encode entities as labels of words, and conversions between them.

    scheme   first word   inside   last word   single word   otherwise
    bio      B-X          I-X      I-X         B-X           O
    iob1     I-X          I-X      I-X         I-X           O; B-X for a first word after an entity of the same type
    bioes    B-X          I-X      E-X         S-X           O
    bilou    B-X          I-X      L-X         U-X           O
    bmes     B-X          M-X      E-X         S-X           O
    bmewo    B-X          M-X      E-X         W-X           O
    ioe2     I-X          I-X      E-X         E-X           O
    ioe1     I-X          I-X      I-X         I-X           O; E-X for a last word before an entity of the same type
    io       I-X          I-X      I-X         I-X           O
    none     labels are classes of words and not entities, such as parts of speech

X is the type of the entity. Illegal sequences are read as in CoNLL-2003's evaluation: a label other than O that cannot
continue the previous one starts an entity.

Sources: Ramshaw and Marcus 1995; Tjong Kim Sang and Veenstra 1999; Xue 2003 for BMES; Ratinov and Roth 2009 for BILOU.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

Scheme = Literal["bio", "iob1", "bioes", "bmes", "bilou", "bmewo", "ioe2", "ioe1", "io", "none"]
PREFIXES: dict[Scheme, tuple[str, ...]] = {
    "bio": ("B", "I"),
    "iob1": ("B", "I"),
    "bioes": ("B", "I", "E", "S"),
    "bmes": ("B", "M", "E", "S"),
    "bilou": ("B", "I", "L", "U"),
    "bmewo": ("B", "M", "E", "W"),
    "ioe2": ("I", "E"),
    "ioe1": ("I", "E"),
    "io": ("I",),
}
"""The prefixes of each scheme. If several schemes fit the labels of a file, `find_scheme` chooses the first."""
OUTSIDE = "O"
_ENDS = ("E", "L", "S", "U", "W")
"""Prefixes of an entity's last word."""
_SPELLINGS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"([BIMELSUW])[_:/|.+](.+)"), r"\1-\2"),
    (re.compile(r"(.+)[-_:/|.+]([BIMELSUW])"), r"\2-\1"),
    (re.compile(r"([bimelsuw])[-_](.+)"), lambda match: f"{match[1].upper()}-{match[2]}"),
    (re.compile(r"([BIMELSUW])"), r"\1-ENTITY"),
    (re.compile(r"\(([^()*]+)(?:\*|\*?\))"), r"B-\1"),  # as in CoNLL-2012: (PER*, *, *)
)
"""Other spellings of entities' labels, and those of the schemes."""


class LabelledSpan(NamedTuple):
    """An entity: words `start` to `stop` - 1 of its sentence, and its type."""

    start: int
    stop: int
    type: str


class AllowedLabels(NamedTuple):
    """Which label may follow which [C, C], start [C] and end [C] a sentence, bool."""

    transitions: np.ndarray
    start: np.ndarray
    end: np.ndarray


def prefix_and_type(label: str) -> tuple[str, str]:
    """The parts of B-X: B and X. O has the parts O and the empty string."""
    prefix, _, kind = label.partition("-")
    return prefix, kind


def belongs(label: str, scheme: Scheme) -> bool:
    """Whether a label belongs to the scheme; to none, every label does that is not empty."""
    if scheme == "none":
        return bool(label)
    prefix, kind = prefix_and_type(label)
    return label == OUTSIDE or (prefix in PREFIXES[scheme] and bool(kind))


def check_label(label: str, scheme: Scheme) -> None:
    """Raises ValueError unless a label belongs to the scheme; the message names the expected labels."""
    if not belongs(label, scheme):
        forms = "a label" if scheme == "none" else ", ".join([OUTSIDE, *(f"{p}-TYPE" for p in PREFIXES[scheme])])
        raise ValueError(f"the label {label!r} does not belong to the scheme {scheme}: expected {forms}")


def scheme_of(labels: Sequence[str]) -> Scheme:
    """The smallest scheme with all these labels; none if they are not labels of entities."""
    pairs = [prefix_and_type(label) for label in labels if label != OUTSIDE]
    fitting = [scheme for scheme, known in PREFIXES.items() if all(kind and one in known for one, kind in pairs)]
    return min(fitting, key=lambda scheme: len(PREFIXES[scheme]), default="none") if pairs else "none"


def labels_of(types: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """All labels of a scheme for these types of entities; with the scheme none the types are the labels."""
    if scheme == "none":
        return tuple(types)
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in PREFIXES[scheme]))


def may_follow(before: str | None, after: str | None, scheme: Scheme) -> bool:
    """Whether a label may follow another; None is the start, or the end, of a sentence."""
    first, kind = prefix_and_type(before or OUTSIDE)
    then, next_kind = prefix_and_type(after or OUTSIDE)
    same = kind == next_kind
    match scheme:
        case "none" | "io":
            return True
        case "bio" | "iob1":
            return then != ("I" if scheme == "bio" else "B") or (first in ("B", "I") and same)
        case "ioe2" | "ioe1":
            return first != ("I" if scheme == "ioe2" else "E") or (then in ("I", "E") and same)
    is_open, goes_on = first in ("B", "I", "M"), then in ("I", "M", "E", "L")
    return same if is_open and goes_on else is_open == goes_on


def illegal_positions(labels: Sequence[str], scheme: Scheme) -> list[int]:
    """The positions of labels that may not follow the previous one; the number of words if the sentence may not end."""
    pairs = zip([None, *labels], [*labels, None], strict=True)
    return [index for index, (before, after) in enumerate(pairs) if not may_follow(before, after, scheme)]


def spans_of(labels: Sequence[str]) -> list[LabelledSpan]:
    """The entities of a sentence, from labels of any scheme but none.

    >>> [tuple(span) for span in spans_of(["B-PER", "E-PER", "O", "I-LOC", "B-LOC"])]
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'LOC')]
    """
    spans: list[LabelledSpan] = []
    start, kind, complete = -1, "", False
    for index, label in enumerate([*labels, OUTSIDE]):
        prefix, new_kind = prefix_and_type(label)
        if start >= 0 and (prefix in (OUTSIDE, "B", "S", "U", "W") or new_kind != kind or complete):
            spans.append(LabelledSpan(start, index, kind))
            start = -1
        if start < 0 and prefix != OUTSIDE:
            start, kind = index, new_kind
        complete = prefix in _ENDS
    return spans


def labels_of_spans(spans: Iterable[LabelledSpan], length: int, scheme: Scheme) -> list[str]:
    """The labels of a sentence with these entities. Raises: ValueError for overlapping entities."""
    if scheme == "none":
        raise ValueError("the scheme none has no entities")
    labels, last_before = [OUTSIDE] * length, ("", -1)
    for start, stop, kind in sorted(spans):
        if not 0 <= start < stop <= length:
            raise ValueError(f"an entity of the words {start} to {stop - 1} does not fit a sentence of {length} words")
        if any(label != OUTSIDE for label in labels[start:stop]):
            raise ValueError(f"two entities overlap in the words {start} to {stop - 1}")
        follows = last_before == (kind, start)
        if follows and scheme == "ioe1":
            labels[start - 1] = f"E-{kind}"
        first, inside, last, single = {
            "bio": "BIIB",
            "iob1": "BIIB" if follows else "IIII",
            "bioes": "BIES",
            "bmes": "BMES",
            "bilou": "BILU",
            "bmewo": "BMEW",
            "ioe2": "IIEE",
            "ioe1": "IIII",
            "io": "IIII",
        }[scheme]
        inner = [first, *inside * (stop - start - 2), last] if stop - start > 1 else [single]
        labels[start:stop] = [f"{prefix}-{kind}" for prefix in inner]
        last_before = (kind, stop)
    return labels


def convert(labels: Sequence[str], scheme: Scheme) -> list[str]:
    """Converts labels of any scheme to another; illegal ones as `spans_of` reads them. The scheme none stays
    unchanged."""
    return list(labels) if scheme == "none" else labels_of_spans(spans_of(labels), len(labels), scheme)


def find_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that fits labelled sentences best; the first one of `PREFIXES` if several fit equally.

    The best scheme has the fewest errors: labels outside it, and labels that may not follow the previous one. So one
    wrong label does not decide for a whole file.

    The scheme is none if fewer than half of the distinct labels, without O, have a scheme's prefix and a type. So a few
    malformed labels do not make it none: `check_label` rejects them.
    """
    pairs = Counter(pair for labels in sentences for pair in zip([None, *labels], [*labels, None], strict=True))
    labels = {label for _, label in pairs if label is not None} - {OUTSIDE}
    known = {prefix for of_scheme in PREFIXES.values() for prefix in of_scheme}
    prefixes = [prefix for prefix, kind in map(prefix_and_type, labels) if kind and prefix in known]
    if 2 * len(prefixes) < len(labels):
        return "none"

    def errors(scheme: Scheme) -> int:
        total = 0
        for (before, after), count in pairs.items():
            outside = after is not None and prefix_and_type(after)[0] not in (OUTSIDE, *PREFIXES[scheme])
            total += count * (outside + (not may_follow(before, after, scheme)))
        return total

    return min(PREFIXES, key=errors)


def misspelt_entities(sentences: Iterable[Sequence[str]]) -> tuple[str, str] | None:
    """A label outside all schemes that probably means an entity, and its right spelling; None = there is none.

    Labels probably mean entities if half of them have a prefix in another spelling, or if most words are O.

    >>> misspelt_entities([["B_PER", "L_PER", "O"]])
    ('B_PER', 'B-PER')
    >>> misspelt_entities([["(PER*", "*)", "*"], ["(LOC)"]])
    ('(PER*', 'B-PER')
    >>> misspelt_entities([["PERSON", "O", "O"]])
    ('PERSON', 'I-PERSON')
    """
    counts = Counter(label for labels in sentences for label in labels)
    others = [label for label in counts if label not in (OUTSIDE, OUTSIDE.lower())]
    for pattern, right in _SPELLINGS:
        fitting = [label for label in others if pattern.fullmatch(label)]
        if fitting and 2 * len(fitting) >= len(others):
            return fitting[0], pattern.sub(right, fitting[0])
    return (others[0], f"I-{others[0]}") if others and 2 * counts[OUTSIDE] > counts.total() else None


def allowed_labels(labels: Sequence[str], scheme: Scheme) -> AllowedLabels:
    """The sequences of labels that a scheme allows, by the ids of the labels."""
    if scheme == "none":  # a treebank may have thousands of them
        return AllowedLabels(*(np.ones([len(labels)] * axes, bool) for axes in (2, 1, 1)))
    return AllowedLabels(
        np.array([[may_follow(before, after, scheme) for after in labels] for before in labels]),
        np.array([may_follow(None, label, scheme) for label in labels]),
        np.array([may_follow(label, None, scheme) for label in labels]),
    )
