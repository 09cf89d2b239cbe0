import pytest

from jaxnlp.text.word_split import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.N. met.", "The U.N. met ."),
        ("It doesn't cost $3,000.50, it's free!", "It does n't cost $ 3,000.50 , it 's free !"),
        ("On 1996-08-22 Ann-Marie (37) won", "On 1996-08-22 Ann-Marie ( 37 ) won"),
        ("  \t\n ", ""),
        ("中国人", "中国人"),
    ],
)
def test_words_numbers_and_signs_are_split(text, words):
    assert " ".join(word for word, _, _ in split_words(text)) == words


def test_places_are_those_of_the_text_and_only_white_space_is_left_out():
    text = " Ann's\u3000cat, née 'X'…\n"
    found = split_words(text)
    assert all(text[start:stop] == word for word, start, stop in found)
    assert "".join(word for word, _, _ in found) == "".join(text.split())
    characters = split_words(text, "characters")
    assert [word for word, _, _ in characters] == list("".join(text.split()))
    assert all(text[start:stop] == word for word, start, stop in characters)
