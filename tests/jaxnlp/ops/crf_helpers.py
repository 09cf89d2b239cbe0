"""Random linear chains, and their paths one by one."""

import itertools

import numpy as np

from jaxnlp.ops.crf import Chain


def random_chain(classes, seed=0, scale=1.0, dtype=np.float64):
    generator = np.random.default_rng(seed)
    shapes = ((classes, classes), (classes,), (classes,))
    return Chain(*((scale * generator.normal(size=shape)).astype(dtype) for shape in shapes))


def random_case(batch=3, length=5, classes=4, seed=0, scale=1.0, dtype=np.float64):
    """Scores, labels, lengths (all of them 1 at least, the first T), and a chain: arrays of NumPy."""
    generator = np.random.default_rng(seed)
    scores = (scale * generator.normal(size=(batch, length, classes))).astype(dtype)
    labels = generator.integers(0, classes, (batch, length))
    lengths = generator.integers(1, length + 1, batch)
    lengths[0] = length
    return scores, labels, lengths, random_chain(classes, seed + 1, scale, dtype)


def score(path, scores, chain):
    """s(y) of one sequence."""
    transitions, start, end = chain
    moved = sum(transitions[a, b] for a, b in itertools.pairwise(path))
    return start[path[0]] + end[path[-1]] + moved + sum(scores[t, label] for t, label in enumerate(path))


def every_path(scores, chain):
    """All sequences of labels, and their scores."""
    length, classes = scores.shape
    paths = list(itertools.product(range(classes), repeat=length))
    return paths, np.array([score(path, scores, chain) for path in paths])
