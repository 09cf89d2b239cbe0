import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from data.pipelines.transition_oracle import derivation, is_projective, lifted, oracle
from data.small_grammar import grammar_sentences
from jaxnlp.text.conllu import parse_conllu, tree_problem
from jaxnlp.text.transitions import KINDS, Configuration
from tests.data.pipelines.transitions import rebuilt

SYSTEMS = ("arc_standard", "arc_eager")


def crosses(heads):
    """Whether two arcs cross, by comparing all pairs; that of the root begins at 0."""
    arcs = [tuple(sorted((head, word))) for word, head in enumerate(heads, 1)]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


def random_tree(generator, length):
    """Heads [n]: each word's head is ROOT or a word that was attached before, of which one is the root."""
    order = generator.permutation(length) + 1
    heads = [0] * length
    for place, word in enumerate(order[1:], 1):
        heads[word - 1] = int(order[generator.integers(place)])
    return heads


def test_projectivity_is_that_no_two_arcs_cross():
    generator = np.random.default_rng(0)
    trees = [random_tree(generator, int(length)) for length in generator.integers(1, 9, size=400)]
    assert all(is_projective(heads) != crosses(heads) for heads in trees)
    assert 0.2 < np.mean([crosses(heads) for heads in trees]) < 0.8


@pytest.mark.parametrize(
    ("heads", "projective"),
    [
        ([0], True),
        ([2, 0, 2], True),
        ([3, 0, 2], False),
        ([3, 3, 0], True),
        ([3, 4, 0, 3], False),
        ([2, 3, 0, 1], False),
    ],
)
def test_projectivity_of_trees_drawn_by_hand(heads, projective):
    assert is_projective(heads) == projective


def test_lifted_trees_are_projective_and_projective_trees_stay():
    generator = np.random.default_rng(1)
    for length in generator.integers(1, 12, size=200):
        heads = random_tree(generator, int(length))
        found = lifted(heads)
        assert is_projective(found)
        assert tree_problem(found) is None
        assert found.count(0) == 1
        assert (found == heads) == is_projective(heads)


def covers(heads, word):
    """Whether all words between a word and its head are below the head, by walking up from each of them."""
    head = heads[word - 1]
    for between in range(min(word, head) + 1, max(word, head)):
        while between not in (0, head):
            between = heads[between - 1]
        if between != head:
            return False
    return True


def lifted_by_definition(heads):
    found = list(heads)
    while crossed := [word for word in range(1, len(found) + 1) if not covers(found, word)]:
        word = min(crossed, key=lambda place: (abs(place - found[place - 1]), place))
        found[word - 1] = found[found[word - 1] - 1]
    return found


def long_paths(generator, length):
    """As `random_tree`, with long paths: each word's head is one of the three words that were attached before it."""
    order = generator.permutation(length) + 1
    heads = [0] * length
    for place, word in enumerate(order[1:], 1):
        heads[word - 1] = int(order[max(0, place - 1 - generator.integers(3))])
    return heads


@pytest.mark.parametrize("draw", [random_tree, long_paths])
def test_lifted_trees_are_those_of_the_definition(draw):
    generator = np.random.default_rng(3)
    for length in generator.integers(1, 25, size=150):
        heads = draw(generator, int(length))
        assert is_projective(heads) == all(covers(heads, word) for word in range(1, len(heads) + 1))
        assert lifted(heads) == lifted_by_definition(heads)


