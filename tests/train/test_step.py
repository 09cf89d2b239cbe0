import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnlp.corpus import LazyBatch
from jaxnlp.tasks import Objective
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
    without_dropout,
)
from train.optimizer.chain import scale_by_progress
from train.parallel.pmap import DIVISION
from train.parallel.rows import accumulation_parts, pad_rows
from train.step import eval_step, has_parts, init_state, train_step


def test_step_moves_down_the_gradient_of_the_mean_loss():
    state, batch = initial_state(), make_batch()
    new, metrics = make_step()(state, batch)
    expected = gradient(state.params, batch)
    for name in ("kernel", "bias"):
        np.testing.assert_allclose(new.params[name], state.params[name] - RATE * expected[name], rtol=1e-5)
    norm = np.sqrt(np.sum(expected["kernel"] ** 2) + expected["bias"] ** 2)
    np.testing.assert_allclose(metrics["grad_norm"], [norm, 1.0], rtol=1e-5)


@pytest.mark.thorough
def test_step_logs_the_loss_before_its_update():
    state, batch = initial_state(), make_batch()
    _, metrics = make_step(loss_fn=regression)(state, batch)
    _, expected = jax.jit(regression)(state.params, batch, jax.random.fold_in(state.key, 0))
    np.testing.assert_allclose(metrics["loss"], expected["loss"], rtol=1e-6)


@pytest.mark.thorough
def test_each_step_draws_from_its_own_key():
    state, batch = initial_state(), make_batch()
    step = make_step(loss_fn=noise)
    for number in range(3):
        new, _ = step(state, batch)
        drawn = jax.random.normal(jax.random.fold_in(jax.random.key(0), number), (WIDTH,))
        np.testing.assert_allclose(new.params["kernel"], state.params["kernel"] - RATE * drawn, rtol=1e-5)
        state = new


@pytest.mark.thorough
def test_each_accumulation_part_draws_from_its_own_key_and_counts_by_its_rows():
    state = initial_state()
    mask = np.array([[True, True, True], [True, False, False]])
    new, _ = make_step(loss_fn=noise, accumulation_steps=2)(state, {"loss_mask": mask})
    key = jax.random.fold_in(jax.random.key(0), 0)
    drawn = [np.array(jax.random.normal(jax.random.fold_in(key, part), (WIDTH,))) for part in range(2)]
    expected = state.params["kernel"] - RATE * (3 * drawn[0] + 1 * drawn[1]) / 4
    np.testing.assert_allclose(new.params["kernel"], expected, rtol=1e-5)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("rows", "parts"), [(6, 2), (6, 3), (7, 3), (2, 4)])
def test_accumulated_parts_equal_the_whole_batch(rows, parts):
    state, batch = initial_state(ADAM, ema=True), make_batch(rows)
    whole, whole_metrics = make_step(optimizer=ADAM, ema_decay=0.5)(state, batch)
    cut, cut_metrics = make_step(optimizer=ADAM, ema_decay=0.5, accumulation_steps=parts)(
        state, accumulation_parts(batch, parts, 1)
    )
    chex.assert_trees_all_close((whole.params, whole.ema), (cut.params, cut.ema), rtol=1e-6)
    chex.assert_trees_all_close(whole_metrics, cut_metrics, rtol=1e-6)


@pytest.mark.thorough
def test_accumulated_part_of_only_padding_counts_nothing():
    state, batch = initial_state(), make_batch(4, share=1.0)
    batch["loss_mask"][2:] = False
    whole, _ = make_step()(state, batch)
    cut, metrics = make_step(accumulation_steps=2)(state, accumulation_parts(batch, 2, 1))
    chex.assert_trees_all_close(whole.params, cut.params, rtol=1e-6)
    assert metrics["loss"][1] == 2


@pytest.mark.thorough
def test_padding_rows_change_neither_update_nor_metrics():
    state, batch = initial_state(ADAM), make_batch(5)
    step = make_step(optimizer=ADAM)
    plain, plain_metrics = step(state, batch)
    padded, padded_metrics = step(state, pad_rows(batch, 8))
    chex.assert_trees_all_close(plain.params, padded.params, rtol=1e-6)
    chex.assert_trees_all_close(plain_metrics, padded_metrics, rtol=1e-6)


