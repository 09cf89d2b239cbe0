import pytest

from jaxnlp.corpus import DataError
from jaxnlp.tasks.language_model.prompts import check_prompt, decode_continuation, encode_continuation, known_prompt
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.encoder_texts import EncoderTexts
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from jaxnlp.text.words import EOL, UNK, WordVocabulary

# Texts of one line: without a line break, and without a space, in several scripts.
TEXTS = ["the tide ate the stone", "abcabc", "\u6d77\u6f6e\u5403\u4e86\u77f3\u5934", "\u0645\u062f", "\U0001f40c" * 9]


@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_that_the_vocabulary_lacks_becomes_a_character_of_the_text(text, caplog):
    vocabulary = CharacterVocabulary.of(text)
    prompt = known_prompt("\n", vocabulary)
    assert len(prompt) == 1
    assert prompt in text
    check_prompt("\n", 4, vocabulary)
    assert (
        f"--task.sample-prompt '\\n' is not in the vocabulary of this data; samples start with {prompt!r}"
        in caplog.text
    )


@pytest.mark.parametrize(
    "vocabulary", [CharacterVocabulary.of("the\n"), WordVocabulary((UNK, "the", EOL), unknown=UNK)]
)
def test_a_prompt_that_the_vocabulary_has_stays(vocabulary, caplog):
    for prompt in ("\n", "the"):
        assert known_prompt(prompt, vocabulary) == prompt
        check_prompt(prompt, 4, vocabulary)
    assert not caplog.text


@pytest.mark.parametrize("words", [WordVocabulary(("a", "b")), WordVocabulary((UNK, "a"), unknown=UNK)])
def test_a_line_break_becomes_a_word_where_the_vocabulary_has_no_line_end(words):
    assert len(words.encode(known_prompt("\n", words))) == 1


@pytest.mark.parametrize(("prompt", "tokens"), [("", 0), ("tetet", 5)])
def test_a_prompt_that_cannot_be_continued_is_refused(prompt, tokens):
    with pytest.raises(DataError, match=f"'{prompt}': expected 1 to 4 tokens, got {tokens}. Give another prompt"):
        check_prompt(prompt, 4, CharacterVocabulary.of("the "))


def test_texts_of_an_encoder_start_with_their_start_token_and_are_continued_without_it():
    vocabulary = EncoderTexts(WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat"]))
    assert known_prompt("\n", vocabulary) == "\n"
    check_prompt("\n", 1, vocabulary)
    assert encode_continuation(vocabulary, "cat").tolist() == [6]
    assert decode_continuation(vocabulary, [6, 5]) == " cat the"
