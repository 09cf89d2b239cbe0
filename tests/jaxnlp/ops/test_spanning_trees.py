import jax
import numpy as np
import pytest

from jaxnlp.ops.spanning_trees import chu_liu_edmonds, tree_log_normalizer, tree_marginals
from tests.jaxnlp.ops.tree_checks import TreeChecks, compiled
from tests.jaxnlp.ops.tree_helpers import is_tree, score


class TestSpanningTrees(TreeChecks):
    projective = False
    functions = compiled(chu_liu_edmonds, tree_log_normalizer, tree_marginals)


def test_one_root_is_kept_where_several_would_score_more_and_crossing_arcs_are_taken():
    scores = np.zeros((6, 5, 6), np.float32)
    scores[1, :, 0] = 9.0
    scores[1, [0, 3], [3, 2]] = 8.0
    scores[1, 1, 0] = 30.0
    scores[1, 2, 2] = 1.0
    assert TestSpanningTrees().all_of(scores)[0][1].tolist() == [3, 0, 2, 2, 0]


@pytest.mark.thorough
def test_long_sentences_with_many_nested_cycles_have_the_tree_of_a_recursive_implementation():
    draw = np.random.default_rng(5)
    scores = draw.normal(size=(4, 24, 25)).astype(np.float32)
    # Neighbours prefer each other, and pairs of neighbours other pairs, so that cycles of cycles have to be contracted.
    for width, bonus in ((2, 30.0), (4, 20.0), (8, 10.0)):
        block = np.arange(24) // width
        scores[:, :, 1:] += bonus * (block[:, None] == block[None])
    lengths = np.array([24, 24, 17, 9])
    found = jax.device_get(jax.jit(chu_liu_edmonds)(scores, lengths))
    for heads, row, n in zip(found, scores, lengths, strict=True):
        heads = heads[:n].tolist()
        assert is_tree(heads)
        expected = max((recursive(row, n, root) for root in range(n)), key=lambda one: score(one, row))
        np.testing.assert_allclose(score(heads, row), score(expected, row), rtol=1e-5)


def recursive(scores, length, root):
    """The best tree [n] whose root is a given word, by the textbook's recursion on dictionaries."""
    arcs = {
        (head - 1, word): float(scores[word, head])
        for word in range(length)
        for head in range(1, length + 1)
        if head - 1 != word != root
    }
    heads = contracted(arcs, root)
    return [0 if word == root else heads[word] + 1 for word in range(length)]


def contracted(arcs, root):
    best = {}
    for (head, word), value in arcs.items():
        if word not in best or value > arcs[best[word], word]:
            best[word] = head
    cycle = next(filter(None, (cycle_from(best, word) for word in best)), None)
    if cycle is None:
        return best
    new, entered, left = max(max(arc) for arc in arcs) + 1, {}, {}
    smaller = {}
    for (head, word), value in arcs.items():
        if word in cycle and head not in cycle:
            gain = value - arcs[best[word], word]
            if gain > smaller.get((head, new), -np.inf):
                smaller[head, new], entered[head] = gain, word
        elif head in cycle and word not in cycle:
            if value > smaller.get((new, word), -np.inf):
                smaller[new, word], left[word] = value, head
        elif head not in cycle:
            smaller[head, word] = value
    found = contracted(smaller, root)
    heads = {word: left[word] if head == new else head for word, head in found.items() if word != new}
    heads |= {word: best[word] for word in cycle}
    heads[entered[found[new]]] = found[new]
    return heads


def cycle_from(best, word):
    path = []
    while word in best and word not in path:
        path.append(word)
        word = best[word]
    return set(path[path.index(word) :]) if word in path else None
