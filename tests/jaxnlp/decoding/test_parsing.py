import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.decoding.parsing import beam_parse
from jaxnlp.text.conllu import tree_problem
from jaxnlp.text.transitions import Configuration, kinds_of_transitions, num_transitions

RELATIONS = 3
CLASSES = num_transitions(RELATIONS)
SYSTEMS = ("arc_standard", "arc_eager")


LENGTHS = np.arange(64) % 12
"""Of the sentences of all tests, which have room for eleven words."""


def random_weights(seed):
    """Of a linear function of the nodes and the labels."""
    draw = np.random.default_rng(seed)
    return draw.normal(size=(18, 12, CLASSES)), draw.normal(size=(12, RELATIONS + 1, CLASSES))


def score(weights, nodes, labels):
    of_nodes, of_labels = weights
    return of_nodes[jnp.arange(18), nodes + 1].sum(axis=2) + of_labels[jnp.arange(12), labels].sum(axis=2)


def score_of_one(weights, nodes, labels):
    """The same of one configuration, in NumPy."""
    of_nodes, of_labels = weights
    total = sum(of_nodes[place, node + 1] for place, node in enumerate(nodes))
    return total + sum(of_labels[place, label] for place, label in enumerate(labels))


@functools.partial(jax.jit, static_argnames=("system", "num_beams"))
def compiled_parse(weights, lengths, system, num_beams):
    scores = functools.partial(score, weights)
    return beam_parse(scores, lengths, 11, num_relations=RELATIONS, system=system, num_beams=num_beams)


def parse(system, seed, *, num_beams):
    weights = jax.tree.map(np.float32, random_weights(seed))
    return jax.tree.map(np.asarray, compiled_parse(weights, LENGTHS, system, num_beams))


class Reference:
    """All sequences of a sentence, with their log-probabilities, in plain Python."""

    def __init__(self, system, length, one):
        self.system, self.length, self.one = system, length, one
        self.kinds = kinds_of_transitions(RELATIONS)

    def state(self, sequence):
        configuration, relations = Configuration(self.system, self.length), [0] * (self.length + 1)
        for number in sequence:
            dependent = configuration.apply(self.kinds[number])
            if dependent > 0:
                relations[dependent] = (number - 2) % RELATIONS
        return configuration, relations

    def choices(self, sequence):
        """The log-probability of each next transition; {} where the tree is complete."""
        configuration, relations = self.state(sequence)
        if configuration.finished:
            return {}
        nodes, legal = configuration.nodes(), configuration.legal()
        labels = [relations[node] if node >= 0 else RELATIONS for node in nodes[6:]]
        logits = self.one(nodes, labels)
        allowed = [number for number, kind in enumerate(self.kinds) if kind >= 0 and legal[kind]]
        total = np.logaddexp.reduce(logits[allowed])
        return {number: logits[number] - total for number in allowed}

    def beam(self, beams):
        running = [((), 0.0)]
        while any(self.choices(sequence) for sequence, _ in running):
            longer = []
            for sequence, total in running:
                found = self.choices(sequence)
                longer += [((*sequence, number), total + gained) for number, gained in found.items()]
                longer += [] if found else [(sequence, total)]
            running = sorted(longer, key=lambda item: -item[1])[:beams]
        sequence, total = running[0]
        configuration, relations = self.state(sequence)
        return [max(head, 0) for head in configuration.heads[1:]], relations[1:], total


@pytest.mark.sweep(1)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("beams", [1, 3])
def test_trees_are_those_of_the_search_in_plain_python(system, beams):
    found = parse(system, seed=3, num_beams=beams)
    one = functools.partial(score_of_one, random_weights(3))
    for row in (1, 4, 7, 5):
        length = LENGTHS[row]
        heads, relations, total = Reference(system, length, one).beam(beams)
        assert found.heads[row, :length].tolist() == heads
        assert found.relations[row, :length].tolist() == relations
        np.testing.assert_allclose(found.scores[row], total, rtol=1e-4)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("beams", [1, 3])
def test_every_output_is_a_tree_with_one_root_whatever_the_scores(system, beams):
    found = parse(system, seed=10 + beams, num_beams=beams)
    for row, length in enumerate(LENGTHS):
        heads, relations = found.heads[row].tolist(), found.relations[row].tolist()
        assert heads[length:] == relations[length:] == [0] * (11 - length)
        if length:
            assert tree_problem(heads[:length]) is None
            assert heads[:length].count(0) == 1
            assert all(
                (head == 0) == (relation == 0) for head, relation in zip(heads[:length], relations, strict=False)
            )


@pytest.mark.thorough
def test_a_beam_that_is_larger_than_the_number_of_sequences_takes_no_more_steps():
    steps = []

    def counted(nodes, labels):
        jax.debug.callback(lambda: steps.append(1))
        return score(weights, nodes, labels)

    weights = jax.tree.map(jnp.float32, random_weights(0))
    options = {"num_relations": RELATIONS, "system": "arc_standard", "num_beams": 4}
    found = jax.jit(lambda lengths: beam_parse(counted, lengths, 8, **options))(np.array([1, 1]))
    jax.block_until_ready(found)
    jax.effects_barrier()
    assert np.asarray(found.heads)[:, 0].tolist() == [0, 0]
    assert len(steps) == 2


@pytest.mark.thorough
def test_a_larger_beam_finds_more_probable_sequences():
    greedy, beam = (parse("arc_standard", 0, num_beams=beams).scores[2:10] for beams in (1, 16))
    assert (beam >= greedy - 1e-5).all()
    assert (beam > greedy + 1e-2).any()


def test_a_beam_has_at_least_one_sequence():
    with pytest.raises(ValueError, match="num_beams must be at least 1, got 0"):
        parse("arc_standard", 0, num_beams=0)
