import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.nn.dropout import Dropout
from train.objectives import next_token

VOCABULARY = 5


class Bigram(nn.Module):
    """Logits of the next token are a row of a table, with dropout."""

    @nn.compact
    def __call__(self, tokens, *, deterministic=True):
        return Dropout(0.5)(nn.Embed(VOCABULARY, VOCABULARY, name="table")(tokens), deterministic=deterministic)


def params():
    return {"table": {"embedding": jax.random.normal(jax.random.key(0), (VOCABULARY, VOCABULARY))}}


def batch(rows=3, length=4, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(VOCABULARY, size=(rows, length + 1)).astype(np.int32)
    mask = generator.random((rows, length)) < 0.7
    return {"tokens": jnp.array(tokens[:, :-1]), "targets": jnp.array(tokens[:, 1:]), "loss_mask": jnp.array(mask)}


def test_loss_is_the_mean_surprise_at_the_targets_that_count():
    table, held = np.array(params()["table"]["embedding"], np.float64), batch()
    surprises = []
    for row, column in np.argwhere(held["loss_mask"]):
        exponentials = [math.exp(x) for x in table[held["tokens"][row, column]]]
        surprises.append(-math.log(exponentials[held["targets"][row, column]] / sum(exponentials)))
    loss, metrics = next_token(Bigram())(params(), held, None)
    np.testing.assert_allclose(loss, np.mean(surprises), rtol=1e-6)
    np.testing.assert_allclose(metrics["loss"], [np.sum(surprises), len(surprises)], rtol=1e-6)


def test_gradient_is_the_softmax_minus_the_target():
    table, held = np.array(params()["table"]["embedding"], np.float64), batch()
    expected = np.zeros_like(table)
    counted = np.argwhere(held["loss_mask"])
    for row, column in counted:
        token, target = held["tokens"][row, column], held["targets"][row, column]
        expected[token] += np.exp(table[token]) / np.exp(table[token]).sum() - np.eye(VOCABULARY)[target]
    gradient = jax.grad(lambda p: next_token(Bigram())(p, held, None)[0])(params())["table"]["embedding"]
    np.testing.assert_allclose(gradient, expected / len(counted), atol=1e-6)


def test_no_key_means_no_dropout():
    loss_fn = next_token(Bigram())
    first, second = (loss_fn(params(), batch(), None)[0] for _ in range(2))
    assert first == second
    dropped = [float(loss_fn(params(), batch(), jax.random.key(seed))[0]) for seed in (0, 0, 1)]
    assert dropped[0] == dropped[1]
    assert len({*dropped, float(first)}) == 3


@pytest.mark.parametrize("key", [None, 3])
def test_what_is_logged_is_what_is_optimised(key):
    key = None if key is None else jax.random.key(key)
    loss, metrics = next_token(Bigram())(params(), batch(), key)
    total, count = metrics["loss"]
    np.testing.assert_array_equal(loss, total / count)


@pytest.mark.parametrize("garbage", [0, VOCABULARY - 1])
def test_padding_rows_change_neither_loss_nor_gradient(garbage):
    held = batch()
    padded = {
        name: jnp.concatenate([x, jnp.full((2, *x.shape[1:]), False if name == "loss_mask" else garbage, x.dtype)])
        for name, x in held.items()
    }
    step = jax.value_and_grad(next_token(Bigram()), has_aux=True)
    for key in (None, jax.random.key(0)):
        chex.assert_trees_all_close(step(params(), held, key), step(params(), padded, key), rtol=1e-6)


def test_batch_of_padding_alone_has_loss_and_gradient_zero():
    held = batch() | {"loss_mask": jnp.zeros((3, 4), bool)}
    (loss, metrics), gradient = jax.value_and_grad(next_token(Bigram()), has_aux=True)(params(), held, None)
    assert (loss, *metrics["loss"]) == (0.0, 0.0, 0.0)
    chex.assert_trees_all_equal(gradient, jax.tree.map(jnp.zeros_like, params()))


def test_sums_of_two_halves_are_the_sum_of_the_whole():
    held = batch(rows=4)
    halves = [{name: x[part] for name, x in held.items()} for part in (slice(0, 1), slice(1, 4))]
    loss_fn = next_token(Bigram())
    parts = [np.array(loss_fn(params(), half, None)[1]["loss"]) for half in halves]
    np.testing.assert_allclose(sum(parts), loss_fn(params(), held, None)[1]["loss"], rtol=1e-6)