def lines_run(function, *arguments):
    """Number of lines of Python that a call runs."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


def test_the_work_for_long_sentences_is_bounded():
    def path(length):
        return [*range(2, length + 1), 0]

    def both_sides(length):  # the root in the middle, with all other words as its dependents
        return [0 if word == length // 2 else length // 2 for word in range(1, length + 1)]

    def crossed(length):  # words 5 and 8 cross words 6 and 9, and so on
        return [0, *(1 if word % 4 in (2, 3) else word - 3 for word in range(2, length + 1))]

    for tree in (path, both_sides, crossed):
        assert tree_problem(tree(100)) is None
        short, long = (lines_run(tree_problem, tree(length)) for length in (100, 400))
        assert long < 6 * short, tree.__name__
        # Longer sentences are refused or left out before their trees are lifted.
        assert max(lines_run(function, tree(256)) for function in (is_projective, lifted)) < 20_000, tree.__name__
    assert not is_projective(crossed(256))


def test_lifting_moves_the_shortest_crossing_arc_to_the_head_of_its_head():
    # A hearing is scheduled on the issue today: hearing -> issue crosses scheduled -> today.
    heads = [2, 4, 4, 0, 7, 7, 2, 4]
    assert not is_projective(heads)
    assert lifted(heads) == [2, 4, 4, 0, 7, 7, 4, 4]


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_oracle_rebuilds_random_projective_trees(system):
    generator = np.random.default_rng(2)
    for length in generator.integers(1, 16, size=200):
        heads = lifted(random_tree(generator, int(length)))
        found = derivation(heads, [0 if head == 0 else 3 for head in heads], system, num_relations=5)
        assert len(found.transitions) == (2 * length if system == "arc_standard" else 2 * length - 1)
        assert rebuilt(found.transitions, int(length), system, 5) == heads


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_oracle_refuses_trees_that_are_not_projective(system):
    with pytest.raises(ValueError, match=r"heads \[3, 4, 0, 3\] is not projective"):
        oracle([3, 4, 0, 3], system)


def test_transitions_of_i_parsed_this_sentence_correctly():
    """The sentence of CS224N's assignment 3."""
    heads = [2, 0, 4, 2, 2]
    names = [KINDS[kind] for kind in oracle(heads, "arc_standard")]
    assert names == [
        *("SHIFT", "SHIFT", "LEFT-ARC", "SHIFT", "SHIFT", "LEFT-ARC", "RIGHT-ARC", "SHIFT", "RIGHT-ARC", "RIGHT-ARC")
    ]
    names = [KINDS[kind] for kind in oracle(heads, "arc_eager")]
    assert names == [*("SHIFT", "LEFT-ARC", "SHIFT", "SHIFT", "LEFT-ARC", "RIGHT-ARC", "REDUCE", "RIGHT-ARC", "REDUCE")]


def test_a_derivation_has_the_relations_of_the_dependents_and_what_is_allowed_at_each_step():
    found = derivation([2, 0, 2], [1, 0, 2], "arc_standard", num_relations=3)
    # SHIFT, SHIFT, LEFT-ARC 1, SHIFT, RIGHT-ARC 2, RIGHT-ARC root; arcs to the right begin at 2 + 3.
    assert found.transitions.tolist() == [0, 0, 3, 0, 7, 5]
    assert found.dependents.tolist() == [-1, -1, 1, -1, 3, 2]
    kinds = [[kind for kind, allowed in enumerate(row) if allowed] for row in found.legal]
    assert kinds == [[0], [0], [0, 2, 3], [0], [2, 3], [4]]
    assert found.nodes[2].tolist()[:6] == [2, 1, 0, 3, -1, -1]
    assert found.nodes[4].tolist()[6:] == [-1] * 6 + [1] + [-1] * 5  # word 2, below the top, has word 1 to its left


def test_a_derivation_does_not_list_the_words_to_read_at_each_step(monkeypatch):
    monkeypatch.setattr(Configuration, "buffer", property(lambda self: pytest.fail("listed")))
    assert len(derivation([2, 0, 2], [1, 0, 2], "arc_standard", num_relations=3).transitions) == 6


def assert_rebuilt(sentences, system):
    for sentence in sentences:
        relations = [0 if head == 0 else 1 for head in sentence.heads]
        found = derivation(sentence.heads, relations, system, num_relations=2)
        assert rebuilt(found.transitions, len(sentence.words), system, 2) == list(sentence.heads)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_oracle_rebuilds_the_trees_of_the_small_grammar(system):
    assert_rebuilt(grammar_sentences(200, seed=0), system)


def treebank(part):
    folder = Path(os.environ["JAXNLP_DATA"]) / "ud_en_ewt"
    if part == "train":
        return parse_conllu(gzip.decompress((folder / "en_ewt-ud-train.conllu.gz").read_bytes()).decode(), part)
    return parse_conllu((folder / "en_ewt-ud-dev.conllu").read_text(encoding="utf-8"), part)


@pytest.mark.realdata
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_oracle_rebuilds_a_sample_of_ud_english(system):
    projective = [sentence for sentence in treebank("dev") if is_projective(sentence.heads)]
    assert len(projective) == 2_001 - 31
    assert_rebuilt(projective[::20], system)


@pytest.mark.realdata
@pytest.mark.thorough
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_oracle_rebuilds_every_projective_training_tree_of_ud_english(system):
    sentences = treebank("train")
    projective = [sentence for sentence in sentences if is_projective(sentence.heads)]
    assert (len(sentences), len(projective)) == (12_544, 12_544 - 288)
    assert_rebuilt(projective, system)
