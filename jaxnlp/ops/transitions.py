"""Transition systems of dependency parsing for jitted parsers: the state of one sentence as arrays.

`jaxnlp.text.transitions.Configuration` explains the transitions. Each function takes one sentence; `jax.vmap` maps it
over a batch. T is the length of the padded sentence; words are the numbers from 1 to n.
"""

from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from jaxnlp.text.transitions import ABSENT, LABELLED, NODES, REDUCE, SHIFT, System, kinds_of_transitions
from jaxnlp.typing import Array


class ParserState(NamedTuple):
    """The configuration of one sentence.

    Attributes:
      stack: its words, the bottom first [T + 2] int32.
      size: number of words on it.
      following: the next word to read.
      moved_back: the word that REDUCE has moved back to the buffer; 0 = none.
      heads: of each word, by its number; ABSENT = none yet [T + 1] int32.
      relations: of each word to its head, by its number [T + 1] int32.
      children: of each word, the leftmost, the second from the left, the rightmost, the second from the right [T + 1,
        4] int32.
      length: n.
    """

    stack: Array
    size: Array
    following: Array
    moved_back: Array
    heads: Array
    relations: Array
    children: Array
    length: Array


def initial_state(length: Array, positions: int, system: System) -> ParserState:
    """The state before the first transition. Args: length: n, a scalar; positions: T."""
    zero = jnp.zeros((), jnp.int32)
    return ParserState(
        stack=jnp.zeros(positions + 2, jnp.int32),
        size=zero + (1 if system == "arc_standard" else 0),
        following=zero + 1,
        moved_back=zero,
        heads=jnp.full(positions + 1, ABSENT, jnp.int32),
        relations=jnp.zeros(positions + 1, jnp.int32),
        children=jnp.full((positions + 1, 4), ABSENT, jnp.int32),
        length=length.astype(jnp.int32),
    )


def _at(values: Array, indices: Array) -> Array:
    """The values at these indices; ABSENT at negative indices."""
    return jnp.where(indices >= 0, values[jnp.maximum(indices, 0)], ABSENT)


def _from_top(state: ParserState, depth: int) -> Array:
    """The words of the stack from its top [depth]."""
    return _at(state.stack, state.size - 1 - jnp.arange(depth, dtype=jnp.int32))


def front_of(state: ParserState) -> Array:
    """The first word of the buffer, or ABSENT, [] int."""
    unread = jnp.where(state.following <= state.length, state.following, ABSENT)
    return jnp.where(state.moved_back > 0, state.moved_back, unread)


def finished(state: ParserState) -> Array:
    """Whether the tree is complete, [] bool."""
    return (front_of(state) == ABSENT) & (state.size <= 1)


def legal_kinds(state: ParserState, system: System) -> Array:
    """Whether each kind of transition is allowed: SHIFT, REDUCE, LEFT, RIGHT, ROOT_ARC [5] bool."""
    has_front, size = front_of(state) != ABSENT, state.size
    all_read = state.following > state.length
    if system == "arc_standard":
        never = jnp.zeros((), bool)
        return jnp.stack([has_front, never, size >= 3, size >= 3, (size == 2) & all_read])
    top = _from_top(state, 1)[0]
    has_head = _at(state.heads, top) != ABSENT
    return jnp.stack(
        [
            has_front & (~all_read | (size == 0)),
            has_head | (~has_front & (size >= 2)),
            has_front & (size > 0) & ~has_head,
            has_front & (size > 0),
            jnp.zeros((), bool),
        ]
    )


def legal_transitions(kinds: Array, num_relations: int) -> Array:
    """Whether each transition is allowed [..., C] bool, from `legal_kinds` [..., 5]."""
    chex.assert_shape(kinds, (..., 5))
    never = jnp.zeros((*kinds.shape[:-1], 1), bool)
    return jnp.concatenate([kinds, never], axis=-1)[..., np.array(kinds_of_transitions(num_relations))]


