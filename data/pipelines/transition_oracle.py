"""Gold trees as transitions: projectivity, the static oracle, and training targets of parsers. No jax.

Words are the numbers from 1 to n; heads [n] are numbers from 0 to n, and 0 is the head of the root.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxnlp.text.transitions import (
    ABSENT,
    LEFT,
    REDUCE,
    RIGHT,
    ROOT_ARC,
    SHIFT,
    Configuration,
    System,
    transition_id,
)


class Derivation(NamedTuple):
    """The transitions of a tree, S of them, and the configurations before them.

    Attributes:
      transitions: their ids [S] int32.
      nodes: 18 nodes of each configuration, see `Configuration.nodes` [S, 18] int16.
      legal: whether each kind of transition is allowed [S, 5] bool.
      dependents: of the arc that each transition adds; ABSENT = no arc [S] int16.
    """

    transitions: np.ndarray
    nodes: np.ndarray
    legal: np.ndarray
    dependents: np.ndarray


def is_projective(heads: Sequence[int]) -> bool:
    """Whether no two arcs cross: all words between a head and its dependent are below the head. Args: heads: of a tree
    [n]."""
    return not _crossed(heads)


def lifted(heads: Sequence[int]) -> list[int]:
    """A similar projective tree: while arcs cross, the shortest of them is attached to the head of its head.

    Args: heads: of a tree [n].

    Source: Nivre and Nilsson 2005, section 2. Differs: relations stay unchanged.
    """
    new_heads = list(heads)
    while crossed := _crossed(new_heads):
        word = min(crossed, key=lambda word: abs(word - new_heads[word - 1]))  # of equal arcs, that of the first word
        new_heads[word - 1] = new_heads[new_heads[word - 1] - 1]
    return new_heads


def _crossed(heads: Sequence[int]) -> list[int]:
    """The words with a word between themselves and their head that is not below the head. Time O(n^2)."""
    head, word = np.array([0, *heads]), np.arange(len(heads) + 1)
    below = np.zeros((len(word), len(word)), bool)  # [head, word]
    above = word
    while above.any():
        below[above, word] = True
        above = head[above]
    below[0] = True
    others = np.cumsum(~below, axis=1)
    between = others[head, np.maximum(head, word)] - others[head, np.minimum(head, word)]
    return np.flatnonzero(between).tolist()


def oracle(heads: Sequence[int], system: System) -> list[int]:
    """Kinds of transitions that build a projective tree; an arc follows when its dependent has all its dependents.

    Raises: ValueError when the tree is not projective.
    """
    configuration = Configuration(system, len(heads))
    waiting = [0] * (len(heads) + 1)  # number of dependents without an arc so far
    for head in heads:
        waiting[head] += 1
    choose = _next_standard if system == "arc_standard" else _next_eager
    kinds = []
    while not configuration.finished:
        kind = choose(configuration, heads, waiting)
        if not configuration.legal()[kind]:
            raise ValueError(f"the tree with the heads {list(heads)} is not projective")
        dependent = configuration.apply(kind)
        if dependent > 0:
            waiting[configuration.heads[dependent]] -= 1
        kinds.append(kind)
    return kinds


def _next_standard(configuration: Configuration, heads: Sequence[int], waiting: Sequence[int]) -> int:
    stack = configuration.stack
    if len(stack) >= 2:
        top, below = stack[-1], stack[-2]
        if below and heads[below - 1] == top:
            return LEFT
        if heads[top - 1] == below and not waiting[top]:
            return RIGHT if below else ROOT_ARC
    return SHIFT


def _next_eager(configuration: Configuration, heads: Sequence[int], waiting: Sequence[int]) -> int:
    if configuration.stack:
        top, front = configuration.stack[-1], configuration.front
        if front > 0 and heads[top - 1] == front:
            return LEFT
        if front > 0 and heads[front - 1] == top:
            return RIGHT
        if configuration.heads[top] > 0 and not waiting[top]:
            return REDUCE
    return SHIFT


def derivation(heads: Sequence[int], relations: Sequence[int], system: System, *, num_relations: int) -> Derivation:
    """The oracle's transitions of a projective tree.

    Args:
      heads: [n].
      relations: the id of each word's relation, from 0, root, to R - 1 [n].
      system: the transition system.
      num_relations: R.

    Raises: ValueError when the tree is not projective.
    """
    configuration = Configuration(system, len(heads))
    transitions, nodes, legal, dependents = [], [], [], []
    for kind in oracle(heads, system):
        nodes.append(configuration.nodes())
        legal.append(configuration.legal())
        dependent = configuration.apply(kind)
        relation = 0 if dependent == ABSENT or kind == ROOT_ARC else relations[dependent - 1]
        transitions.append(transition_id(kind, relation, num_relations))
        dependents.append(dependent)
    return Derivation(
        np.array(transitions, np.int32),
        np.array(nodes, np.int16),
        np.array(legal, bool),
        np.array(dependents, np.int16),
    )
