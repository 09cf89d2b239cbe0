"""The training step and the evaluation step: pure functions of arrays."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import flax.struct
import jax
import jax.numpy as jnp
import optax

from jaxnlp.metrics import total
from jaxnlp.tasks import Objective
from jaxnlp.typing import Array, Batch, Metrics, Params, PartBatches, PRNGKey, PyTree
from train.schedules import current_learning_rate

SMALLEST_COUNT = 1e-9
"""Below this a batch counts as empty. A sum of weights, such as those of classes, may be small and is still a count."""


@flax.struct.dataclass
class TrainState:
    """Everything that changes from step to step; only arrays.

    Attributes:
      step: [] int32, number of steps done.
      key: [] typed random key; step n draws from fold_in(key, n).
      params: parameters.
      opt_state: the optimizer's state.
      ema: average of the parameters, exponential or over steps; None when the run keeps none.
      skipped_updates: [] int32, number of steps whose loss or gradient was not finite; they changed nothing.
      first_skipped_step: [] int32, the first of them, counted from 1; 0 = none.
      averaged: [] int32, number of steps whose parameters `ema` is the mean of; 0 = averaging has not started, and
        `ema` equals the parameters. None where the average is exponential, or there is none.
      carry: what a recurrent model passes from one batch to the next, arrays [B, ...]; () for most models, and where
        rows of the data do not continue from batch to batch.
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
        """What evaluation and sampling use: the average where the run keeps one."""
        return self.params if self.ema is None else self.ema


class StepOutput(NamedTuple):
    """What a step reports, beside the state.

    Attributes:
      metrics: over the whole batch; zeros where the update was skipped.
      learning_rate: [] float32, of this update.
      skipped_updates: [] int32, so far.
      first_skipped_step: [] int32, see TrainState.
    """

    metrics: Metrics
    learning_rate: Array
    skipped_updates: Array
    first_skipped_step: Array


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


def has_parts(batch: Mapping[str, Any]) -> TypeGuard[Mapping[str, Mapping[str, Any]]]:
    """Whether this is a batch of each of several parts, by their names, and not one batch."""
    return all(isinstance(part, Mapping) for part in batch.values())


def train_step(
    state: TrainState,
    batch: Batch | PartBatches,
    *,
    objective: Objective,
    optimizer: optax.GradientTransformationExtraArgs,
    ema_decay: float | None = None,
    accumulation_steps: int = 1,
    axis_name: str | None = None,
) -> tuple[TrainState, StepOutput]:
    """One update.

    Of several parts, what is minimised, and logged as `objective`, is the sum of their objectives, each the mean over
    the part's own batch.

    Where the objective or the gradient is not finite, there is no update: the state keeps parameters and moments,
    counts the step, and the metrics' sums and counts are 0. What is carried then starts again from `empty_carry`.

    Args:
      state: before the step.
      batch: arrays [B, ...], or [A, B, ...] for A > 1 accumulation steps; or such a batch of each of several parts,
        for objectives that carry nothing.
      objective: see `jaxnlp.tasks`.
      optimizer: see `train.optimizer`.
      ema_decay: decay of the moving average, when the state has one.
      accumulation_steps: A; 1 where the model carries something.
      axis_name: mapped axis over which devices share the batch (pmap); None: the program sees the whole batch.

    Returns:
      The state after the step, and what the step reports.
    """
    key, carry = jax.random.fold_in(state.key, state.step), state.carry

    def gradients_of(batch: Batch, key: PRNGKey) -> tuple[PyTree, Metrics, PyTree]:
        """Over all shards and accumulation parts of one batch."""
        if accumulation_steps == 1:
            grads, (metrics, new_carry) = _gradients(state.params, batch, key, objective, carry)
        else:
            grads, metrics = _accumulated_gradients(state.params, batch, key, objective, accumulation_steps)
            new_carry = carry
        if axis_name is not None:
            grads, metrics = _over_shards(grads, metrics, axis_name)
        return grads, metrics, new_carry

    if has_parts(batch):
        names = sorted(batch)  # the order that jit gives them, whoever calls
        parts = [gradients_of(batch[name], jax.random.fold_in(key, n)) for n, name in enumerate(names)]
        metrics = _sum_of_parts([found for _, found, _ in parts])
        gradients = {name: grads for name, (grads, *_) in zip(names, parts, strict=True)}
        if objective.combine is not None:
            grads = objective.combine(gradients, jax.random.fold_in(key, len(parts)))
        else:
            grads = jax.tree.map(lambda *g: sum(g[1:], g[0]), *gradients.values())
    else:
        if objective.combine is not None:
            raise ValueError("the objective combines the gradients of several parts, but got one batch")
        grads, metrics, carry = gradients_of(batch, key)  # type: ignore[arg-type]

    minimised, _ = weighted(metrics)
    norm = optax.tree.norm(grads)
    # The updates are not checked: to look at all of them before the first is applied would double the optimizer's
    # memory traffic. From a finite gradient only an absurd learning rate makes an infinite one; `all_finite` finds it.
    finite = jnp.isfinite(minimised) & jnp.isfinite(norm)
    if objective.progress not in metrics:
        raise ValueError(
            f"the objective counts progress by {objective.progress!r}, which it did not measure; it measured "
            f"{', '.join(metrics)}"
        )
    step, progress = state.step + 1, metrics[objective.progress][1]

    # A branch, not a choice for each value: XLA on CPU then writes moments and parameters in place of the donated ones,
    # and copies none of them first. Not measured on a GPU yet.
    def updated(state: TrainState) -> TrainState:
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params, progress=progress)
        params = optax.apply_updates(state.params, updates)
        ema, averaged = (None, None) if state.ema is None else _average(state, params, ema_decay)
        return dataclasses.replace(
            state, step=step, params=params, opt_state=opt_state, ema=ema, averaged=averaged, carry=carry
        )

    def skipped(state: TrainState) -> TrainState:
        carried = jax.tree.leaves(carry)
        return dataclasses.replace(
            state,
            step=step,
            skipped_updates=state.skipped_updates + 1,
            first_skipped_step=jnp.where(state.first_skipped_step > 0, state.first_skipped_step, step),
            carry=objective.empty_carry(len(carried[0])) if carried else carry,
        )

    new_state = jax.lax.cond(finite, updated, skipped, state)
    metrics = metrics | {"grad_norm": (norm, jnp.ones_like(norm))}
    return new_state, StepOutput(
        metrics=jax.tree.map(lambda m: jnp.where(finite, m, jnp.zeros_like(m)), metrics),
        learning_rate=current_learning_rate(new_state.opt_state),
        skipped_updates=new_state.skipped_updates,
        first_skipped_step=new_state.first_skipped_step,
    )