def apply_transition(state: ParserState, transition: Array, num_relations: int, system: System) -> ParserState:
    """The state after a transition, which must be legal.

    Args:
      state: before it.
      transition: its id, from 0 to C - 1, a scalar.
      num_relations: R.
      system: of the transitions.
    """
    is_left = (transition >= 2) & (transition < 2 + num_relations)
    is_right = transition >= 2 + num_relations
    is_shift, is_reduce = transition == SHIFT, transition == REDUCE
    relation = jnp.where(is_left, transition - 2, transition - 2 - num_relations)
    top, below = _from_top(state, 2)
    front = front_of(state)
    if system == "arc_standard":
        head, dependent = jnp.where(is_left, top, below), jnp.where(is_left, below, top)
        reads, pops = is_shift, is_left | is_right
    else:
        head, dependent = jnp.where(is_left, front, top), jnp.where(is_left, top, front)
        reads, pops = is_shift | is_right, is_left | is_reduce
    is_arc = is_left | is_right
    words = jnp.arange(state.heads.shape[0], dtype=jnp.int32)
    is_dependent, is_head = is_arc & (words == dependent), is_arc & (words == head)
    added = jnp.array([0, 2]) == jnp.where(is_left, 0, 2)  # to the children at the left, or at the right
    moved = jnp.stack([dependent, state.children[jnp.maximum(head, 0), jnp.where(is_left, 0, 2)]])
    sides = jnp.repeat(added, 2, total_repeat_length=4)
    children = jnp.where(is_head[:, None] & sides[None], jnp.tile(moved, 2)[None], state.children)

    has_head = _at(state.heads, top) != ABSENT
    positions = jnp.arange(state.stack.shape[0], dtype=jnp.int32)
    stack = jnp.where(reads & (positions == state.size), front, state.stack)
    if system == "arc_standard":  # after LEFT-ARC the top takes the place of the word below it
        stack = jnp.where(is_left & (positions == state.size - 2), top, stack)
    goes_back = is_reduce & ~has_head
    return ParserState(
        stack=stack,
        size=state.size + reads.astype(jnp.int32) - pops.astype(jnp.int32),
        following=state.following + (reads & (state.moved_back == 0)).astype(jnp.int32),
        moved_back=jnp.where(goes_back, top, jnp.where(reads, 0, state.moved_back)),
        heads=jnp.where(is_dependent, head, state.heads),
        relations=jnp.where(is_dependent, relation, state.relations),
        children=children,
        length=state.length,
    )


def describing_nodes(state: ParserState, system: System) -> Array:
    """The 18 nodes of `Configuration.nodes` [18] int32; ABSENT for a missing node."""
    stack, front = _from_top(state, 3), front_of(state)
    is_unread = (state.moved_back == 0) & (front != ABSENT)
    after = front + jnp.arange(1, 3, dtype=jnp.int32)
    buffer = jnp.where(is_unread & (after <= state.length), after, ABSENT)
    focus = jnp.stack([stack[0], stack[1] if system == "arc_standard" else front])

    def children(nodes: Array) -> Array:
        return jnp.where(nodes[:, None] >= 0, state.children[jnp.maximum(nodes, 0)], ABSENT)

    own = children(focus)  # [2, 4]: the leftmost, the second, the rightmost, the second
    left, right = children(own[:, 0])[:, 0], children(own[:, 2])[:, 2]
    of_focus = jnp.stack([own[:, 0], own[:, 2], own[:, 1], own[:, 3], left, right], axis=1)
    nodes = jnp.concatenate([stack, front[None], buffer, of_focus.reshape(-1)])
    chex.assert_shape(nodes, (NODES,))
    return nodes


def node_labels(nodes: Array, relations: Array, absent: int) -> Array:
    """The relations of the dependents among the nodes of one sentence.

    Args:
      nodes: [..., 18] int.
      relations: of each word, by its number [T + 1] int.
      absent: the relation of a missing node.

    Returns: [..., 12] int.
    """
    dependents = nodes[..., LABELLED:]
    return jnp.where(dependents >= 0, relations[jnp.maximum(dependents, 0)], absent)
