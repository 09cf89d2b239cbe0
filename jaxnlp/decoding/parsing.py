"""Parsing whole sentences by transitions: the most probable one at each step, or a beam of sequences.

It takes a function of scores, not a model. Sentences of a batch take their steps together until all are finished.
Illegal transitions have probability 0, so each result is a tree with one root.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops.transitions import (
    ParserState,
    apply_transition,
    describing_nodes,
    finished,
    initial_state,
    legal_kinds,
    legal_transitions,
    node_labels,
)
from jaxnlp.text.transitions import System, num_transitions
from jaxnlp.typing import Array, PyTree

Score = Callable[[Array, Array], Array]
"""Nodes [B, S, 18] and labels [B, S, 12] of S configurations of each sentence -> logits [B, S, C]."""


class Trees(NamedTuple):
    """A tree for each sentence; entry t is of word t + 1, and entries after the last word are 0.

    Attributes:
      heads: the position of each word's head, from 1; 0 for the root [B, T] int32.
      relations: the id of each word's relation to its head [B, T] int32.
      scores: the log-probability of each tree, or of its sequence of transitions [B] float32.
    """

    heads: Array
    relations: Array
    scores: Array


def beam_parse(
    score: Score, lengths: Array, positions: int, *, num_relations: int, system: System, num_beams: int
) -> Trees:
    """The trees of the most probable sequences of transitions in a beam of N; N = 1 is greedy.

    Finished sequences stay in the beam: in arc_eager, words that move back make sequences longer.

    Args:
      score: gives logits; see `Score`.
      lengths: number of words [B] int; 0 = a row of padding.
      positions: T.
      num_relations: R.
      system: of the transitions.
      num_beams: N, at least 1.

    Raises: ValueError for a num_beams below 1.
    """
    if num_beams < 1:
        raise ValueError(f"num_beams must be at least 1, got {num_beams}")
    batch, beams = lengths.shape[0], num_beams
    chex.assert_shape(lengths, (batch,))

    def of_all(function: Callable[[ParserState], PyTree]) -> Callable[[ParserState], PyTree]:
        return jax.vmap(jax.vmap(function))

    def start(length: Array) -> ParserState:
        one = initial_state(length, positions, system)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (beams, *x.shape)), one)

    def described(state: ParserState) -> tuple[Array, Array]:
        nodes = describing_nodes(state, system)
        return nodes, node_labels(nodes, state.relations, num_relations)

    def ended(state: ParserState, totals: Array) -> Array:
        """Whether sequences are finished, or missing, since a sentence has fewer than N [B, N] bool."""
        return of_all(finished)(state) | (totals == -jnp.inf)

    def step(carry: tuple[ParserState, Array, Array]) -> tuple[ParserState, Array, Array]:
        state, totals, steps = carry
        logits = score(*of_all(described)(state)).astype(jnp.float32)
        chex.assert_shape(logits, (batch, beams, num_transitions(num_relations)))
        kinds = of_all(lambda one: legal_kinds(one, system))(state)
        legal = legal_transitions(kinds, num_relations)
        done = ended(state, totals)
        if beams == 1:
            masked = jnp.where(legal, logits, -jnp.inf)
            chosen = masked.argmax(axis=-1)
            gained = masked.max(axis=-1) - jax.nn.logsumexp(masked, axis=-1, where=legal)
            totals = totals + jnp.where(done, 0.0, gained)
        else:
            state, chosen, totals, done = _best(state, logits, legal, done, totals)
        moved = jax.vmap(jax.vmap(lambda one, transition: apply_transition(one, transition, num_relations, system)))(
            state, chosen
        )
        return jax.tree.map(lambda new, old: _where(done, old, new), moved, state), totals, steps + 1

    def unfinished(carry: tuple[ParserState, Array, Array]) -> Array:
        state, totals, steps = carry
        return ~ended(state, totals).all() & (steps < 4 * positions)

    # At first one sequence of each sentence counts: equal ones would fill the beam.
    totals = jnp.where(jnp.arange(beams)[None] == 0, jnp.zeros((batch, beams)), -jnp.inf)
    state, totals, _ = jax.lax.while_loop(unfinished, step, (jax.vmap(start)(lengths), totals, jnp.zeros((), int)))
    best = totals.argmax(axis=1)
    heads, relations = (
        jnp.take_along_axis(x[:, :, 1:], best[:, None, None], axis=1)[:, 0] for x in (state.heads, state.relations)
    )
    return Trees(jnp.maximum(heads, 0), relations, totals.max(axis=1))


def _where(done: Array, old: Array, new: Array) -> Array:
    """Old values where a sequence is finished [B, N], and new ones elsewhere."""
    return jnp.where(done.reshape(*done.shape, *[1] * (new.ndim - 2)), old, new)


def _best(
    state: ParserState, logits: Array, legal: Array, done: Array, totals: Array
) -> tuple[ParserState, Array, Array, Array]:
    """The N best continuations of each sentence: the states before them, their transitions, totals, and whether they
    are finished."""
    batch, beams, choices = logits.shape
    logprobs = jax.nn.log_softmax(jnp.where(legal, logits, -jnp.inf), axis=-1, where=legal)
    stay = jnp.where(jnp.arange(choices)[None, None] == 0, 0.0, -jnp.inf)
    gained = jnp.where(done[:, :, None], stay, jnp.where(legal, logprobs, -jnp.inf))
    best, indices = jax.lax.top_k((totals[:, :, None] + gained).reshape(batch, -1), beams)
    parents, chosen = indices // choices, indices % choices

    def of_parents(x: Array) -> Array:
        return jnp.take_along_axis(x, parents.reshape(batch, beams, *[1] * (x.ndim - 2)), axis=1)

    return jax.tree.map(of_parents, state), chosen, best, of_parents(done)