@pytest.mark.parametrize("masked", [[], [0, 1], [3]])
def test_shards_under_a_mapped_axis_equal_the_whole_batch(masked):
    state, batch = initial_state(ADAM, ema=True), make_batch(8, share=1.0)
    batch["loss_mask"][masked] = False
    whole, whole_metrics = make_step(optimizer=ADAM, ema_decay=0.5)(state, batch)
    shards = {name: x.reshape(4, 2, *x.shape[1:]) for name, x in batch.items()}
    mapped = jax.vmap(
        make_step(optimizer=ADAM, ema_decay=0.5, division=DIVISION), in_axes=(None, 0), axis_name=BATCH_AXIS
    )
    sharded, metrics = jax.jit(mapped)(state, shards)
    for shard in range(4):
        here = jax.tree.map(lambda x, shard=shard: x[shard], (sharded.params, sharded.ema, metrics))
        chex.assert_trees_all_close((whole.params, whole.ema, whole_metrics), here, rtol=1e-6)


def test_moving_average_follows_its_formula():
    decay = 0.3
    state = initial_state(ema=True)
    expected = {name: np.array(x, np.float64) for name, x in state.params.items()}
    for number in range(8):
        state, _ = make_step(ema_decay=decay)(state, make_batch(seed=number))
        rate = min(decay, (1 + number) / (10 + number))
        expected = {name: rate * x + (1 - rate) * np.array(state.params[name]) for name, x in expected.items()}
        chex.assert_trees_all_close(jax.tree.map(np.float64, state.ema), expected, rtol=1e-5)
    assert min(decay, 8 / 17) == decay
    assert state.evaluation_params is state.ema


def test_state_without_moving_average_evaluates_its_parameters():
    state, _ = make_step()(initial_state(), make_batch())
    assert state.ema is None
    assert state.evaluation_params is state.params


def test_moving_average_without_a_decay_is_refused():
    with pytest.raises(ValueError, match="keeps a moving average, so train_step needs ema_decay"):
        make_step()(initial_state(ema=True), make_batch())


@pytest.mark.parametrize("kind", ["nan", "infinity", "overflow"])
@pytest.mark.parametrize("parts", [1, 3])
def test_nonfinite_loss_changes_only_the_counters_and_counts_in_no_metric(kind, parts):
    step = make_step(optimizer=ADAM, ema_decay=0.9, accumulation_steps=parts)

    def laid_out(batch):
        return batch if parts == 1 else accumulation_parts(batch, parts, 1)

    before, _ = step(initial_state(ADAM, ema=True), laid_out(make_batch()))
    after, metrics = step(before, laid_out(poisoned(kind)))
    assert metrics["loss"] == metrics["grad_norm"] == (0.0, 0.0)
    chex.assert_trees_all_equal(
        (after.params, after.opt_state, after.ema, jax.random.key_data(after.key)),
        (before.params, before.opt_state, before.ema, jax.random.key_data(before.key)),
    )
    assert (int(after.step), int(after.skipped_updates), int(after.first_skipped_step)) == (2, 1, 2)


@pytest.mark.parametrize("kind", ["root at zero", "too long for a float"])
def test_nonfinite_gradient_of_a_finite_loss_changes_only_the_counters_and_counts_in_no_metric(kind):
    def loss_fn(params, batch, key):
        kernel = params["kernel"]
        loss = jnp.sqrt(jnp.abs(kernel - kernel)).sum() if kind == "root at zero" else (1e30 * kernel).sum()
        return loss, {"loss": (loss, jnp.float32(1))}

    before = initial_state(ADAM)
    assert np.isfinite(loss_fn(before.params, None, None)[0])
    after, metrics = make_step(loss_fn=loss_fn, optimizer=ADAM)(before, make_batch())
    assert metrics["loss"] == metrics["grad_norm"] == (0.0, 0.0)
    chex.assert_trees_all_equal((after.params, after.opt_state), (before.params, before.opt_state))
    assert int(after.skipped_updates) == 1


def test_training_continues_after_a_skipped_update_as_if_it_had_not_happened():
    step = make_step(optimizer=ADAM)
    straight = interrupted = initial_state(ADAM)
    for seed in range(4):
        straight, _ = step(straight, make_batch(seed=seed))
        if seed in (1, 2):
            interrupted, _ = step(interrupted, poisoned("nan"))
        interrupted, _ = step(interrupted, make_batch(seed=seed))
    chex.assert_trees_all_equal((straight.params, straight.opt_state), (interrupted.params, interrupted.opt_state))
    assert int(straight.skipped_updates) == int(straight.first_skipped_step) == 0
    assert (int(interrupted.step), int(interrupted.skipped_updates), int(interrupted.first_skipped_step)) == (6, 2, 2)


