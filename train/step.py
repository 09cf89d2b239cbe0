"""The training step and the evaluation step: pure functions of arrays."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeGuard, cast

import flax.struct
import jax
import jax.numpy as jnp
import optax

from jaxnlp.metrics import total
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree, TaskBatches
from train.objectives import CarryingLoss, LossFunction, carrying
from train.surgery import project_conflicts


@flax.struct.dataclass
class TrainState:
    """Everything that changes from step to step; arrays alone.

    Attributes:
      step: [] int32, steps done.
      key: [] typed random key; step n draws from fold_in(key, n).
      params: parameters.
      opt_state: the optimizer's state.
      ema: moving average of the parameters; None when the run keeps none.
      skipped_updates: [] int32, steps whose loss or gradient was not finite; they changed nothing.
      first_skipped_step: [] int32, the first of them, counted from 1; 0 = none.
      averaged: [] int32, of how many steps' parameters `ema` is the mean; 0 = averaging has not begun, and `ema` is the
        parameters themselves. None where the average is exponential, or there is none.
      carry: what a recurrent model takes from one batch to the next, arrays [B, ...]; empty for most, and where rows of
        the data do not go on from batch to batch.
    """

    step: Array
    key: PRNGKey
    params: Params
    opt_state: PyTree
    ema: Params | None
    skipped_updates: Array
    first_skipped_step: Array
    averaged: Array | None = None
    carry: PyTree = ()

    @property
    def evaluation_params(self) -> Params:
        """What evaluation and sampling use: the moving average where the run keeps one."""
        return self.params if self.ema is None else self.ema


def init_state(
    params: Params,
    optimizer: optax.GradientTransformation,
    key: PRNGKey,
    *,
    ema: bool,
    mean: bool = False,
    carry: PyTree = (),
) -> TrainState:
    """The state before the first step; it keeps an average of the parameters for `ema` and for `mean`."""
    zero = jnp.zeros((), jnp.int32)
    return TrainState(
        step=zero,
        key=key,
        params=params,
        opt_state=optimizer.init(params),
        ema=jax.tree.map(jnp.copy, params) if ema or mean else None,
        skipped_updates=jnp.copy(zero),
        first_skipped_step=jnp.copy(zero),
        averaged=jnp.copy(zero) if mean else None,
        carry=carry,
    )


def of_several_tasks(batch: Mapping[str, Any]) -> TypeGuard[Mapping[str, Mapping[str, Any]]]:
    """Whether this is a batch of each of several tasks, by their names, and not one batch."""
    return all(isinstance(part, Mapping) for part in batch.values())


def train_step(
    state: TrainState,
    batch: Batch | TaskBatches,
    *,
    loss_fn: LossFunction | CarryingLoss,
    optimizer: optax.GradientTransformationExtraArgs,
    ema_decay: float | None = None,
    accumulation_steps: int = 1,
    gradient_surgery: bool = False,
    axis_name: str | None = None,
) -> tuple[TrainState, Metrics]:
    """One update.

    Of several tasks at once, what is minimised, and logged as `loss`, is the sum of their losses, each the mean over
    the task's own batch; the count of `loss` is of what all of them hold.

    Where loss or gradient is not finite, there is no update: the state keeps parameters and moments, counts the step,
    and the metrics' sums and counts are 0. What is carried then begins anew.

    Args:
      state: before the step.
      batch: arrays [B, ...], or [A, B, ...] for A > 1 accumulation steps; or such a batch of each of several tasks,
        for losses that carry nothing.
      loss_fn: see `train.objectives`.
      optimizer: see `train.optimizer`.
      ema_decay: decay of the moving average, when the state has one.
      accumulation_steps: A; 1 where the model carries something.
      gradient_surgery: of several tasks, `train.surgery.project_conflicts` instead of the gradients' sum.
      axis_name: mapped axis over which devices share the batch (pmap); None: the program sees the whole batch.

    Returns:
      The state after the step, and metrics over the whole batch.
    """
    key = jax.random.fold_in(state.key, state.step)
    loss_fn, carry = carrying(loss_fn), state.carry

    def gradients_of(batch: Batch, key: PRNGKey) -> tuple[PyTree, Metrics, PyTree]:
        """Over all shards and parts of one batch."""
        if accumulation_steps == 1:
            grads, (metrics, new_carry) = _gradients(state.params, batch, key, loss_fn, carry)
        else:
            grads, metrics = _accumulated_gradients(state.params, batch, key, loss_fn, accumulation_steps)
            new_carry = carry
        if axis_name is not None:
            grads, metrics = _over_shards(grads, metrics, axis_name)
        return grads, metrics, new_carry

    if of_several_tasks(batch):
        # In the order that jit gives them, whoever calls.
        parts = [gradients_of(batch[task], jax.random.fold_in(key, n)) for n, task in enumerate(sorted(batch))]
        gradients, metrics = [grads for grads, *_ in parts], _added_up([found for _, found, _ in parts])
        if gradient_surgery:
            grads = project_conflicts(gradients, jax.random.fold_in(key, len(parts)))
        else:
            grads = jax.tree.map(lambda *g: sum(g[1:], g[0]), *gradients)
    else:
        if gradient_surgery:
            raise ValueError("gradient_surgery needs a batch of each of several tasks, by their names; got one batch")
        grads, metrics, carry = gradients_of(cast(Batch, batch), key)

    loss, tokens = metrics["loss"]
    norm = optax.tree.norm(grads)
    # The updates are not asked: to look at all of them before the first is made would double the optimizer's traffic to
    # memory. From a finite gradient only an absurd learning rate makes an infinite one; `all_finite` is for that.
    finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    step = state.step + 1

    # A branch, not a choice for each value: XLA on CPU then writes moments and parameters in place of those that the
    # caller gave away, and copies none of them first. Not measured on a GPU yet.
    def updated(state: TrainState) -> TrainState:
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params, progress=tokens)
        params = optax.apply_updates(state.params, updates)
        ema, averaged = (None, None) if state.ema is None else _average(state, params, ema_decay)
        return dataclasses.replace(
            state, step=step, params=params, opt_state=opt_state, ema=ema, averaged=averaged, carry=carry
        )

    def skipped(state: TrainState) -> TrainState:
        return dataclasses.replace(
            state,
            step=step,
            skipped_updates=state.skipped_updates + 1,
            first_skipped_step=jnp.where(state.first_skipped_step > 0, state.first_skipped_step, step),
            carry=jax.tree.map(jnp.zeros_like, carry),
        )

    new_state = jax.lax.cond(finite, updated, skipped, state)
    metrics = metrics | {"grad_norm": (norm, jnp.ones_like(norm))}
    return new_state, jax.tree.map(lambda m: jnp.where(finite, m, jnp.zeros_like(m)), metrics)


@jax.jit
def all_finite(tree: PyTree) -> Array:
    """Whether every value is, [] bool."""
    return jnp.all(jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]))


def eval_step(
    params: Params,
    batch: Batch,
    carry: PyTree = (),
    *,
    loss_fn: LossFunction | CarryingLoss,
    axis_name: str | None = None,
) -> tuple[Metrics, PyTree]:
    """The objective's metrics of a batch, without dropout, over all shards when `axis_name` is given; and the carry."""
    _, (metrics, carry) = carrying(loss_fn).loss_fn(params, batch, None, carry)
    return (metrics if axis_name is None else jax.lax.psum(metrics, axis_name)), carry


