"""Dependency trees with one root, whose arcs may cross: the best tree, log Z and marginal probabilities.

**log Z.** With a[d, h] the weight exp(score) of an arc between words and r[d] that of an arc from ROOT, Z is a
determinant by the matrix-tree theorem. Elimination computes it word by word. Each tree attaches word v to some head u,
and the dependents w of v can be attached to u instead. So Z of all words is Z of the words without v, times a factor:

    f     = sum_u a[v, u]
    a'[w, u] = a[w, u] + a[w, v] a[v, u] / f
    r'[w]    = r[w]    + a[w, v] r[v] / f
    Z(a, r)  = f Z(a', r'),    Z of a single word w: r[w]

Without subtractions, it works on logarithms, and scores of 1e4 lose no digits. An elimination of the determinant itself
subtracts, with an error that can exceed Z if the best head of each word is much better than the others. The gradient,
by hand, passes through the words in reverse: each sum divides the probability of its result by the shares of its terms.

**The best tree.** Each word, and then each component, takes its best incoming arc from another component. The words or
components of a cycle become one component. An arc from outside then replaces the arc into the word at which it enters
the cycle, so its score is relative to the replaced arc's. When all words are one component, the best arc from ROOT is
chosen, so each tree has one root. All cycles of a batch are contracted together. If the best heads are a tree, nothing
is contracted.

Sources: Koo et al. 2007, Smith and Smith 2007 for the matrix-tree theorem; Grassmann et al. 1985 for elimination
without subtraction. Chu and Liu 1965, Edmonds 1967, McDonald et al. 2005 for the best tree; Gabow et al. 1986 for
contraction to one component before the root is chosen. Differs: the tree for each possible root is updated at each
contraction, so that no contraction is undone; time O(n^2) for each round of contractions.
"""

import jax
import jax.numpy as jnp
from jax import Array

from jaxnlp.ops.dependency_trees import checked_arcs, possible_arcs


def chu_liu_edmonds(scores: Array, lengths: Array) -> Array:
    """The heads of the best tree with one root.

    Args:
      scores: of arcs [B, T, T + 1], float, finite, see `jaxnlp.ops.dependency_trees`; values at padding are ignored.
      lengths: number of words [B] int, from 0 to T; words come first.

    Returns:
      Heads [B, T] int32, 0 for ROOT and at padding.

    Raises: ValueError when shapes do not fit.

    >>> scores = jnp.array([[[0.0, 0.0, 3.0], [1.0, 2.0, 0.0]]])  # 2 -> 1 and 1 -> 2 are best, but they are a cycle
    >>> print(chu_liu_edmonds(scores, jnp.array([2])))
    [[2 0]]
    """
    words, roots, _ = checked_arcs(scores, lengths)
    return jax.vmap(_best_tree)(words, roots, lengths)


def tree_log_normalizer(scores: Array, lengths: Array) -> Array:
    """log Z over all trees with one root [B]; 0 for a sentence without words. Arguments: as for `chu_liu_edmonds`.

    The gradient with respect to the scores is `tree_marginals`. Memory: O(B T^3) for the gradient.
    """
    words, roots, shift = checked_arcs(scores, lengths)
    return shift + _log_normalizer(words, roots, lengths)


def tree_marginals(scores: Array, lengths: Array) -> Array:
    """The probability of each arc, over all trees [B, T, T + 1]; 0 at padding. Arguments: as for `chu_liu_edmonds`.

    The probabilities of a word's heads add up to 1.
    """
    words, roots, _ = checked_arcs(scores, lengths)
    _, steps = _eliminate(words, roots, lengths)
    return _probabilities(steps, lengths)


def _eliminate(words: Array, roots: Array, lengths: Array) -> tuple[Array, tuple[Array, Array]]:
    """log Z [B]; and the logarithms of all weights before each elimination, and at last without one: words [T + 1, B,
    T, T] and roots [T + 1, B, T]. The last word is eliminated first; the first word remains."""
    length = words.shape[1]
    arc = possible_arcs(lengths, length)[:, :, 1:]

    def step(carry: tuple[Array, Array, Array], word: Array) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
        words, roots, total = carry
        real = (word < lengths) & (word > 0)
        own = jnp.where(real[:, None], words[:, word], 0.0)
        factor = jax.nn.logsumexp(own, axis=-1)
        moved = words[:, :, word] - jnp.where(real, factor, 0.0)[:, None]
        left = jnp.arange(length) < word
        new = jnp.logaddexp(words, moved[:, :, None] + own[:, None])
        new = jnp.where(arc & (left[:, None] & left[None])[None], new, -jnp.inf)
        new_roots = jnp.logaddexp(roots, moved + roots[:, word, None])
        real = real[:, None]
        after = jnp.where(real[:, :, None], new, words), jnp.where(real, new_roots, roots)
        return (*after, total + jnp.where(real[:, 0], factor, 0.0)), (words, roots)

    start = jnp.where(arc, words, -jnp.inf), roots, jnp.zeros_like(roots[:, 0])
    (words, roots, total), before = jax.lax.scan(step, start, length - 1 - jnp.arange(length))
    steps = tuple(jnp.concatenate([x, last[None]]) for x, last in zip(before, (words, roots), strict=True))
    return jnp.where(lengths > 0, total + roots[:, 0], 0.0), (steps[0], steps[1])


