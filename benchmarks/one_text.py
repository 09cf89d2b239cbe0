"""The answer to one text by a loaded model: its vector, if it is short or has 500 characters, its label, entities."""

import functools

from benchmarks.answers import LONG, SHORT, case, our_label, our_tags, our_vector, their_label, their_tags, their_vector
from benchmarks.case import Case
from benchmarks.foreign import bits_of_weights


def cases() -> list[Case]:
    return [
        case("one_text", f"{variant}, {bits}", text, *(functools.partial(side, weights=weights) for side in sides))
        for bits, weights in bits_of_weights().items()
        for variant, text, *sides in (
            ("vector", SHORT, our_vector, their_vector),
            ("vector of 500 characters", LONG, our_vector, their_vector),
            ("label", SHORT, our_label, their_label),
            ("entities", SHORT, our_tags, their_tags),
        )
    ]