def _gradients(
    params: Params, batch: Batch, key: PRNGKey, loss: CarryingLoss, carry: PyTree
) -> tuple[PyTree, tuple[Metrics, PyTree]]:
    (_, found), grads = jax.value_and_grad(loss.loss_fn, has_aux=True)(params, batch, key, carry)
    return grads, found


def _accumulated_gradients(
    params: Params, batches: Batch, key: PRNGKey, loss: CarryingLoss, accumulation_steps: int
) -> tuple[PyTree, Metrics]:
    """The gradient of the mean over all A parts, each part weighed by its number of tokens."""

    def add_part(total: PyTree, part: tuple[Array, Batch]) -> tuple[PyTree, Metrics]:
        number, batch = part
        grads, (metrics, _) = _gradients(params, batch, jax.random.fold_in(key, number), loss, ())
        count = metrics["loss"][1]
        return jax.tree.map(lambda t, g: t + g * count.astype(g.dtype), total, grads), metrics

    zeros = jax.tree.map(jnp.zeros_like, params)
    total, parts = jax.lax.scan(add_part, zeros, (jnp.arange(accumulation_steps), batches))
    metrics: Metrics = jax.tree.map(lambda m: m.sum(axis=0), parts)
    count = jnp.maximum(metrics["loss"][1], 1.0)
    return jax.tree.map(lambda t: t / count.astype(t.dtype), total), metrics


def _over_shards(grads: PyTree, metrics: Metrics, axis_name: str) -> tuple[PyTree, Metrics]:
    """The gradient of the mean over all shards, and the metrics of all of them."""
    # Shards may hold different numbers of tokens: weigh each mean gradient by its share.
    count = metrics["loss"][1]
    weight = count / jnp.maximum(jax.lax.pmean(count, axis_name), 1e-9)
    grads = jax.lax.pmean(jax.tree.map(lambda g: g * weight.astype(g.dtype), grads), axis_name)
    return grads, jax.lax.psum(metrics, axis_name)


def _added_up(found: list[Metrics]) -> Metrics:
    """The metrics of several tasks' batches: `loss` is the sum of their means, over the count of all."""
    losses = [metrics["loss"] for metrics in found]
    loss = jnp.stack([value / jnp.maximum(count, 1.0) for value, count in losses]).sum()
    count = jnp.stack([count for _, count in losses]).sum()
    return total(found) | {"loss": (loss * count, count)}


def _average(state: TrainState, params: Params, decay: float | None) -> tuple[Params, Array | None]:
    """The next average of the parameters, and of how many it is the mean where it is one.

    Young exponential averages forget faster, or the initial values would stay for 1 / (1 - decay).
    """
    if state.averaged is not None:
        begun = state.averaged > 0
        averaged = state.averaged + begun.astype(jnp.int32)
        weight = 1.0 / jnp.maximum(averaged, 1).astype(jnp.float32)

        def mean(e: Array, p: Array) -> Array:
            return jnp.where(begun, e + weight.astype(e.dtype) * (p - e), p)

        return jax.tree.map(mean, state.ema, params), averaged
    if decay is None:
        raise ValueError("the state keeps a moving average, so train_step needs ema_decay")
    steps = state.step.astype(jnp.float32)
    rate = jnp.minimum(decay, (1.0 + steps) / (10.0 + steps))
    return jax.tree.map(lambda e, p: e + (1.0 - rate).astype(e.dtype) * (p - e), state.ema, params), None
