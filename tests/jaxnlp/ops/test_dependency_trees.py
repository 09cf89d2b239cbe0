import numpy as np

from jaxnlp.ops.dependency_trees import possible_arcs, tree_scores
from tests.jaxnlp.ops.tree_helpers import every_tree, random_scores, score


def test_words_of_a_sentence_may_have_any_other_word_or_root_as_their_head():
    arcs = np.asarray(possible_arcs(np.array([2, 0]), 3))
    np.testing.assert_array_equal(arcs[0], [[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
    assert not arcs[1].any()


def test_the_score_of_a_tree_is_the_sum_over_its_words_and_padding_adds_nothing():
    lengths = np.array([3, 2, 0])
    scores = random_scores(lengths=lengths, dtype=np.float32)
    heads = np.zeros((3, 3), np.int32)
    heads[0], heads[1, :2] = every_tree(3, projective=False)[4], (2, 0)
    expected = [score(heads[0], scores[0]), score(heads[1, :2], scores[1]), 0.0]
    np.testing.assert_allclose(tree_scores(scores, heads, lengths), expected, rtol=1e-6)
