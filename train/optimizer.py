"""Optimizers and learning-rate schedules, assembled from optax."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxnlp.config import Config, ReadWhen, refuse_unread
from jaxnlp.models import Parameter
from jaxnlp.serialization import ConfigError
from jaxnlp.typing import Array, Params, PyTree
from train.muon import scale_by_muon

Describe = Callable[[tuple[str, ...]], Parameter]
"""From the names that lead to a parameter to what its model says of it: `ModelConfig.parameter`."""


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Config):
    """Adam, AdamW, Muon or SGD with clipping, and a schedule of the learning rate by steps or by tokens."""

    section: ClassVar[str] = "optimizer"

    name: Literal["adamw", "adam", "muon", "sgd"] = "adamw"
    """AdamW decouples weight decay from the gradient; Adam has no weight decay; Muon for hidden matrices, AdamW for all
    other parameters; SGD."""
    learning_rate: float = 1e-3
    """Peak of the schedule."""
    beta1: float = 0.9
    """Adam's decay of the gradient's running mean."""
    beta2: float = 0.999
    """Adam's decay of the gradient's running mean square."""
    muon_momentum: float = 0.95
    """Muon's decay of the gradient's running mean."""
    momentum: float = 0.0
    """Momentum of SGD."""
    epsilon: float = 1e-8
    """Adam's epsilon."""
    weight_decay: float = 0.0
    """Decoupled weight decay of dense kernels, times the learning rate; biases, norms and embeddings have none."""
    layer_decay: float = 1.0
    """Layer-wise learning rates: each block learns at this factor times the rate of the block above it, embeddings at
    the lowest rate; 1 = one rate."""
    max_grad_norm: float | None = 1.0
    """Maximum global gradient norm; None = no clipping."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """What follows the warmup: a cosine down to the minimum, or the peak."""
    warmup_steps: int = 0
    """Steps in which the rate grows linearly from 0 to its peak."""
    decay_steps: int | None = None
    """Step at which the cosine reaches the minimum; None = the run's last."""
    min_lr_ratio: float = 0.1
    """The minimum, as a fraction of the peak."""
    warmup_tokens: int | None = None
    """Like warmup_steps, in tokens; needs decay_tokens."""
    decay_tokens: int | None = None
    """Like decay_steps, in tokens, as in minGPT; replaces the count of steps."""
    reference_tokens: int | None = None
    """Multiply each step's rate by its number of tokens over N: for batches of different lengths; None = no scaling."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"optimizer.learning_rate must be positive, got {self.learning_rate}")
        for name in ("beta1", "beta2", "muon_momentum", "momentum"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"optimizer.{name} must lie in [0, 1), got {getattr(self, name)}")
        if not 0 < self.epsilon < math.inf:
            raise ValueError(f"optimizer.epsilon must be positive, got {self.epsilon}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"optimizer.weight_decay must be finite and not negative, got {self.weight_decay}")
        if not 0.0 < self.layer_decay <= 1.0:
            raise ValueError(f"optimizer.layer_decay must lie in (0, 1], got {self.layer_decay}")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"optimizer.max_grad_norm must be positive or None, got {self.max_grad_norm}")
        if not 0.0 <= self.min_lr_ratio <= 1.0:
            raise ValueError(f"optimizer.min_lr_ratio must lie in [0, 1], got {self.min_lr_ratio}")
        if self.warmup_tokens is not None and self.decay_tokens is None:
            raise ValueError("optimizer.warmup_tokens needs optimizer.decay_tokens")
        if self.decay_tokens is not None and (self.warmup_steps or self.decay_steps is not None):
            raise ValueError("set the token options or the step options of the schedule, not both")
        if self.reference_tokens is not None and self.reference_tokens < 1:
            raise ValueError(f"optimizer.reference_tokens must be at least 1 or None, got {self.reference_tokens}")
        adaptive, cosine = self.name != "sgd", self.schedule == "cosine"
        refuse_unread(
            self,
            [
                ReadWhen("muon_momentum", 0.95, self.name == "muon", "Muon (optimizer.name muon)"),
                ReadWhen("momentum", 0.0, self.name == "sgd", "SGD (optimizer.name sgd)"),
                ReadWhen("beta1", 0.9, adaptive, "Adam, AdamW and Muon"),
                ReadWhen("beta2", 0.999, adaptive, "Adam, AdamW and Muon"),
                ReadWhen("epsilon", 1e-8, adaptive, "Adam, AdamW and Muon"),
                ReadWhen("weight_decay", 0.0, self.name != "adam", "AdamW, Muon and SGD"),
                ReadWhen("decay_steps", None, cosine, "the cosine schedule"),
                ReadWhen("decay_tokens", None, cosine or self.warmup_tokens is not None, "the cosine schedule"),
                ReadWhen("min_lr_ratio", 0.1, cosine, "the cosine schedule"),
            ],
        )
        warmup, end = self.bounds
        if warmup < 0 or (end is not None and end <= warmup):
            raise ValueError(f"the schedule's warmup must end before its decay, got warmup {warmup} and end {end}")

    @property
    def by_tokens(self) -> bool:
        """Whether the schedule counts tokens, not steps."""
        return self.decay_tokens is not None

    @property
    def bounds(self) -> tuple[int, int | None]:
        """Ends of the warmup and of the decay, in steps or tokens; None = the run's last step."""
        if self.by_tokens:
            return self.warmup_tokens or 0, self.decay_tokens
        return self.warmup_steps, self.decay_steps


