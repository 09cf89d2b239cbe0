"""The answer to one text by a loaded model: its vector, if it is short or has 500 characters, its label, entities."""

from benchmarks.answers import LONG, SHORT, case, our_label, our_tags, our_vector, their_label, their_tags, their_vector
from benchmarks.case import Case


def cases() -> list[Case]:
    return [
        case("one_text", "vector", SHORT, our_vector, their_vector),
        case("one_text", "vector of 500 characters", LONG, our_vector, their_vector),
        case("one_text", "label", SHORT, our_label, their_label),
        case("one_text", "entities", SHORT, our_tags, their_tags),
    ]
