"""The chain of optax transformations for the update, and parts that optax lacks."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import Array, Params, PyTree
from train.optimizer import OptimizerConfig
from train.optimizer.layer_rates import scale_by_layer
from train.optimizer.lora import with_factors, with_lora
from train.optimizer.parameters import Describe, describe
from train.optimizer.partial import Index, leave_frozen


def make_optimizer(
    config: OptimizerConfig,
    *,
    total_steps: int,
    parameter: Callable[[tuple[str, ...]], Parameter],
    frozen: Callable[[tuple[str, ...]], bool] = lambda path: False,
    rows: Callable[[tuple[str, ...]], Index | None] = lambda path: None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Gradient clipping, the optimizer, weight decay, layer-wise rates, the learning rate and the bound on the output
    weights, in this order.

    Its `update` takes the keyword `progress`: see `scale_by_progress`. Its `init` and `update` raise ConfigError for
    a parameter that the model's table does not have.

    Args:
      config: the optimizer and its options.
      total_steps: of the run; schedules may end with it.
      parameter: the model's table, `ModelConfig.parameter`. Matrices have weight decay; matrices that are not heads
        have Muon; heads have bounded norms; the depth gives layer-wise rates.
      frozen: whether the model does not train the parameter at a path, `ModelConfig.frozen`, besides the config's
        names; see `leave_frozen`.
      rows: index of the rows of the parameter at a path that LoRA also trains: those of new tokens; None = none.
      seed: of LoRA's initial factors: see `train.optimizer.lora`.
    """
    described = functools.partial(describe, with_factors(parameter))

    def kept(path: tuple[str, ...]) -> bool:
        return frozen(path) or config.freezes(path)

    steps = [] if config.max_grad_norm is None else [clip_by_global_norm(config.max_grad_norm)]
    steps.append(config.direction(described))
    if config.weight_decay:
        mask = functools.partial(has_weight_decay, describe=described)
        steps.append(optax.add_decayed_weights(config.weight_decay, mask=mask))
    if config.layer_decay < 1.0 or config.blocks_lr_ratio < 1.0:
        steps.append(scale_by_layer(config.layer_decay, described, config.blocks_lr_ratio))
    rate, by_tokens = functools.partial(config.rate, total_steps=total_steps), config.schedule.unit == "tokens"
    steps.append(scale_by_progress(rate, by_tokens=by_tokens, reference_tokens=config.reference_tokens))
    if config.head_max_norm is not None:
        steps.append(bound_head_norms(config.head_max_norm, described))
    optimizer = optax.chain(*steps)
    if not config.lora_rank:
        return leave_frozen(optimizer, kept)
    return with_lora(optimizer, config, parameter, frozen=kept, rows=rows, seed=seed)


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales gradients to a global norm of at most `max_norm`, as `optax.clip_by_global_norm` does.

    It multiplies by one factor. optax divides each value, which XLA on CPU does not fuse with Adam's loops.
    """

    def update(updates: PyTree, state: optax.EmptyState, params: Params | None = None):
        del params
        norm = optax.tree.norm(updates)
        factor = jnp.where(norm > max_norm, max_norm / norm, jnp.ones_like(norm))
        return jax.tree.map(lambda u: u * factor.astype(u.dtype), updates), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def has_weight_decay(params: Params, describe: Describe) -> PyTree:
    """True for the matrices of the model's table; biases, norms and embeddings have no weight decay."""
    return jax.tree.map(lambda parameter: parameter.matrix, describe(params))


def bound_head_norms(max_norm: float, describe: Describe) -> optax.GradientTransformation:
    """Bounds the norm of the weights of each output of the model by `max_norm`.

    For the weights w of an output, such as a class, and their update u

        u <- w' - w,   w' = (w + u) min(1, max_norm / ||w + u||)

    Output layers are the kernels with `head` in the model's table; other updates are unchanged. It must be the last
    step of a chain.

    Args:
      max_norm: positive.
      describe: see `train.optimizer.parameters`.

    Raises: ConfigError, from `init`, when the model trains no output layer.

    Source: Hinton et al. 2012; Kim 2014, section 2.1.
    """

    def heads(params: Params) -> PyTree:
        return jax.tree.map(lambda parameter: parameter.head and parameter.matrix, describe(params))

    def init(params: Params) -> optax.EmptyState:
        if not any(jax.tree.leaves(heads(params))):
            raise ConfigError(
                "optimizer.head_max_norm needs a model with a separate, trained output layer, which this model does "
                "not have; set it to None"
            )
        return optax.EmptyState()

    def update(updates: PyTree, state: optax.EmptyState, params: Params | None = None):
        if params is None:
            raise ValueError("bounding the norm of weights needs the weights: give update() params")

        def bounded(head: bool, u: jax.Array, w: jax.Array) -> jax.Array:
            if not head:
                return u
            moved = w + u
            norm = jnp.linalg.norm(moved, axis=0, keepdims=True)  # the input axis is the first one
            return jnp.where(norm > max_norm, moved * (max_norm / norm) - w, u)

        return jax.tree.map(bounded, heads(updates), updates, params), state

    return optax.GradientTransformation(init, update)


_LOW_LIMIT = 2**20
"""Progress is stored as (high, low) with low < 2^20: float32 and int32 are too small for the tokens of a long run."""


class ScheduleState(NamedTuple):
    """Progress as high * 2^20 + low; the factor of plateau; and the learning rate of the last update."""

    high: Array
    low: Array
    plateau_scale: Array
    learning_rate: Array


def scale_by_progress(
    schedule: Callable[[Array], Array], *, by_tokens: bool, reference_tokens: int | None = None
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by minus the schedule's learning rate.

    Its `update` takes the keyword `progress`, [] int32 or float: the number of tokens in this step, the count of the
    objective's progress metric.

    Args:
      schedule: from progress, [] float32 in steps or tokens, this update included, to a learning rate.
      by_tokens: whether the schedule counts tokens; otherwise it counts updates.
      reference_tokens: the learning rate is multiplied by `progress` / `reference_tokens`; None = no scaling.

    Source: Merity et al. 2018, section 4.1, for learning rates that follow the sequence length.
    """

    def init(params: Params) -> ScheduleState:
        del params
        zero, rate = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32)
        return ScheduleState(zero, jnp.copy(zero), jnp.ones((), jnp.float32), rate)

    def update(updates: PyTree, state: ScheduleState, params: Params | None = None, *, progress: Array):
        del params
        low = state.low + (progress.astype(jnp.int32) if by_tokens else 1)
        high, low = state.high + low // _LOW_LIMIT, low % _LOW_LIMIT
        rate = state.plateau_scale * schedule(high.astype(jnp.float32) * _LOW_LIMIT + low.astype(jnp.float32))
        if reference_tokens is not None:
            rate = rate * progress.astype(jnp.float32) / reference_tokens
        updates = jax.tree.map(lambda u: -rate.astype(u.dtype) * u, updates)
        return updates, ScheduleState(high, low, state.plateau_scale, rate)

    return optax.GradientTransformationExtraArgs(init, update)


def current_learning_rate(opt_state: PyTree) -> Array:
    """The learning rate of the last update, [] float32, on the device; with layer-wise rates, that of the heads."""
    return optax.tree.get(opt_state, "learning_rate")


def with_plateau_scale(opt_state: PyTree, scale: Array) -> PyTree:
    """The optimizer's state with another factor of the learning rate, [] float32."""
    return optax.tree.set(opt_state, plateau_scale=scale)
