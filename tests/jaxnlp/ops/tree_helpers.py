"""Random scores of arcs, and all dependency trees of a sentence one by one."""

import functools
import itertools

import numpy as np

from data.pipelines.transition_oracle import is_projective

LENGTHS = np.array([5, 4, 3, 2, 1, 0])
"""Of sentences in a batch of 5 words; the last row is padding."""


def random_scores(seed=0, scale=2.0, lengths=LENGTHS, dtype=np.float64):
    """Scores of arcs [B, T, T + 1]; NaN at padding and for arcs from a word to itself."""
    length = max(lengths)
    scores = np.random.default_rng(seed).normal(size=(len(lengths), length, length + 1)) * scale
    for row, n in enumerate(lengths):
        scores[row, n:] = scores[row, :, n + 1 :] = np.nan
    scores[:, np.arange(length), np.arange(1, length + 1)] = np.nan
    return scores.astype(dtype)


@functools.cache
def every_tree(length, *, projective):
    """The heads of all trees with one root."""
    return [
        heads
        for heads in itertools.product(range(length + 1), repeat=length)
        if is_tree(heads) and (not projective or is_projective(heads))
    ]


def is_tree(heads):
    """Whether all words of a sentence reach ROOT, through one word."""
    for word in range(1, len(heads) + 1):
        for _ in heads:
            word = heads[word - 1] if word else 0
        if word:
            return False
    return list(heads).count(0) == 1


def score(heads, scores):
    """s(h) of one tree."""
    return sum(scores[word, head] for word, head in enumerate(heads))


def by_enumeration(scores, length, *, projective):
    """The best tree, log Z, and the marginal probabilities [n, n + 1] of one sentence."""
    trees = every_tree(length, projective=projective)
    values = np.array([score(heads, scores) for heads in trees])
    log_z = np.logaddexp.reduce(values)
    marginals = np.zeros((length, length + 1))
    for heads, share in zip(trees, np.exp(values - log_z), strict=True):
        marginals[np.arange(length), list(heads)] += share
    return trees[values.argmax()], log_z, marginals
