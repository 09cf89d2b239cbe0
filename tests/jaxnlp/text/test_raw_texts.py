import numpy as np
import pytest

from jaxnlp.text.raw_texts import as_texts, one_line, require_sentences, require_texts
from jaxnlp.text.word_split import PlacedWord, placed_words


def test_texts_must_be_texts():
    assert require_texts(["a", ""]) == ["a", ""]
    assert require_texts([], "questions") == []
    with pytest.raises(ValueError, match="expected questions, got int at index 1"):
        require_texts(["a", 2], "questions")
    with pytest.raises(
        ValueError, match=r"questions of characters, got half of a surrogate pair at index 0: 'a\\ud800'"
    ):
        require_texts(["a\ud800"], "questions")


def test_a_processor_needs_a_text():
    assert as_texts("a") == ["a"]
    with pytest.raises(ValueError, match="there are no texts"):
        as_texts([])


def test_sentences_are_texts_or_lists_of_words():
    assert require_sentences(["a b", ["a", "New York"], ("c",), np.array(["d"])]) == [
        "a b",
        ["a", "New York"],
        ["c"],
        ["d"],
    ]
    for words, message in (
        (["a", 3], "text 2: expected words, got int at index 1"),
        ([["a"]], "text 2: expected words, got list at index 0"),
        (3, "expected texts, got int at index 1"),
    ):
        with pytest.raises(ValueError, match=message):
            require_sentences(["a", words])


def test_blank_words_of_sentences_are_counted_and_the_first_is_named(caplog):
    assert require_sentences([["a"], ["b", "\u200b", "", "c"]]) == [["a"], ["b", "\u200b", "", "c"]]
    assert caplog.messages == ["blank words, which are left out: 2, the first in text 2, index 1"]
    assert placed_words(["b", "\u200b", "", "c"]) == [PlacedWord("b", 0, 1), PlacedWord("c", 3, 4)]


def test_a_line_is_one_line():
    assert one_line("a\r\nb\tc\u2028d\x85e  f\\n") == "a b c d e  f\\n"


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_value_of_a_table_in_memory_is_answered_with_what_a_blank_text_is(missing):
    with pytest.raises(
        ValueError, match=r"got \w+ at index 1; replace missing values, such as with \"\" for a blank text$"
    ):
        require_texts(["a", missing])
    with pytest.raises(ValueError, match=r"got int at index 0$"):
        require_texts([3])
