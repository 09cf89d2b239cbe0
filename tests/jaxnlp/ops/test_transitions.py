"""The state in arrays does what `Configuration` does."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.transitions import (
    apply_transition,
    describing_nodes,
    finished,
    front_of,
    initial_state,
    legal_kinds,
    legal_transitions,
    node_labels,
)
from jaxnlp.text.transitions import Configuration, kinds_of_transitions, transition_id

RELATIONS = 4
LENGTH = 11
ROWS = 64


@pytest.mark.parametrize("system", ["arc_standard", "arc_eager"])
def test_random_parses_are_those_of_the_configuration_step_by_step(system):
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, LENGTH + 1, size=ROWS)
    configurations = [Configuration(system, int(length)) for length in lengths]
    relations = np.zeros((ROWS, LENGTH + 1), int)

    @jax.jit
    @jax.vmap
    def step(state, number):
        moved = apply_transition(state, number, RELATIONS, system)
        new = jax.tree.map(lambda a, b: jnp.where(finished(state), b, a), moved, state)
        return new, describing_nodes(new, system), legal_kinds(new, system), finished(new), front_of(new)

    state = jax.vmap(lambda length: initial_state(length, LENGTH, system))(jnp.array(lengths))
    for _ in range(4 * LENGTH):
        numbers = np.zeros(ROWS, np.int32)
        for row, configuration in enumerate(configurations):
            if configuration.finished:
                continue
            kind = int(generator.choice(np.flatnonzero(configuration.legal())))
            relation = int(generator.integers(1, RELATIONS)) if kind in (2, 3) else 0
            numbers[row] = transition_id(kind, relation, RELATIONS)
            dependent = configuration.apply(kind)
            if dependent > 0:
                relations[row, dependent] = relation
        state, *found = step(state, numbers)
        for one, nodes, legal, done, front in zip(
            configurations, *(np.asarray(x).tolist() for x in found), strict=True
        ):
            assert nodes == one.nodes()
            assert done == one.finished
            assert front == one.front
            assert done or tuple(legal) == one.legal()
        if all(one.finished for one in configurations):
            break
    assert all(one.finished for one in configurations)
    for row, one in enumerate(configurations):
        assert np.asarray(state.heads[row])[: len(one.heads)].tolist() == one.heads
    np.testing.assert_array_equal(state.relations, relations)


@pytest.mark.parametrize("system", ["arc_standard", "arc_eager"])
def test_a_row_of_padding_is_finished(system):
    assert finished(initial_state(jnp.array(0), 3, system))
    assert not finished(initial_state(jnp.array(1), 3, system))


def test_transitions_are_allowed_as_their_kinds_are_and_the_arc_to_the_left_called_root_never():
    kinds = np.array(kinds_of_transitions(RELATIONS))
    every = np.array([[(number >> bit) & 1 for bit in range(5)] for number in range(32)], bool)
    found = np.asarray(legal_transitions(jnp.array(every), RELATIONS))
    chex.assert_shape(found, (32, 2 + 2 * RELATIONS))
    for row, allowed in zip(found, every, strict=True):
        assert row.tolist() == [bool(kind >= 0 and allowed[kind]) for kind in kinds]


def test_labels_are_those_of_the_dependents():
    nodes = jnp.array([[3, 2, 1, 0, -1, -1, *[1, 3, -1, -1, 2, -1], *[-1] * 6]])
    found = node_labels(nodes, jnp.array([0, 7, 8, 9]), 99)
    assert np.asarray(found).tolist() == [[7, 9, 99, 99, 8, 99, *[99] * 6]]


@pytest.mark.thorough
def test_transitions_compile_once_for_all_lengths():
    compiled = jax.jit(jax.vmap(functools.partial(apply_transition, num_relations=2, system="arc_standard")))
    for lengths in ([1, 2], [3, 5]):
        state = jax.vmap(lambda n: initial_state(n, 5, "arc_standard"))(jnp.array(lengths))
        compiled(state, jnp.zeros(2, int))
    assert compiled._cache_size() == 1