@pytest.mark.parametrize("parts", [1, 2])
def test_step_is_traced_once_over_many_steps(parts):
    traces = []

    def counted(params, batch, key):
        traces.append(1)
        return regression(params, batch, key)

    step = make_step(loss_fn=counted, optimizer=ADAM, ema_decay=0.9, accumulation_steps=parts)
    state = initial_state(ADAM, ema=True)
    for number in range(10):
        batch = make_batch(seed=number)
        state, _ = step(state, batch if parts == 1 else accumulation_parts(batch, parts, 1))
        assert len(traces) == 1
    assert int(state.step) == 10


def test_state_can_be_donated_from_the_first_step_on():
    state = initial_state(ADAM, ema=True)
    expected, _ = make_step(optimizer=ADAM, ema_decay=0.9)(state, make_batch())
    buffers = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(state.replace(key=None))]
    assert len(set(buffers)) == len(buffers)
    step = functools.partial(train_step, objective=objective_of(without_dropout), optimizer=ADAM, ema_decay=0.9)
    donating = jax.jit(step, donate_argnums=0)
    new, output = donating(state, make_batch())
    again, later = donating(new, make_batch())
    assert float(output.learning_rate) == float(later.learning_rate) == np.float32(RATE)  # not donated with the state
    new, _ = jax.jit(step)(initial_state(ADAM, ema=True), make_batch())
    assert int(again.step) == 2
    chex.assert_trees_all_close((new.params, new.ema), (expected.params, expected.ema), rtol=1e-6)


def test_initial_state_is_at_step_zero_with_the_average_at_the_parameters():
    state = initial_state(ADAM, ema=True)
    assert int(state.step) == int(state.skipped_updates) == int(state.first_skipped_step) == 0
    chex.assert_trees_all_equal(state.ema, state.params)
    chex.assert_trees_all_equal(state.opt_state, ADAM.init(state.params))


def test_evaluation_is_the_objective_without_a_key():
    params, batch = initial_state().params, make_batch()
    metrics, carry = jax.jit(functools.partial(eval_step, objective=objective_of(regression)))(params, batch)
    chex.assert_trees_all_equal(metrics, jax.jit(regression)(params, batch, None)[1])
    assert carry == ()


def test_evaluation_under_a_mapped_axis_adds_up_the_shards():
    params, batch = initial_state().params, make_batch(8)
    shards = {name: x.reshape(4, 2, *x.shape[1:]) for name, x in batch.items()}
    mapped = jax.vmap(
        functools.partial(eval_step, objective=objective_of(regression), division=DIVISION),
        in_axes=(None, 0),
        axis_name=BATCH_AXIS,
    )
    expected = jax.jit(regression)(params, batch, None)[1]["loss"]
    for sums in zip(*jax.jit(mapped)(params, shards)[0]["loss"], strict=True):
        np.testing.assert_allclose(sums, expected, rtol=1e-6)


def running_sum(params, batch, key, carry):
    """A loss whose rows remember the sum of what they have read; infinite where a batch says so."""
    carry = carry + batch["x"].sum(axis=1)
    loss = (carry * params["bias"]).mean() / batch["divisor"][0]
    return loss, ({"loss": (loss, jnp.float32(1.0))}, jax.lax.stop_gradient(carry))


CARRYING = Objective(running_sum, empty_carry=jnp.zeros)


def test_what_is_carried_goes_from_batch_to_batch_and_starts_again_after_a_skipped_one():
    params = initial_state().params
    state = init_state(params, SGD, jax.random.key(0), ema=False, carry=CARRYING.empty_carry(6))
    batches = [make_batch(seed=seed) | {"divisor": np.ones(6, np.float32)} for seed in range(4)]
    batches[2]["divisor"][0] = 0.0
    expected = np.zeros(6)
    step = jax.jit(functools.partial(train_step, objective=CARRYING, optimizer=SGD))
    for number, batch in enumerate(batches):
        state, output = step(state, batch)
        expected = np.zeros(6) if number == 2 else expected + batch["x"].sum(axis=1)
        np.testing.assert_allclose(state.carry, expected, rtol=1e-6, atol=1e-6)
        assert int(output.metrics["loss"][1]) == (number != 2)


