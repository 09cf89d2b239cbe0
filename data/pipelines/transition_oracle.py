"""Gold trees as transitions: projectivity, the static oracle, and training targets of parsers. No jax.

Words are the numbers from 1 to n; heads [n] are numbers from 0 to n, and 0 is the head of the root.
"""

import heapq
from collections.abc import Iterable, Sequence
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
      legal: which kinds of transitions are allowed [S, 5] bool.
      dependents: the dependent of the arc that each transition adds; ABSENT = it adds no arc [S] int16.
    """

    transitions: np.ndarray
    nodes: np.ndarray
    legal: np.ndarray
    dependents: np.ndarray


def is_projective(heads: Sequence[int]) -> bool:
    """Whether no two arcs cross: all words between a head and its dependent are below the head. Time O(n).

    Args:
      heads: of a tree [n].
    """
    first, last = _covered(heads)
    return all(first[head] <= word <= last[head] for word, head in enumerate(heads, 1))


def lifted(heads: Sequence[int]) -> list[int]:
    """A similar projective tree: while arcs cross, the shortest of them is attached to the head of its head.

    Time O(n), and for each change of a head O(m + log n), with m words below the moved word and its old head's
    dependents.

    Args:
      heads: of a tree [n].

    Source: Nivre and Nilsson 2005, section 2. Differs: relations stay unchanged.
    """
    new_heads = list(heads)
    first, last = _covered(new_heads)
    dependents = [set(words) for words in _dependents(new_heads)]

    def arc(word: int) -> tuple[int, int]:
        return abs(word - new_heads[word - 1]), word

    def is_crossed(word: int) -> bool:
        return not first[new_heads[word - 1]] <= word <= last[new_heads[word - 1]]

    # An arc that is crossed stays crossed until its dependent moves, since a word never gets below another word.
    crossed = [arc(word) for word in range(1, len(new_heads) + 1) if is_crossed(word)]
    heapq.heapify(crossed)
    while crossed:
        _, word = heapq.heappop(crossed)
        head = new_heads[word - 1]
        dependents[head].remove(word)
        new_heads[word - 1] = new_heads[head - 1]
        dependents[new_heads[word - 1]].add(word)
        if is_crossed(word):
            heapq.heappush(crossed, arc(word))
        # The words that moved are no longer below the old head: the arcs from it that cover them are crossed now.
        before = first[head], last[head]
        for moved in _below(word, dependents):
            if moved < head:
                first[head] = max(first[head], moved + 1)
            else:
                last[head] = min(last[head], moved - 1)
        if before != (first[head], last[head]):
            newly = (other for other in dependents[head] if before[0] <= other <= before[1] and is_crossed(other))
            for other in newly:
                heapq.heappush(crossed, arc(other))
    return new_heads


def _covered(heads: Sequence[int]) -> tuple[list[int], list[int]]:
    """The first and the last of the words around each word, without a gap, that are below it [n + 1] each.

    The root's head, 0, covers all words.
    """
    dependents = _dependents(heads)
    order = _below(0, dependents)
    position = {word: index for index, word in enumerate(order)}
    size = [1] * len(dependents)
    first, last = list(range(len(dependents))), list(range(len(dependents)))
    for word in reversed(order):  # dependents come before their heads
        size[word] += sum(size[dependent] for dependent in dependents[word])
        below = range(position[word], position[word] + size[word])
        while first[word] > 1 and position[first[word] - 1] in below:
            first[word] = first[first[word] - 1]
        while last[word] + 1 < len(dependents) and position[last[word] + 1] in below:
            last[word] = last[last[word] + 1]
    return first, last


def _dependents(heads: Sequence[int]) -> list[list[int]]:
    """The dependents of each word, by its number, and of 0 [n + 1]."""
    dependents: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, 1):
        dependents[head].append(word)
    return dependents


def _below(word: int, dependents: Sequence[Iterable[int]]) -> list[int]:
    """A word and all words below it; each word is followed by the words below it."""
    words, waiting = [], [word]
    while waiting:
        words.append(waiting.pop())
        waiting.extend(dependents[words[-1]])
    return words


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