Schedule = Callable[[Array], Array]
"""From progress, [] float32 in steps or tokens, to a learning rate."""


def warmup_cosine(
    progress: Array, *, peak: float, warmup: int, final: int, min_lr_ratio: float, decay: bool = True
) -> Array:
    """The learning rate of an update.

    peak * progress / warmup                                      up to `warmup`,
    floor + (peak - floor) (1 + cos(pi (progress - warmup) / (final - warmup))) / 2   up to `final`,
    floor = peak * min_lr_ratio                                 after it.

    Args:
      progress: [] float, steps or tokens done when this update is done: 1 or more steps.
      peak: the highest rate.
      warmup: end of the linear growth, in the same unit.
      final: end of the cosine.
      min_lr_ratio: the floor as a share of the peak.
      decay: False keeps the peak after the warmup.

    Source: Loshchilov and Hutter 2017, eq. 5, without restarts; the count of karpathy/minGPT, whose floor is 0.1.
    """
    share = jnp.clip((progress - float(warmup)) / float(max(1, final - warmup)), 0.0, 1.0)
    cosine = 0.5 * (1.0 + jnp.cos(jnp.pi * share)) if decay else jnp.ones_like(share)
    decayed = min_lr_ratio + (1.0 - min_lr_ratio) * cosine
    return peak * jnp.where(progress < float(warmup), progress / float(max(1, warmup)), decayed)


_CARRY = 2**20
"""Tokens are counted as (high, low) with low < 2^20: a float32 or an int32 could not count a long run's."""


class ScheduleState(NamedTuple):
    """Progress so far as high * 2^20 + low, and the rate of the newest update."""

    high: Array
    low: Array
    learning_rate: Array


