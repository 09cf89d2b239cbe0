import jax
import numpy as np
import pytest

from jaxnlp.ops.crf import Chain
from jaxnlp.ops.crf_viterbi import n_best, viterbi
from jaxnlp.text.tag_schemes import allowed_labels, illegal_positions, labels_of
from tests.jaxnlp.ops.crf_helpers import every_path, random_case

N_BEST = jax.jit(n_best, static_argnums=3)
VITERBI = jax.jit(viterbi)


@pytest.mark.parametrize(("length", "classes"), [(1, 4), (5, 4)])
def test_the_best_paths_are_those_among_all_paths(length, classes):
    with jax.enable_x64(True):
        scores, _, lengths, chain = random_case(4, length, classes, seed=length)
        labels, values = map(np.asarray, N_BEST(scores, lengths, chain, 6))
        one, best = VITERBI(scores, lengths, chain)
        np.testing.assert_array_equal(one, labels[:, 0])
        np.testing.assert_array_equal(best, values[:, 0])
        for row, n in enumerate(lengths):
            paths, all_values = every_path(scores[row, :n], chain)
            order = np.argsort(-all_values)[:6]
            np.testing.assert_allclose(values[row, : len(order)], all_values[order], atol=1e-12)
            np.testing.assert_array_equal(labels[row, : len(order), :n], [paths[i] for i in order])
            np.testing.assert_array_equal(labels[row, :, n:], 0)
            np.testing.assert_array_equal(values[row, len(order) :], -np.inf)


def test_forbidden_labels_are_never_predicted():
    for scheme in ("bio", "bioes", "bmes"):
        labels = labels_of(("A", "B"), scheme)
        allowed = allowed_labels(labels, scheme)
        scores, _, lengths, chain = random_case(8, 9, len(labels), seed=2, scale=3.0, dtype=np.float32)

        def illegal(chain, scores=scores, lengths=lengths, labels=labels, scheme=scheme):
            found = np.asarray(N_BEST(scores, lengths, chain, 3)[0])
            rows = [(path, n) for best, n in zip(found, lengths, strict=True) for path in best]
            return sum(len(illegal_positions([labels[i] for i in path[:n]], scheme)) for path, n in rows)

        bound = Chain(*(np.where(ok, x, np.float32(-np.inf)) for ok, x in zip(allowed, chain, strict=True)))
        assert illegal(chain) > 0
        assert illegal(bound) == 0


def test_large_scores_and_long_sequences_keep_the_path():
    scores, _, lengths, chain = random_case(2, 300, 6, seed=3, dtype=np.float32)
    plain = Chain(*(np.float32(1e4) * x for x in chain))
    found, values = VITERBI(np.float32(1e4) * scores, lengths, plain)
    expected, _ = VITERBI(scores, lengths, chain)
    assert np.isfinite(values).all()
    assert (np.asarray(found) == np.asarray(expected)).mean() > 0.99


def test_a_sequence_of_length_0_has_one_labelling():
    scores, _, _, chain = random_case(2, 3, 3, dtype=np.float32)
    scores[0] = np.nan
    labels, values = map(np.asarray, N_BEST(scores, np.array([0, 3]), chain, 2))
    np.testing.assert_array_equal(labels[0], 0)
    np.testing.assert_array_equal(values[0], [0.0, -np.inf])
    assert np.isfinite(values[1]).all()


def test_a_count_below_1_is_refused():
    scores, _, lengths, chain = random_case(dtype=np.float32)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        n_best(scores, lengths, chain, 0)
