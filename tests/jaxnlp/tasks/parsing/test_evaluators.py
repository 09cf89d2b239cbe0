import pytest

from jaxnlp.tasks.parsing.evaluators import Validation, error_sections
from jaxnlp.tasks.parsing.scores import Tree
from jaxnlp.text.conllu import sentence_of

SENTENCE = sentence_of(["A", "cat", "sleeps"], heads=[2, 3, 0], relations=["det", "nsubj", "root"])


def test_wrong_sentences_are_shown_with_both_trees_and_wrong_words_are_marked():
    (section,) = error_sections(
        [SENTENCE] * 2, [Tree([2, 3, 0], ["det", "nsubj", "root"]), Tree([3, 3, 0], ["det", "obj", "root"])]
    )
    right, found = section.content.paragraphs
    assert "".join(text for text, _ in right) == "right: A (det ← cat 2) cat (nsubj ← sleeps 3) sleeps (root) "
    assert "".join(text for text, _ in found) == "found: A (det ← sleeps 3) cat (obj ← sleeps 3) sleeps (root) "
    assert [text.split()[0] for text, marked in found if marked] == ["A", "cat"]


def test_there_is_no_section_where_all_is_right():
    assert error_sections([SENTENCE], [Tree(SENTENCE.heads, SENTENCE.relations)]) == []


def test_a_beam_has_at_least_one_sequence():
    with pytest.raises(ValueError, match="num_beams must be at least 1, got 0"):
        Validation(num_beams=0)
