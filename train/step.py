"""The training step and the evaluation step: pure functions of arrays. `train.parallel` compiles them."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

import flax.struct
import jax
import jax.numpy as jnp
import optax

from jaxnlp.corpus import LazyBatch
from jaxnlp.metrics import total
from jaxnlp.tasks import Objective
from jaxnlp.typing import Array, Batch, Metrics, Params, PartBatches, PRNGKey, PyTree
from train.optimizer.chain import current_learning_rate

SMALLEST_COUNT = 1e-9
"""Smallest count of a nonempty batch. A count may be a small sum of weights, such as class weights."""


@flax.struct.dataclass
class TrainState:
    """Everything that changes from step to step. It has only arrays.

    Attributes:
      step: [] int32, number of steps done.
      key: [] typed random key; step n draws from fold_in(key, n).
      params: parameters.
      opt_state: the optimizer's state.
      ema: average of the parameters, exponential or over steps; None = no average.
      skipped_updates: [] int32, number of steps without an update, because loss or gradient was not finite.
      first_skipped_step: [] int32, the first of them, from 1; 0 = none.
      averaged: [] int32, number of steps in the mean `ema`; 0 = averaging has not started, and `ema` equals the
        parameters. None = an exponential average or none.
      carry: the state of a recurrent model between two batches, arrays [B, ...]; () without one.
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
        """The parameters for evaluation and sampling: the average if the run keeps one."""
        return self.params if self.ema is None else self.ema


class StepOutput(NamedTuple):
    """The output of a step, in addition to the state.

    Attributes:
      metrics: over the whole batch; zeros if the update was skipped.
      learning_rate: [] float32, of this update.
      skipped_updates: [] int32, so far.
      first_skipped_step: [] int32, see TrainState.
    """

    metrics: Metrics
    learning_rate: Array
    skipped_updates: Array
    first_skipped_step: Array


def _unchanged(x: Any) -> Any:
    return x


class Division(NamedTuple):
    """How devices share the computation of a gradient; by default one program computes it for the whole batch.

    Attributes:
      axis_name: mapped axis along which each device has its own rows; None = the program sees the whole batch.
      on_each: a function of (params, batch, key, carry), and the batch's axis of rows -> the same function, computed by
        each device for its rows.
      whole: a device's shards of the parameters -> the parameters. Its gradient adds up over the devices.
      summed: a device's gradients of its shards -> their sums over the devices, where `whole` does not add them up.
    """

    axis_name: str | None = None
    on_each: Callable[[Callable[..., Any], int], Callable[..., Any]] = lambda function, rows_axis: function
    whole: Callable[[Params], Params] = _unchanged
    summed: Callable[[PyTree], PyTree] = _unchanged

    def total(self, sums: PyTree) -> PyTree:
        """Sums over the devices of sums over each device's rows."""
        return sums if self.axis_name is None else jax.lax.psum(sums, self.axis_name)


UNDIVIDED = Division()


def init_state(
    params: Params,
    optimizer: optax.GradientTransformation,
    key: PRNGKey,
    *,
    ema: bool,
    mean: bool = False,
    carry: PyTree = (),
) -> TrainState:
    """The state before the first step; with `ema` or `mean` it has an average of the parameters."""
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


def _whole(names: tuple[str, ...], arrays: Iterable[Any]) -> Any:
    return dict(zip(names, arrays, strict=True))


# A jitted function that is given a lazy batch takes all of it, as a dict.
jax.tree_util.register_pytree_node(
    LazyBatch, lambda batch: ([batch[name] for name in sorted(batch)], tuple(sorted(batch))), _whole
)


def has_parts(batch: Mapping[str, Any]) -> TypeGuard[Mapping[str, Mapping[str, Any]]]:
    """Whether the argument has a batch for each of several parts, by name."""
    return not isinstance(batch, LazyBatch) and all(isinstance(part, Mapping) for part in batch.values())


