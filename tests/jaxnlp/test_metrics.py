import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.metrics import means, total


def pair(values):
    return jnp.float32(np.sum(values)), jnp.float32(len(values))


def test_mean_over_batches_of_different_size_is_the_mean_over_examples():
    losses = np.random.default_rng(0).normal(size=20).astype(np.float32)
    hits = losses > 0
    bounds = [(0, 3), (3, 4), (4, 20)]
    batches = [{"loss": pair(losses[a:b]), "accuracy": pair(hits[a:b])} for a, b in bounds]
    found = means(total(iter(batches)))
    assert list(found) == ["accuracy", "loss"]
    np.testing.assert_allclose(found["loss"], losses.mean(dtype=np.float64), rtol=1e-6)
    assert found["accuracy"] == hits.mean()


def test_total_adds_sums_and_counts():
    batches = [{"loss": (np.float32(s), np.int32(n))} for s, n in ((1.5, 2), (0.25, 3), (-4.0, 5))]
    assert total(batches) == {"loss": (-2.25, 10)}


@pytest.mark.parametrize("kind", [np.float32, lambda x: np.array(x, np.float32)], ids=["number", "array"])
def test_sums_and_counts_beyond_the_integers_of_float32_are_exact(kind):
    """In float32, 2^24 + 1 is 2^24."""
    batches = [{"loss": (kind(2**24), kind(2**24))}, *[{"loss": (kind(1), kind(1))}] * 3]
    assert total(batches) == {"loss": (2**24 + 3, 2**24 + 3)}


def test_batches_of_several_tasks_add_up_by_name():
    batches = [{"loss": (1.0, 2), "a/loss": (1.0, 2)}, {"loss": (3.0, 1), "b/loss": (3.0, 1)}, {"loss": (1.0, 1)}]
    assert total(batches) == {"a/loss": (1.0, 2), "b/loss": (3.0, 1), "loss": (5.0, 4)}


def test_total_of_one_batch_is_that_batch():
    batch = {"loss": (np.float32(1.5), np.float32(2.0))}
    assert total([batch]) == batch


def test_means_are_python_floats_on_the_host():
    found = means({"loss": (jnp.float32(3.0), jnp.int32(2)), "norm": (np.float64(1.0), 4)})
    assert found == {"loss": 1.5, "norm": 0.25}
    assert {type(value) for value in found.values()} == {float}


def test_division_is_in_float64():
    count = 3
    assert means({"loss": (jnp.float32(1.0), jnp.int32(count))})["loss"] == 1.0 / count


def test_nothing_counted_gives_nan():
    assert math.isnan(means({"loss": (jnp.float32(0.0), jnp.float32(0.0))})["loss"])


def test_non_finite_sums_stay_visible():
    batches = [{"loss": (np.float32(value), np.float32(1.0))} for value in (1.0, np.nan)]
    assert math.isnan(means(total(batches))["loss"])


def test_no_batches_cannot_be_added_up():
    with pytest.raises(ValueError, match="no metrics to add up: the data set has no batches"):
        total(iter([]))


def test_total_works_under_jit():
    batches = [{"loss": (jnp.float32(value), jnp.float32(1.0))} for value in (1.0, 2.0)]
    assert means(jax.jit(total)(batches)) == {"loss": 1.5}
