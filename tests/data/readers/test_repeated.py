import logging
import unicodedata

import pytest

from data.readers.repeated import also_in, as_seen, repeated_notes, warn_of_alike

ACCENT = "Le café numéro un\nétait là"
SAME = {
    "NFD": unicodedata.normalize("NFD", ACCENT),
    "case": ACCENT.upper(),
    "blanks": f" {ACCENT.replace(' ', '  ')} ",
    "a blank that does not break": ACCENT.replace(" ", "\u00a0"),
    "line ends": ACCENT.replace("\n", "\r\n"),
    "a sign without a width": f"\ufeff{ACCENT}\u200b",
    "a sign inside a letter": unicodedata.normalize("NFD", ACCENT).replace("e\u0301", "e\u200b\u0301"),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_texts_that_look_the_same_are_the_same(text):
    assert text != ACCENT
    assert as_seen(text) == as_seen(ACCENT)
    assert also_in([(text, "b"), ("b", text), (text,), ("b",)], [("other",), (ACCENT, "B")]) == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("text", ["\u03a4\u03b1\u0390\u03b6\u03c9", "\u03b0", "Stra\u00dfe", "\u0130stanbul"])
def test_the_case_of_a_letter_is_not_seen_in_any_form(text):
    assert as_seen(text) == as_seen(text.upper()) == as_seen(unicodedata.normalize("NFD", text).upper())


@pytest.mark.parametrize(
    "text", ["Le cafe numéro un était là", "Le café, numéro un était là", "Lecafé numéro un était là"]
)
def test_other_letters_and_signs_are_other_texts(text):
    assert as_seen(text) != as_seen(ACCENT)


def test_notes_name_the_splits_with_training_examples():
    splits = {"validation": [("a",), ("A ",), ("c",)], "test": [("d",)]}
    assert repeated_notes("sentences", [("a",), ("b",)], splits) == [
        "sentences of validation that are also in training: 2"
    ]


ALIKE = {
    "case": (["LOC", "Loc", "PER"], "LOC and Loc are different types; they differ only in case"),
    "accents": (
        ["Café", "Cafe\u0301"],
        r"'Cafe\u0301' and 'Caf\xe9' are different types; they differ only in how accents are written "
        "(write all in NFC)",
    ),
    "case and accents": (
        ["Caf\u00e9", "CAFE\u0301"],
        r"'CAFE\u0301' and 'Caf\xe9' are different types; they differ only in case and how accents are written "
        "(write all in NFC)",
    ),
    "signs": (
        ["a b", "a\u00a0b"],
        r"'a b' and 'a\xa0b' are different types; they differ only in blanks or signs that are not seen",
    ),
    "numbers": (
        ["1000", "1e3", "nan", "x1", "3.1", "3.10"],
        "'1000' and '1e3' are different types, but the same number",
    ),
    "digits": (["1", "\uff11", "2"], r"'1' and '\uff11' are different types, but the same number"),
}


@pytest.mark.parametrize(("names", "message"), ALIKE.values(), ids=ALIKE)
def test_names_that_look_alike_are_warned_of_with_what_differs(names, message, caplog):
    with caplog.at_level(logging.WARNING):
        warn_of_alike("tags.txt", [*names, *names, "other"], "types")
    assert caplog.messages == [f"tags.txt: {message}"]
