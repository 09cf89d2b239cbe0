import functools

import chex
import jax
import numpy as np
import pytest

from jaxnlp.typing import BATCH_AXIS
from tests.train.step_helpers import (
    ADAM,
    RATE,
    SGD,
    WIDTH,
    gradient,
    initial_state,
    make_batch,
    make_step,
    noise,
    objective_of,
    poisoned,
    regression,
)
from train.parallel.pmap import DIVISION
from train.parallel.rows import accumulation_parts
from train.step import train_step


def of_parts(rows=(6, 4), share=0.7):
    """A batch of each part, whose gradients conflict: the second part's targets are far off."""
    batches = {
        name: make_batch(count, seed=n, share=share) for n, (name, count) in enumerate(zip("ab", rows, strict=True))
    }
    batches["b"]["y"] -= 8.0
    return batches


def projected(first, second):
    """The sum of two gradients that conflict, each projected on the other's normal plane, in NumPy."""
    a, b = (np.append(gradient["kernel"], gradient["bias"]) for gradient in (first, second))
    assert a @ b < 0
    total = a - (a @ b) / (b @ b) * b + b - (a @ b) / (a @ a) * a
    return {"kernel": total[:-1], "bias": total[-1]}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("surgery", [False, True])
def test_step_of_several_parts_moves_down_the_sum_of_their_mean_losses_or_what_surgery_leaves_of_it(surgery):
    state, batches = initial_state(), of_parts()
    new, metrics = make_step(surgery=surgery)(state, batches)
    first, second = (gradient(state.params, batches[name]) for name in "ab")
    expected = projected(first, second) if surgery else {name: first[name] + second[name] for name in first}
    for name, change in expected.items():
        np.testing.assert_allclose(new.params[name], state.params[name] - RATE * change, rtol=1e-5)
    losses = [jax.jit(regression)(state.params, batch, None) for batch in batches.values()]
    total, count = metrics["objective"]
    np.testing.assert_allclose(total / count, sum(loss for loss, _ in losses), rtol=1e-6)
    assert count == sum(batch["loss_mask"].sum() for batch in batches.values())


@pytest.mark.parametrize("surgery", [False, True])
def test_one_part_of_several_is_a_batch_like_any(surgery):
    state, batch = initial_state(ADAM, ema=True), make_batch()
    plain, plain_metrics = make_step(optimizer=ADAM, ema_decay=0.5)(state, batch)
    named, metrics = make_step(optimizer=ADAM, ema_decay=0.5, surgery=surgery)(state, {"only": batch})
    chex.assert_trees_all_close((named.params, named.ema), (plain.params, plain.ema), rtol=1e-6)
    objective = metrics.pop("objective")
    chex.assert_trees_all_close(metrics | {"loss": objective}, plain_metrics, rtol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("surgery", [False, True])
def test_shards_and_parts_of_several_parts_equal_their_whole_batches(surgery):
    state, batches = initial_state(ADAM, ema=True), of_parts((8, 16), share=1.0)
    batches["a"]["loss_mask"][[0, 1, 5]] = False
    batches["b"]["loss_mask"][12:] = False
    options = {"optimizer": ADAM, "ema_decay": 0.5, "surgery": surgery}
    whole, whole_metrics = make_step(**options)(state, batches)
    shards = jax.tree.map(lambda x: x.reshape(4, len(x) // 4, *x.shape[1:]), batches)
    mapped = jax.vmap(make_step(**options, division=DIVISION), in_axes=(None, 0), axis_name=BATCH_AXIS)
    sharded, metrics = jax.jit(mapped)(state, shards)
    for shard in range(4):
        here = jax.tree.map(lambda x, shard=shard: x[shard], (sharded.params, sharded.ema, metrics))
        chex.assert_trees_all_close((whole.params, whole.ema, whole_metrics), here, rtol=1e-5)
    cut, cut_metrics = make_step(**options, accumulation_steps=2)(
        state, {name: accumulation_parts(batch, 2, 1) for name, batch in batches.items()}
    )
    chex.assert_trees_all_close((whole.params, whole.ema, whole_metrics), (cut.params, cut.ema, cut_metrics), rtol=1e-5)


@pytest.mark.thorough
def test_each_part_draws_from_its_own_key_in_the_order_of_their_names():
    state, batches = initial_state(), of_parts()
    new, _ = make_step(loss_fn=noise)(state, {name: batches[name] for name in "ba"})
    key = jax.random.fold_in(jax.random.key(0), 0)
    drawn = [np.array(jax.random.normal(jax.random.fold_in(key, number), (WIDTH,))) for number in range(2)]
    np.testing.assert_allclose(new.params["kernel"], state.params["kernel"] - RATE * sum(drawn), rtol=1e-5)
    plain = jax.jit(functools.partial(train_step, objective=objective_of(noise), optimizer=SGD))
    again, _ = plain(state, {name: batches[name] for name in "ba"})
    np.testing.assert_allclose(again.params["kernel"], new.params["kernel"], rtol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["nan", "infinity", "overflow"])
@pytest.mark.parametrize("surgery", [False, True])
def test_nonfinite_loss_of_one_part_changes_only_the_counters(kind, surgery):
    step = make_step(optimizer=ADAM, ema_decay=0.9, surgery=surgery)
    before = initial_state(ADAM, ema=True)
    after, metrics = step(before, {"a": make_batch(), "b": poisoned(kind)})
    assert metrics["loss"] == metrics["grad_norm"] == (0.0, 0.0)
    chex.assert_trees_all_equal(
        (after.params, after.opt_state, after.ema), (before.params, before.opt_state, before.ema)
    )
    assert (int(after.step), int(after.skipped_updates)) == (1, 1)


def test_surgery_on_one_batch_is_refused():
    with pytest.raises(ValueError, match="combines the gradients of several parts, but got one batch"):
        make_step(surgery=True)(initial_state(), make_batch())
