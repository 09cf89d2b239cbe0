import numpy as np
import pytest

from jaxnlp.tasks.parsing.scores import Tree, exact_match, scores, sections, word_results, worst
from jaxnlp.text.conllu import sentence_of

# She was seen by him .      The cat sleeps
SENTENCES = [
    sentence_of(
        ["She", "was", "seen", "by", "him", "."],
        heads=[3, 3, 0, 5, 3, 3],
        relations=["nsubj:pass", "aux:pass", "root", "case", "obl:agent", "punct"],
    ),
    sentence_of(["The", "cat", "sleeps"], heads=[2, 3, 0], relations=["det", "nsubj", "root"]),
]
TREES = [
    # The subject lacks its subtype, the head of by is wrong, him has another relation, the full stop another head.
    Tree([3, 3, 0, 3, 3, 5], ["nsubj", "aux:pass", "root", "case", "nmod", "punct"]),
    Tree([2, 3, 0], ["det", "nsubj", "root"]),
]


def test_scores_are_those_counted_by_hand():
    found = scores(word_results(SENTENCES, TREES))
    assert {name: (round(metric.value * metric.count), metric.count) for name, metric in found.items()} == {
        "uas": (7, 9),
        "las": (6, 9),
        "uas_without_punctuation": (7, 8),
        "las_without_punctuation": (6, 8),
        "las_with_subtypes": (5, 9),
    }
    assert exact_match(SENTENCES, TREES) == (0.5, 2)


def test_gold_trees_have_all_words_right():
    trees = [Tree(one.heads, one.relations) for one in SENTENCES]
    assert {metric.value for metric in scores(word_results(SENTENCES, trees)).values()} == {1.0}
    assert worst(SENTENCES, trees, 10) == []
    subtypes = [Tree(one.heads, [name.partition(":")[0] for name in one.relations]) for one in SENTENCES]
    assert exact_match(SENTENCES, subtypes).value == 1.0


def test_sentences_of_punctuation_alone_have_a_share_of_zero_of_no_words():
    sentence = sentence_of(["."], heads=[0], relations=["punct"])
    found = scores(word_results([sentence], [Tree([0], ["punct"])]))
    assert found["las_without_punctuation"] == (0.0, 0)
    assert found["las"] == (1.0, 1)


def test_tables_are_by_relation_and_by_length():
    table, lengths, curve, confusions = [section.content for section in sections(word_results(SENTENCES, TREES))]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["root"] == (2, 1.0, 1.0, 1.0, 1.0)
    assert rows["nsubj"] == (2, 1.0, 1.0, 1.0, 1.0)
    assert rows["case"] == (1, 0.0, 0.0, 0.0, 0.0)
    assert rows["obl"] == (1, 1.0, 0.0, 0.0, 0.0)
    assert sum(row[0] for row in rows.values()) == 9
    # Arcs of length 1: was, by, The, cat; 2: She, him; 3: the full stop; roots twice.
    assert lengths.rows == (("root", 2, 1.0, 1.0), ("1", 4, 0.75, 0.75), ("2", 2, 1.0, 0.5), ("3", 1, 0.0, 0.0))
    assert [line.x for line in curve.lines] == [(1.0, 2.0, 3.0)] * 2
    assert curve.lines[1].y == (0.75, 0.5, 0.0)
    assert confusions.rows == (("obl", "nmod", 1, 1),)


def test_long_arcs_are_grouped():
    n = 40
    sentence = sentence_of(["w"] * n, heads=[n] * (n - 1) + [0], relations=["dep"] * (n - 1) + ["root"])
    (_, lengths, *_) = [
        section.content for section in sections(word_results([sentence], [Tree(sentence.heads, sentence.relations)]))
    ]
    assert [row[:2] for row in lengths.rows] == [
        *(("root", 1), ("1", 1), ("2", 1), ("3", 1), ("4", 1), ("5-6", 2), ("7-9", 3), ("10-14", 5), ("15-24", 10)),
        ("25 and more", 15),
    ]


def test_the_sentence_with_the_most_wrong_words_is_first():
    other = Tree([2, 3, 0], ["det", "obj", "root"])
    assert worst(SENTENCES, [TREES[0], other], 10) == [0, 1]
    assert worst(SENTENCES[::-1], [other, TREES[0]], 1) == [1]


def test_a_sentence_without_a_tree_is_refused():
    with pytest.raises(ValueError, match="sentence 1 has no tree to compare with"):
        word_results([sentence_of(["a"])], [Tree([0], ["root"])])
    assert np.array(word_results(SENTENCES, TREES).length).tolist() == [2, 1, 0, 1, 2, 3, 1, 1, 0]