def scale_by_progress(
    schedule: Schedule, *, by_tokens: bool, reference_tokens: int | None = None
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by minus the schedule's rate at the steps, or the tokens, done.

    Its `update` takes the progress of this step, the number of its tokens, as the keyword `progress`, [] int32 or float.

    Args:
      schedule: see Schedule.
      by_tokens: whether the schedule counts tokens.
      reference_tokens: the rate is multiplied by `progress` over this; None = not.

    Source: Merity et al. 2018, section 4.1, for rates that follow the length.
    """

    def init(params: Params) -> ScheduleState:
        del params
        return ScheduleState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))

    def update(updates: PyTree, state: ScheduleState, params: Params | None = None, *, progress: Array):
        del params
        low = state.low + (progress.astype(jnp.int32) if by_tokens else 1)
        high, low = state.high + low // _CARRY, low % _CARRY
        rate = schedule(high.astype(jnp.float32) * _CARRY + low.astype(jnp.float32))
        if reference_tokens is not None:
            rate = rate * progress.astype(jnp.float32) / reference_tokens
        return jax.tree.map(lambda u: -rate.astype(u.dtype) * u, updates), ScheduleState(high, low, rate)

    return optax.GradientTransformationExtraArgs(init, update)


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales a gradient whose norm exceeds the maximum down to it, as `optax.clip_by_global_norm` does.

    As one factor for all of it: optax divides each value, which XLA on CPU does not fuse with Adam's passes.
    """

    def update(updates: PyTree, state: optax.EmptyState, params: Params | None = None):
        del params
        norm = optax.tree.norm(updates)
        factor = jnp.where(norm > max_norm, max_norm / norm, jnp.ones_like(norm))
        return jax.tree.map(lambda u: u * factor.astype(u.dtype), updates), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def described(params: Params, parameter: Describe) -> PyTree:
    """What the model says of each parameter, in the tree of the parameters.

    Raises:
      ConfigError: for a parameter that the model does not describe, or whose axes are not as many.
    """

    def describe(path: tuple, value: Any) -> Parameter:
        names = _names(path)
        try:
            found = parameter(names)
        except KeyError as error:
            raise ConfigError(f"the model does not describe its parameter {'/'.join(names)}") from error
        if len(found.axes) != len(value.shape):
            raise ConfigError(
                f"the parameter {'/'.join(names)} has {len(value.shape)} axes, and the model describes it as {found.axes}"
            )
        return found

    return jax.tree_util.tree_map_with_path(describe, params)


def decayed(params: Params, parameter: Describe) -> PyTree:
    """True where weight decay applies: matrices. Biases, normalisation scales and embeddings have none."""
    return jax.tree.map(lambda found: found.matrix, described(params, parameter), is_leaf=_is_described)


def layer_factors(params: Params, decay: float, parameter: Describe) -> PyTree:
    """What the update of each parameter is multiplied by, so that deeper layers learn more slowly.

    decay^(L - l)   block l of L, counted from 0: of the last one decay
    decay^(L + 1)   what is below the blocks: embeddings and their normalisation
    1               what is above: final normalisation, pooler, heads

    A head that shares the embeddings' matrix shares their factor. Several stacks of blocks, such as an encoder and a
    decoder, are told apart by the names that lead to them: each has its own L.

    Args:
      params: parameters; those of blocks stacked on an axis L, or each with its depth.
      decay: in (0, 1].
      parameter: what the model says of each.

    Returns:
      Float32 arrays in the tree of the parameters: [L, 1, ...] of stacked blocks, of as many axes as the parameter, and
      [] of the others.

    Raises:
      ConfigError: when there are no blocks.

    Source: Howard and Ruder 2018, section 3.2 (discriminative fine-tuning); Clark et al. 2020, appendix B, for one
    decay from layer to layer.
    """
    facts = described(params, parameter)
    sizes: dict[tuple[str, ...], int] = {}
    pairs = zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(facts, is_leaf=_is_described), strict=True)
    for (path, value), fact in pairs:
        if "L" in fact.axes:
            stack = _names(path)[: -_levels_below_stack(path)]
            sizes[stack] = value.shape[fact.axes.index("L")]
        elif isinstance(fact.depth, int):
            stack = _names(path)[: -_levels_below_stack(path)]
            sizes[stack] = max(sizes.get(stack, 0), fact.depth + 1)
    if not sizes:
        raise ConfigError("optimizer.layer_decay needs a model with trained blocks, and this one has none; set it to 1")

    def factor(path: tuple, value: Array, fact: Parameter) -> np.ndarray:
        layers = _layers_of(_names(path), sizes)
        if "L" in fact.axes:
            axis = fact.axes.index("L")
            powers = decay ** np.arange(layers, 0, -1)
            return powers.reshape([-1 if i == axis else 1 for i in range(len(value.shape))]).astype(np.float32)
        power = {"above": 0, "below": layers + 1}.get(str(fact.depth))
        return np.asarray(decay ** (layers - int(fact.depth) if power is None else power), np.float32)

    return jax.tree_util.tree_map_with_path(factor, params, facts)


def _is_described(node: Any) -> bool:
    return isinstance(node, Parameter)


def _levels_below_stack(path: tuple) -> int:
    """How many names lead from what holds a stack of blocks to a parameter in it."""
    return max(1, len(path) - next((i for i, name in enumerate(_names(path)) if name.startswith("block")), 0))


def _layers_of(names: tuple[str, ...], sizes: dict[tuple[str, ...], int]) -> int:
    """The number of blocks of the stack that is nearest above a parameter; of any, where none is."""
    above = [stack for stack in sizes if names[: len(stack)] == stack]
    return sizes[max(above, key=len)] if above else max(sizes.values())