def weighted(metrics: Metrics) -> tuple[Array, Array]:
    """Sum and count of what is minimised: `objective` where a regulariser makes it differ from `loss`.

    Raises: ValueError when neither was measured.
    """
    for name in ("objective", "loss"):
        if name in metrics:
            return metrics[name]
    raise ValueError(f"an objective measures `loss` or `objective`; this one measured {', '.join(metrics)}")


@jax.jit
def all_finite(tree: PyTree) -> Array:
    """Whether every value is, [] bool."""
    return jnp.all(jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]))


def eval_step(
    params: Params,
    batch: Batch,
    carry: PyTree = (),
    *,
    objective: Objective,
    axis_name: str | None = None,
) -> tuple[Metrics, PyTree]:
    """The objective's metrics of a batch, without dropout, over all shards when `axis_name` is given; and the carry."""
    _, (metrics, carry) = objective.loss(params, batch, None, carry)
    return (metrics if axis_name is None else jax.lax.psum(metrics, axis_name)), carry


def _gradients(
    params: Params, batch: Batch, key: PRNGKey, objective: Objective, carry: PyTree
) -> tuple[PyTree, tuple[Metrics, PyTree]]:
    (_, found), grads = jax.value_and_grad(objective.loss, has_aux=True)(params, batch, key, carry)
    return grads, found


def _accumulated_gradients(
    params: Params, batches: Batch, key: PRNGKey, objective: Objective, accumulation_steps: int
) -> tuple[PyTree, Metrics]:
    """The gradient of the mean over all A parts, each weighted by its count."""

    def add_part(total: PyTree, part: tuple[Array, Batch]) -> tuple[PyTree, Metrics]:
        number, batch = part
        grads, (metrics, _) = _gradients(params, batch, jax.random.fold_in(key, number), objective, ())
        _, count = weighted(metrics)
        return jax.tree.map(lambda t, g: t + g * count.astype(g.dtype), total, grads), metrics

    zeros = jax.tree.map(jnp.zeros_like, params)
    total, parts = jax.lax.scan(add_part, zeros, (jnp.arange(accumulation_steps), batches))
    metrics: Metrics = jax.tree.map(lambda m: m.sum(axis=0), parts)
    count = jnp.maximum(weighted(metrics)[1], SMALLEST_COUNT)
    return jax.tree.map(lambda t: t / count.astype(t.dtype), total), metrics


def _over_shards(grads: PyTree, metrics: Metrics, axis_name: str) -> tuple[PyTree, Metrics]:
    """The gradient of the mean over all shards, and the metrics of all of them."""
    # Shards may hold different numbers of tokens: weigh each mean gradient by its share.
    _, count = weighted(metrics)
    weight = count / jnp.maximum(jax.lax.pmean(count, axis_name), SMALLEST_COUNT)
    grads = jax.lax.pmean(jax.tree.map(lambda g: g * weight.astype(g.dtype), grads), axis_name)
    return grads, jax.lax.psum(metrics, axis_name)


def _sum_of_parts(found: list[Metrics]) -> Metrics:
    """The metrics of several parts' batches: `objective` is the sum of their means, over the count of all."""
    pairs = [weighted(metrics) for metrics in found]
    value = jnp.stack([value / jnp.maximum(count, SMALLEST_COUNT) for value, count in pairs]).sum()
    count = jnp.stack([count for _, count in pairs]).sum()
    return total(found) | {"objective": (value * count, count)}


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