def train_step(
    state: TrainState,
    batch: Batch | PartBatches,
    *,
    objective: Objective,
    optimizer: optax.GradientTransformationExtraArgs,
    ema_decay: float | None = None,
    accumulation_steps: int = 1,
    division: Division = UNDIVIDED,
) -> tuple[TrainState, StepOutput]:
    """One update.

    With several parts, the step minimises the sum of their objectives, each a mean over the part's batch, and logs it
    as `objective`.

    If the objective or the gradient is not finite, the update is skipped: the state keeps parameters and moments,
    counts the step, and the metrics' sums and counts are 0. The carry then restarts from `empty_carry`.

    Args:
      state: before the step.
      batch: arrays [B, ...], or [A, B, ...] for A > 1 accumulation steps; or such a batch of each part, for objectives
        without a carry.
      objective: see `jaxnlp.tasks`.
      optimizer: see `train.optimizer`.
      ema_decay: decay of the moving average, when the state has one.
      accumulation_steps: A; must be 1 if the model carries states.
      division: how devices share the computation of the gradient.
    """
    key, carry = jax.random.fold_in(state.key, state.step), state.carry

    def gradients_of_rows(params: Params, batch: Batch, key: PRNGKey, carry: PyTree) -> tuple[PyTree, Metrics, PyTree]:
        """The gradient over all rows and accumulation parts of one batch."""
        if accumulation_steps == 1:
            return _gradients(params, batch, key, carry, objective, division)
        return *_accumulated_gradients(params, batch, key, objective, accumulation_steps, division), carry

    gradients_of = division.on_each(gradients_of_rows, int(accumulation_steps > 1))

    if has_parts(batch):
        names = sorted(batch)  # the same order as under jit
        keys = [jax.random.fold_in(key, n) for n in range(len(names))]
        parts = [gradients_of(state.params, batch[name], key, carry) for name, key in zip(names, keys, strict=True)]
        metrics = _sum_of_parts([metrics for _, metrics, _ in parts])
        gradients = {name: grads for name, (grads, *_) in zip(names, parts, strict=True)}
        if objective.combine is not None:
            grads = objective.combine(gradients, jax.random.fold_in(key, len(parts)))
        else:
            grads = jax.tree.map(lambda *g: sum(g[1:], g[0]), *gradients.values())
    else:
        if objective.combine is not None:
            raise ValueError("the objective combines the gradients of several parts, but got one batch")
        grads, metrics, carry = gradients_of(state.params, batch, key, carry)

    minimised, _ = weighted(metrics)
    norm = optax.tree.norm(grads)
    # The updates are not checked, because this would double the optimizer's memory traffic. Only an absurd learning
    # rate makes an infinite update of a finite gradient; `all_finite` finds it.
    finite = jnp.isfinite(minimised) & jnp.isfinite(norm)
    if objective.progress not in metrics:
        raise ValueError(
            f"the objective's progress metric is {objective.progress!r}, which it did not measure; it measured "
            f"{', '.join(metrics)}"
        )
    step, progress = state.step + 1, metrics[objective.progress][1]

    # A branch, not a choice for each value: XLA on CPU then writes moments and parameters in place, without a copy.
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
    """Sum and count of the minimised metric: `objective`, or else `loss`.

    Raises: ValueError when neither was measured.
    """
    for name in ("objective", "loss"):
        if name in metrics:
            return metrics[name]
    raise ValueError(f"an objective must measure `loss` or `objective`; this one measured {', '.join(metrics)}")


def eval_step(
    params: Params,
    batch: Batch,
    carry: PyTree = (),
    *,
    objective: Objective,
    division: Division = UNDIVIDED,
) -> tuple[Metrics, PyTree]:
    """The objective's metrics of a batch, without dropout, over the rows of all devices; and the carry."""
    _, (metrics, carry) = objective.loss(division.whole(params), batch, None, carry)
    return division.total(metrics), carry


def _gradients(
    params: Params, batch: Batch, key: PRNGKey, carry: PyTree, objective: Objective, division: Division
) -> tuple[PyTree, Metrics, PyTree]:
    """The gradient of the mean over the rows of all devices, their metrics, and the carry of this device's rows."""

    def share(metrics: Metrics) -> Array | None:
        """A device's share of the count. Devices may have different numbers of tokens."""
        if division.axis_name is None or not objective.is_mean:
            return None
        _, count = weighted(metrics)
        return count / jnp.maximum(division.total(count), SMALLEST_COUNT)

    grads, metrics, carry = _weighted_gradients(params, batch, key, carry, objective, division, share)
    return division.summed(grads), division.total(metrics), carry


def _accumulated_gradients(
    params: Params, batches: Batch, key: PRNGKey, objective: Objective, accumulation_steps: int, division: Division
) -> tuple[PyTree, Metrics]:
    """The gradient of the mean over all A parts and the rows of all devices, and their metrics."""

    def add_part(total: PyTree, part: tuple[Array, Batch]) -> tuple[PyTree, Metrics]:
        index, batch = part
        key_of_part = jax.random.fold_in(key, index)
        grads, metrics, _ = _weighted_gradients(
            params, batch, key_of_part, (), objective, division, lambda metrics: weighted(metrics)[1]
        )
        return jax.tree.map(jnp.add, total, grads), metrics

    zeros = jax.tree.map(jnp.zeros_like, params)
    total, parts = jax.lax.scan(add_part, zeros, (jnp.arange(accumulation_steps), batches))
    metrics: Metrics = division.total(jax.tree.map(lambda m: m.sum(axis=0), parts))
    count = jnp.maximum(weighted(metrics)[1], SMALLEST_COUNT)
    return jax.tree.map(lambda t: t / count.astype(t.dtype), division.summed(total)), metrics


def _weighted_gradients(
    params: Params,
    batch: Batch,
    key: PRNGKey,
    carry: PyTree,
    objective: Objective,
    division: Division,
    weight: Callable[[Metrics], Array | None],
) -> tuple[PyTree, Metrics, PyTree]:
    """The gradient of the weighted loss of one device's rows, and their metrics and carry; None = weight 1."""

    def loss(params: Params) -> tuple[Array, tuple[Metrics, PyTree]]:
        value, (metrics, new_carry) = objective.loss(division.whole(params), batch, key, carry)
        factor = weight(metrics)
        if factor is not None:
            value = value * jax.lax.stop_gradient(factor).astype(value.dtype)
        return value, (metrics, new_carry)

    grads, (metrics, new_carry) = jax.grad(loss, has_aux=True)(params)
    return grads, metrics, new_carry


def _sum_of_parts(parts: list[Metrics]) -> Metrics:
    """The metrics of several parts' batches: `objective` is the sum of their means, with the count of all."""
    pairs = [weighted(metrics) for metrics in parts]
    value = jnp.stack([value / jnp.maximum(count, SMALLEST_COUNT) for value, count in pairs]).sum()
    count = jnp.stack([count for _, count in pairs]).sum()
    return total(parts) | {"objective": (value * count, count)}


def _average(state: TrainState, params: Params, decay: float | None) -> tuple[Params, Array | None]:
    """The next average of the parameters, and for a mean its number of steps.

    New exponential averages decay faster: otherwise the initial values would stay for 1 / (1 - decay) steps.
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
