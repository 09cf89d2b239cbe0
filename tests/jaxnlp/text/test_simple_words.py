import pytest

from jaxnlp.text.simple_words import simple_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The dog barks.", "The dog barks ."),
        ("She doesn't; they can't!", "She does n't ; they ca n't !"),
        ("Anna's dog, I'm told, they've seen", "Anna 's dog , I 'm told , they 've seen"),
        ("Dr. Lee of the U.S. has 1,000.5 at 12:30...", "Dr. Lee of the U.S. has 1,000.5 at 12:30 ..."),
        ("see https://a.org/b?c=d or x.y@z.org", "see https://a.org/b?c=d or x.y@z.org"),
        ("a well-known (old) café", "a well - known ( old ) café"),
        ("don\N{RIGHT SINGLE QUOTATION MARK}t", "do n\N{RIGHT SINGLE QUOTATION MARK}t"),
    ],
)
def test_marks_of_punctuation_and_short_forms_are_words(text, words):
    assert simple_words(text) == words.split()


def test_no_character_is_lost_but_white_space():
    text = "“Is it?” he said: 3.5%—no, 'tis… #tag @me 日本 🙂 e.g. n't"
    assert "".join(simple_words(text)) == "".join(text.split())
    assert simple_words(" \n ") == []