def _probabilities(steps: tuple[Array, Array], lengths: Array) -> Array:
    """The probability of each arc [B, T, T + 1]."""
    all_words, all_roots = steps
    length = all_words.shape[2]

    def step(carry: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        p_words, p_roots = carry
        words, roots, new_words, new_roots, word = now
        real = (word < lengths) & (word > 0)
        own = words[:, word]
        chosen = _share(own, jax.nn.logsumexp(own, axis=-1, keepdims=True))
        factor = jnp.where(real, jax.nn.logsumexp(own, axis=-1), 0.0)[:, None]
        moved = words[:, :, word] - factor
        through = p_words * _share(moved[:, :, None] + own[:, None], new_words)
        through_root = p_roots * _share(moved + roots[:, word, None], new_roots)
        p_own = through.sum(axis=1)
        p_own += (1.0 - p_own.sum(axis=1) - through_root.sum(axis=1))[:, None] * chosen
        before = (p_words * _share(words, new_words)).at[:, :, word].set(through.sum(axis=2) + through_root)
        before = before.at[:, word].set(p_own)
        before_roots = (p_roots * _share(roots, new_roots)).at[:, word].set(through_root.sum(axis=1))
        real = real[:, None]
        return (jnp.where(real[:, :, None], before, p_words), jnp.where(real, before_roots, p_roots)), None

    last = jnp.zeros_like(all_words[0]), jnp.zeros_like(all_roots[0]).at[:, 0].set(jnp.where(lengths > 0, 1.0, 0.0))
    each = (all_words[:-1], all_roots[:-1], all_words[1:], all_roots[1:], length - 1 - jnp.arange(length))
    (words, roots), _ = jax.lax.scan(step, last, each, reverse=True)
    return jnp.concatenate([roots[:, :, None], words], axis=-1)


def _share(term: Array, total: Array) -> Array:
    """exp(term - total); 0 where one of them is -inf."""
    some = (term > -jnp.inf) & (total > -jnp.inf)
    return jnp.where(some, jnp.exp(jnp.where(some, term - total, 0.0)), 0.0)


@jax.custom_vjp
def _log_normalizer(words: Array, roots: Array, lengths: Array) -> Array:
    return _eliminate(words, roots, lengths)[0]


def _normalizer_forward(words, roots, lengths):
    total, steps = _eliminate(words, roots, lengths)
    return total, (steps, lengths)


def _normalizer_backward(residuals, cotangent):
    marginals = cotangent[:, None, None] * _probabilities(*residuals)
    return marginals[:, :, 1:], marginals[:, :, 0], None


_log_normalizer.defvjp(_normalizer_forward, _normalizer_backward)


def _best_tree(words: Array, roots: Array, length: Array) -> Array:
    """The heads of the best tree [T], of one sentence: words [T, T], roots [T]."""
    positions = roots.shape[0]
    index = jnp.arange(positions)
    arc = possible_arcs(length[None], positions)[0]
    arcs = jnp.where(arc, jnp.concatenate([roots[:, None], words], axis=1), -jnp.inf)
    best = jnp.where(index < length, arcs.argmax(axis=1), 0)

    def contract(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """Contracts all cycles. A component has the number of its first word.

        `lost` is added to arcs that enter a word [T]. Row r of `plan` has the head of each word of r's component when
        r is the word at which it is entered [T, T].
        """
        component, lost, plan = carry
        entering = jnp.where(component[:, None] != component[None], arcs[:, 1:], -jnp.inf)
        value = jnp.where(index < length, entering.max(axis=1) + lost, -jnp.inf)
        entered = jnp.where(component[None] == index[:, None], value[None], -jnp.inf).argmax(axis=1)
        source = entering.argmax(axis=1)[entered]
        exists = (component == index) & (index < length)
        parent = jnp.where(exists, component[source], index)
        end, first = _followed(parent)
        cycle = jnp.zeros(positions, bool).at[end].set(True) & exists
        contracted = cycle[component] & (index < length)
        point = entered[component]
        head = jnp.where(index == point, source[component], plan[point, index])
        plan = jnp.where(component[:, None] == component[None], plan, head[None])
        lost = lost - jnp.where(contracted, value[point], 0.0)
        return jnp.where(contracted, first[component], component), lost, plan

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        return ((carry[0] != 0) & (index < length)).any()

    parent = jnp.where((best > 0) & (index < length), best - 1, index)
    is_tree = (((best == 0) & (index < length)).sum() == 1) & (best[_followed(parent)[0]] == 0).all()
    start = jnp.where(is_tree, 0, index), jnp.zeros_like(roots), jnp.zeros((positions, positions), index.dtype)
    _, lost, plan = jax.lax.while_loop(unfinished, contract, start)
    root = jnp.where(index < length, roots + lost, -jnp.inf).argmax()
    heads = jnp.where(is_tree, best, jnp.where(index == root, 0, plan[root] + 1))
    return jnp.where(index < length, heads, 0).astype(jnp.int32)


def _followed(parent: Array) -> tuple[Array, Array]:
    """From each node, the node after at least T steps to parents, which is on a cycle; and the first node on the way.

    Args: parent: [T] int, of each node; a cycle may be a single node.
    """
    positions = parent.shape[0]

    def twice(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        steps, end, first = carry
        return 2 * steps, end[end], jnp.minimum(first, first[end])

    start = jnp.ones((), int), parent, jnp.minimum(parent, jnp.arange(positions))
    _, end, first = jax.lax.while_loop(lambda carry: carry[0] < positions, twice, start)
    return end, first
