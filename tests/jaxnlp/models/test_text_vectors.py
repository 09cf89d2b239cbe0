import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Pooling

from jaxnlp.models.bert import BertOutput
from jaxnlp.models.text_vectors import cosine, pair_features, pool


def test_pair_features_of_equal_texts_have_no_difference():
    u = jnp.arange(6.0).reshape(2, 3)
    u_again, v, difference, distance, products = jnp.split(pair_features(u, u), 5, axis=1)
    chex.assert_trees_all_equal((u_again, v), (u, u))
    assert not difference.any()
    assert not distance.any()
    np.testing.assert_array_equal(products, u * u)


@pytest.mark.thorough
def test_cosine_of_a_zero_vector_is_zero_with_finite_gradients():
    u, zero = jnp.ones((1, 4)), jnp.zeros((1, 4))
    value, gradients = jax.value_and_grad(lambda u, v: cosine(u, v).sum(), argnums=(0, 1))(u, zero)
    assert value == 0.0
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_allclose(cosine(u, 3.0 * u), 1.0, rtol=1e-6)
    np.testing.assert_allclose(cosine(u, -u), -1.0, rtol=1e-6)


@pytest.mark.thorough
def test_pooling_takes_the_first_token_or_the_mean_without_padding():
    hidden = jnp.arange(24.0).reshape(2, 3, 4)
    mask = jnp.array([[True, True, False], [True, True, True]])
    encoding = BertOutput(hidden, None, hidden[None])
    np.testing.assert_array_equal(pool(encoding, mask, "cls"), hidden[:, 0])
    np.testing.assert_array_equal(pool(encoding, mask, "mean"), jnp.stack([hidden[0, :2].mean(0), hidden[1].mean(0)]))
    with pytest.raises(ValueError, match="this encoder has no pooler"):
        pool(encoding, mask, "pooler")
    for other in ("Mean", "avg", ""):
        with pytest.raises(ValueError, match=f"pooling must be one of cls, pooler, mean, .*, got {other!r}"):
            pool(encoding, mask, other)


@pytest.mark.sweep
@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("pooling", Pooling.POOLING_MODES)
def test_each_pooling_is_that_of_sentence_transformers(pooling, skip):
    hidden = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    mask = np.arange(5) < np.array([[3], [5], [4]])
    theirs = Pooling(4, pooling, include_prompt=False)
    features = {"token_embeddings": torch.tensor(hidden), "attention_mask": torch.tensor(mask).long()}
    expected = theirs(features | {"prompt_length": skip})["sentence_embedding"]
    found = pool(BertOutput(jnp.asarray(hidden), None, hidden[None]), jnp.asarray(mask), pooling, skip=skip)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.thorough
def test_a_text_of_nothing_but_a_prompt_has_a_finite_vector():
    hidden = jnp.ones((1, 2, 4))
    for pooling in ("cls", "mean", "lasttoken"):
        assert jnp.isfinite(pool(BertOutput(hidden, None, hidden[None]), jnp.ones((1, 2), bool), pooling, skip=2)).all()


def test_vectors_of_another_number_of_rows_are_refused():
    """A single row would be broadcast."""
    for function in (pair_features, cosine):
        with pytest.raises(AssertionError, match="shape"):
            function(jnp.ones((1, 4)), jnp.ones((3, 4)))
