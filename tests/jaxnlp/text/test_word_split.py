import sys
import unicodedata

import pytest

from jaxnlp.text.word_split import placed_words, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.N. met.", "The U.N. met ."),
        ("It doesn't cost $3,000.50, it's free!", "It does n't cost $ 3,000.50 , it 's free !"),
        ("On 1996-08-22 Ann-Marie (37) won", "On 1996-08-22 Ann-Marie ( 37 ) won"),
        ("  \t\n ", ""),
        ("中国人", "中国人"),
        ("don't DON'T can\u2019t IT'S he'd've", "do n't DO N'T ca n\u2019t IT 'S he 'd 've"),
        ("l'eau, D'accord qu\u2019il dell'acqua", "l' eau , D' accord qu\u2019 il dell' acqua"),
        ("O'Brien aujourd'hui the dogs' 'X'", "O'Brien aujourd'hui the dogs ' ' X '"),
        ("a 12-year-old at 10:30am, 1,000.5 - 1'000", "a 12-year-old at 10:30 am , 1,000.5 - 1'000"),
        ("wait... no -- yes!!", "wait ... no -- yes ! !"),
        ("see https://a.b/c?d=e. Or (www.x.org)", "see https://a.b/c?d=e . Or ( www.x.org )"),
        ("mail bob.x@y.co.uk!", "mail bob.x@y.co.uk !"),
    ],
)
def test_words_numbers_and_signs_are_split(text, words):
    assert " ".join(word for word, _, _ in split_words(text)) == words


@pytest.mark.parametrize(
    "word",
    [
        "cafe\u0301",
        "e\u0301tait",
        "E\u0301.U.",
        "हिन्दी",
        "लिखना",
        "ที่นี่",
        "שָׁלוֹם",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "co\u00adoperate",
        "\U0001f469\U0001f3fd\u200d\U0001f680",  # an astronaut with a skin tone
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",  # a family
        "\U0001f1eb\U0001f1f7",  # a flag
        "\u2764\ufe0f",  # a red heart
        "1\ufe0f\u20e3",  # a keycap
    ],
)
def test_marks_and_joiners_stay_with_their_characters(word):
    assert [found.word for found in split_words(f"a {word} b, ({word})")] == ["a", word, "b", ",", "(", word, ")"]


def test_all_combining_marks_of_unicode_are_known():
    marks = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c).startswith("M")]
    assert all(len(split_words(f"a{mark}")) == 1 for mark in marks)


def test_places_are_those_of_the_text_and_only_white_space_is_left_out():
    text = " Ann's\u3000cat, née 'X'…\n"
    found = split_words(text)
    assert all(text[start:stop] == word for word, start, stop in found)
    assert "".join(word for word, _, _ in found) == "".join(text.split())
    characters = split_words(text, "characters")
    assert [word for word, _, _ in characters] == list("".join(text.split()))
    assert all(text[start:stop] == word for word, start, stop in characters)


@pytest.mark.parametrize("sign", ["\0", "\u00ad", "\u200b", "\u2060", "\ufe0f", "\ufeff"])
def test_signs_that_are_not_seen_are_no_words(sign):
    for text in (sign, f" {sign} {sign}\n"):
        assert split_words(text) == split_words(text, "characters") == []
    assert split_words(f"Ann {sign} , {sign}") == [("Ann", 0, 3), (",", 6, 7)]
    assert split_words(f"\u4eac{sign}", "characters") == [("\u4eac", 0, 1)]


def test_words_of_a_list_have_their_indices_as_positions():
    assert placed_words("New York", "words") == split_words("New York")
    assert placed_words("京", "characters") == [("京", 0, 1)]
    assert placed_words(["New York", "sleeps"]) == [("New York", 0, 1), ("sleeps", 1, 2)]