def test_what_is_carried_starts_again_from_what_the_objective_starts_with():
    ones = dataclasses.replace(CARRYING, empty_carry=jnp.ones)
    state = init_state(initial_state().params, SGD, jax.random.key(0), ema=False, carry=ones.empty_carry(6))
    step = jax.jit(functools.partial(train_step, objective=ones, optimizer=SGD))
    for divisor, expected in ((1.0, 1.0 + make_batch()["x"].sum(axis=1)), (0.0, np.ones(6))):
        batch = make_batch() | {"divisor": np.full(6, divisor, np.float32)}
        state, _ = step(state, batch)
        np.testing.assert_allclose(state.carry, expected, rtol=1e-6)
    assert int(state.skipped_updates) == 1


def test_evaluation_carries_too():
    params, batch = initial_state().params, make_batch() | {"divisor": np.ones(6, np.float32)}
    carry, evaluate = CARRYING.empty_carry(6), jax.jit(functools.partial(eval_step, objective=CARRYING))
    for _ in range(2):
        _, carry = evaluate(params, batch, carry)
    np.testing.assert_allclose(carry, 2.0 * batch["x"].sum(axis=1), rtol=1e-6)


def test_mean_of_the_parameters_starts_at_the_given_step():
    state = init_state(initial_state().params, SGD, jax.random.key(0), ema=False, mean=True)
    seen, step = [], make_step(loss_fn=regression)
    for number in range(1, 7):
        if number == 4:
            state = state.replace(averaged=jnp.int32(1))
        batch = make_batch(seed=number)
        if number == 5:
            batch["y"][:] = np.nan  # the mean leaves out updates that are skipped
        state, _ = step(state, batch)
        if number < 4:
            np.testing.assert_array_equal(state.ema["kernel"], state.params["kernel"])
        if number != 5:
            seen.append(state.params["kernel"])
    np.testing.assert_allclose(state.ema["kernel"], np.mean(seen[2:], axis=0), rtol=1e-5)
    assert int(state.averaged) == len(seen[2:])
    assert state.evaluation_params is state.ema


def test_progress_is_the_count_of_the_metric_that_the_objective_names():
    """Batches of text have fewer rows than tokens: a schedule by tokens counts tokens."""

    def loss(params, batch, key, carry):
        value, metrics = regression(params, batch, None)
        return value, (metrics | {"tokens": (jnp.float32(9.0), jnp.float32(512.0))}, carry)

    optimizer = optax.chain(scale_by_progress(lambda progress: progress, by_tokens=True))
    state = init_state(initial_state().params, optimizer, jax.random.key(0), ema=False)
    step = functools.partial(train_step, objective=Objective(loss, progress="tokens"), optimizer=optimizer)
    _, output = jax.jit(step)(state, make_batch())
    assert float(output.learning_rate) == 512.0


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ("loss", "the objective's progress metric is 'tokens', which it did not measure; it measured loss"),
        ("tokens", "an objective must measure `loss` or `objective`; this one measured tokens"),
    ],
)
def test_a_metric_that_the_step_needs_and_the_objective_did_not_measure_is_named(measured, message):
    def loss(params, batch, key, carry):
        value, metrics = regression(params, batch, None)
        return value, ({measured: metrics["loss"]}, carry)

    step = functools.partial(train_step, objective=Objective(loss, progress="tokens"), optimizer=SGD)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(step, initial_state(), make_batch())


def test_the_objective_is_minimised_and_decides_whether_a_step_is_finite():
    def loss(params, batch, key, carry):
        value, metrics = regression(params, batch, None)
        total, count = metrics["loss"]
        return jnp.inf * value, (metrics | {"objective": (jnp.inf * total, count)}, carry)

    step = jax.jit(functools.partial(train_step, objective=Objective(loss), optimizer=SGD))
    state, output = step(initial_state(), make_batch())
    assert int(state.skipped_updates) == int(output.skipped_updates) == int(output.first_skipped_step) == 1


def test_a_jitted_function_takes_all_rows_of_a_lazy_batch():
    whole = {"x": np.arange(6.0, dtype=np.float32).reshape(3, 2), "loss_mask": np.array([True, True, False])}
    lazy = LazyBatch(3, lambda rows: {name: x[rows] for name, x in whole.items()})
    chex.assert_trees_all_equal(jax.jit(lambda batch: batch)(lazy), whole)
    assert has_parts({"first": lazy, "second": whole})
    assert not has_parts(LazyBatch(3, lambda rows: pytest.fail("no row is needed")))