def scale_by_layer(decay: float, parameter: Describe) -> optax.GradientTransformation:
    """Multiplies updates by `layer_factors`."""

    def init(params: Params) -> optax.EmptyState:
        layer_factors(params, decay, parameter)  # a model without blocks is refused before the first step
        return optax.EmptyState()

    def update(updates: PyTree, state: optax.EmptyState, params: Params | None = None):
        del params
        factors = layer_factors(updates, decay, parameter)
        return jax.tree.map(lambda u, f: u * jnp.asarray(f, u.dtype), updates, factors), state

    return optax.GradientTransformation(init, update)


def leave_frozen(
    optimizer: optax.GradientTransformationExtraArgs, frozen: Callable[[tuple[str, ...]], bool]
) -> optax.GradientTransformationExtraArgs:
    """An optimizer that does not see frozen parameters: their update is 0, and nothing is kept for them.

    Where nothing is frozen, its state is that of the optimizer alone.

    Args:
      optimizer: of the others.
      frozen: whether a parameter is, by the names that lead to it.
    """

    def seen(tree: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda path, x: optax.MaskedNode() if frozen(_names(path)) else x, tree)

    def init(params: Params) -> PyTree:
        return optimizer.init(seen(params))

    def update(updates: PyTree, state: PyTree, params: Params | None = None, **extra: Any):
        found, state = optimizer.update(seen(updates), state, None if params is None else seen(params), **extra)
        return jax.tree.map(
            lambda new, old: jnp.zeros_like(old) if isinstance(new, optax.MaskedNode) else new,
            found,
            updates,
            is_leaf=lambda node: isinstance(node, optax.MaskedNode),
        ), state

    return optax.GradientTransformationExtraArgs(init, update)


def _names(path: tuple) -> tuple[str, ...]:
    return tuple(part.key for part in path)


def make_schedule(config: OptimizerConfig, *, total_steps: int) -> Schedule:
    """The config's schedule; its cosine ends with the run, unless the config says so.

    A run that is shorter than the warmup ends within it.
    """
    warmup, end = config.bounds
    return functools.partial(
        warmup_cosine,
        peak=config.learning_rate,
        warmup=warmup,
        final=end or total_steps,
        min_lr_ratio=config.min_lr_ratio,
        decay=config.schedule == "cosine",
    )


def make_optimizer(
    config: OptimizerConfig,
    schedule: Schedule,
    *,
    parameter: Describe,
    frozen: Callable[[tuple[str, ...]], bool] = lambda path: False,
) -> optax.GradientTransformationExtraArgs:
    """Clipping, the optimizer's direction, decay, the rate. Its `update` takes `progress`: see scale_by_progress.

    Args:
      config: which optimizer, and its numbers.
      schedule: of the rate.
      parameter: what the model says of each parameter, `ModelConfig.parameter`; asked only where it is needed.
      frozen: see leave_frozen; `ModelConfig.frozen`.
    """
    steps = [] if config.max_grad_norm is None else [clip_by_global_norm(config.max_grad_norm)]
    adam = optax.scale_by_adam(config.beta1, config.beta2, config.epsilon)
    if config.name == "muon":
        muon = scale_by_muon(config.muon_momentum, batched=functools.partial(_is_stacked, parameter=parameter))
        steps.append(optax.partition({"muon": muon, "adam": adam}, functools.partial(_kinds, parameter=parameter)))
    elif config.name == "sgd":
        steps.append(optax.trace(config.momentum) if config.momentum else optax.identity())
    else:
        steps.append(adam)
    if config.weight_decay:
        mask = functools.partial(decayed, parameter=parameter)
        steps.append(optax.add_decayed_weights(config.weight_decay, mask=mask))
    if config.layer_decay < 1.0:
        steps.append(scale_by_layer(config.layer_decay, parameter))
    steps.append(scale_by_progress(schedule, by_tokens=config.by_tokens, reference_tokens=config.reference_tokens))
    return leave_frozen(optax.chain(*steps), frozen)


def _kinds(params: Params, parameter: Describe) -> PyTree:
    """Muon for matrices that are not heads, Adam for all other parameters."""

    def kind(found: Parameter) -> str:
        return "muon" if found.matrix and not found.head else "adam"

    return jax.tree.map(kind, described(params, parameter), is_leaf=_is_described)


def _is_stacked(path: tuple, parameter: Describe) -> bool:
    """Whether the first axis of a matrix counts blocks."""
    return parameter(_names(path)).axes.startswith("L")


def current_learning_rate(opt_state: PyTree) -> Array:
    """The rate of the newest update, [] float32, on the device; with layer-wise rates, that of the heads."""
    return optax.tree.get(opt_state, "learning_rate")
