"""The best label sequences of a linear-chain conditional random field, see `jaxnlp.ops.crf`.

With best_t[j] the score of the best sequence of t labels that ends in j,

    best_1 = u_1,   best_t[j] = u_t[j] + max_i (best_{t-1}[i] + transitions[i, j])

The maximal i is the back-pointer from j at t; the pointers from the best last label give the sequence. For the N best
sequences, each label keeps its N best scores, and pointers name one of C N entries.

Sources: Viterbi 1967; Forney 1973. Seshadri and Sundberg 1994 for N sequences (the parallel list algorithm).
"""

import jax
import jax.numpy as jnp
from jax import Array

from jaxnlp.ops.crf import Chain, check_chain, with_ends


def viterbi(scores: Array, lengths: Array, chain: Chain) -> tuple[Array, Array]:
    """The best labels of each sequence, and their score.

    Args:
      scores: of each label at each position [B, T, C], float; values at padding are ignored.
      lengths: [B] int, from 0 to T: the number of real positions, which come first.
      chain: transitions, start and end; -inf forbids. At least one sequence must be allowed.

    Returns:
      Labels [B, T] int32, 0 at padding; and s(y) [B], 0 for a sequence of length 0. Of equal scores, the lower label
      ids at the end win.

    Raises: ValueError when shapes do not fit.
    """
    labels, best_scores = n_best(scores, lengths, chain, 1)
    return labels[:, 0], best_scores[:, 0]


def n_best(scores: Array, lengths: Array, chain: Chain, count: int) -> tuple[Array, Array]:
    """The N best labellings of each sequence, the best first, and their scores.

    Args:
      scores, lengths, chain: as for `viterbi`.
      count: N, at least 1.

    Returns:
      Labels [B, N, T] int32, 0 at padding, and scores [B, N]: if fewer than N sequences are allowed, the others have
      the score -inf and meaningless labels.

    Raises: ValueError when shapes do not fit, or N is less than 1.
    """
    check_chain(scores, lengths, chain)
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    unary, valid = with_ends(scores, lengths, chain)
    _, batch, classes = unary.shape
    entries = classes * count  # each label's N best, label by label
    first = jnp.full((batch, classes, count), -jnp.inf, unary.dtype).at[:, :, 0].set(unary[0])
    # A sequence without positions has one labelling: the score 0.
    empty = jnp.full_like(first, -jnp.inf).at[:, 0, 0].set(0.0)
    same = jnp.arange(entries, dtype=jnp.int32).reshape(classes, count)

    def step(best: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        unary, valid = now
        moved = best.reshape(batch, 1, entries) + jnp.repeat(chain.transitions.T, count, axis=1)[None]
        if count == 1:
            new, pointers = moved.max(axis=-1)[..., None], moved.argmax(axis=-1)[..., None]
        else:
            new, pointers = jax.lax.top_k(moved, count)
        new = new + unary[:, :, None]
        shift = jnp.where(valid, new.max(axis=(1, 2)), 0.0)  # scores stay small, and so exact
        there = valid[:, None, None]
        best = jnp.where(there, new - shift[:, None, None], best)
        return best, (jnp.where(there, pointers.astype(jnp.int32), same), shift)

    begin = jnp.where(valid[0][:, None, None], first, empty)
    best, (pointers, shifts) = jax.lax.scan(step, begin, (unary[1:], valid[1:]))
    best_scores, last = jax.lax.top_k(best.reshape(batch, entries), min(count, entries))

    def back(entry: Array, pointers: Array) -> tuple[Array, Array]:
        before = jnp.take_along_axis(pointers.reshape(batch, entries), entry, axis=1)
        return before, before

    _, earlier = jax.lax.scan(back, last, pointers, reverse=True)
    labels = jnp.concatenate([earlier, last[None]]) // count
    labels = jnp.where(valid[:, :, None], labels, 0).transpose(1, 2, 0)
    return labels.astype(jnp.int32), best_scores + shifts.sum(axis=0)[:, None]
