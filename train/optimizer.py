"""Optimizers and learning-rate schedules, built from optax."""

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
from train.muon import is_hidden_matrix, scale_by_muon
from train.parameters import Describe, map_described, names
from train.schedules import Schedule, noam, warmup_cosine


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Config):
    """Adam, AdamW, Muon or SGD with gradient clipping, and a learning-rate schedule in steps or in tokens."""

    section: ClassVar[str] = "optimizer"

    name: Literal["adamw", "adam", "muon", "sgd"] = "adamw"
    """AdamW has decoupled weight decay; Adam has none. Muon for hidden matrices, AdamW for all other parameters. SGD
    may have momentum."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    beta1: float = 0.9
    """Adam's decay rate of the running mean of gradients."""
    beta2: float = 0.999
    """Adam's decay rate of the running mean of squared gradients."""
    muon_momentum: float = 0.95
    """Decay rate of Muon's running mean of gradients."""
    momentum: float = 0.0
    """Momentum of SGD."""
    epsilon: float = 1e-8
    """Adam's epsilon."""
    weight_decay: float = 0.0
    """Decoupled weight decay of dense kernels; biases, norms and embeddings have none."""
    layer_decay: float = 1.0
    """Learning rate of each block relative to the block above it, for fine-tuning; the embeddings come last. 1 = the
    same rate for all."""
    max_grad_norm: float | None = 1.0
    """Maximum global gradient norm; None = no clipping."""
    schedule: Literal["cosine", "constant", "noam"] = "cosine"
    """Learning rate after the warmup: a cosine decay to min_lr_ratio; constant; or with the inverse square root of the
    step, as the Transformer was trained (noam)."""
    warmup_steps: int = 0
    """Steps of linear warmup from 0 to the peak learning rate."""
    decay_steps: int | None = None
    """Step at which the cosine decay ends; None = the last step of the run."""
    min_lr_ratio: float = 0.1
    """Learning rate at the end of the cosine decay, as a fraction of the peak."""
    warmup_tokens: int | None = None
    """Tokens of linear warmup, in place of warmup_steps; with a cosine schedule it needs decay_tokens."""
    decay_tokens: int | None = None
    """Number of training tokens at which the cosine decay ends, in place of decay_steps."""
    reference_tokens: int | None = None
    """Scale the learning rate of each step by its number of tokens divided by this, for batches of different lengths;
    None = no scaling."""

    def __post_init__(self):
        super().__post_init__()
        uses_adam = self.name != "sgd"
        cosine = self.schedule == "cosine"
        refuse_unread(
            self,
            (
                ReadWhen("beta1", 0.9, uses_adam, "adamw, adam and muon"),
                ReadWhen("beta2", 0.999, uses_adam, "adamw, adam and muon"),
                ReadWhen("epsilon", 1e-8, uses_adam, "adamw, adam and muon"),
                ReadWhen("muon_momentum", 0.95, self.name == "muon", "muon"),
                ReadWhen("momentum", 0.0, self.name == "sgd", "sgd"),
                ReadWhen("weight_decay", 0.0, self.name != "adam", "adamw, muon and sgd"),
                ReadWhen("decay_steps", None, cosine, "the cosine schedule"),
                ReadWhen("min_lr_ratio", 0.1, cosine, "the cosine schedule"),
                ReadWhen("decay_tokens", None, cosine, "the cosine schedule"),
            ),
        )
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"optimizer.learning_rate must be positive and finite, got {self.learning_rate}")
        for name in ("beta1", "beta2", "muon_momentum", "momentum"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"optimizer.{name} must be in [0, 1), got {getattr(self, name)}")
        if not 0 < self.epsilon < math.inf:
            raise ValueError(f"optimizer.epsilon must be positive and finite, got {self.epsilon}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"optimizer.weight_decay must be finite and not negative, got {self.weight_decay}")
        if not 0.0 < self.layer_decay <= 1.0:
            raise ValueError(f"optimizer.layer_decay must be in (0, 1], got {self.layer_decay}")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"optimizer.max_grad_norm must be positive or None, got {self.max_grad_norm}")
        if not 0.0 <= self.min_lr_ratio <= 1.0:
            raise ValueError(f"optimizer.min_lr_ratio must be in [0, 1], got {self.min_lr_ratio}")
        if self.reference_tokens is not None and self.reference_tokens < 1:
            raise ValueError(f"optimizer.reference_tokens must be at least 1 or None, got {self.reference_tokens}")
        self._check_schedule()

    def _check_schedule(self) -> None:
        if self.schedule == "cosine" and self.warmup_tokens is not None and self.decay_tokens is None:
            raise ValueError("optimizer.warmup_tokens needs optimizer.decay_tokens with the cosine schedule")
        if self.counts_tokens and (self.warmup_steps or self.decay_steps is not None):
            raise ValueError(
                "the learning-rate schedule counts steps or tokens: set optimizer.warmup_tokens and "
                "optimizer.decay_tokens, or optimizer.warmup_steps and optimizer.decay_steps, not both"
            )
        unit = "tokens" if self.counts_tokens else "steps"
        if self.schedule == "noam" and self.warmup == 0:
            raise ValueError("optimizer.schedule noam starts with a warmup; set optimizer.warmup_steps, such as 4000")
        warmup, end = self.warmup, getattr(self, f"decay_{unit}")
        if warmup < 0:
            raise ValueError(f"optimizer.warmup_{unit} must not be negative, got {warmup}")
        if end is not None and end <= warmup:
            raise ValueError(
                f"optimizer.decay_{unit} must be greater than optimizer.warmup_{unit}, got {end} and {warmup}"
            )

    @property
    def counts_tokens(self) -> bool:
        """Whether the schedule counts tokens rather than steps."""
        return self.warmup_tokens is not None or self.decay_tokens is not None

    @property
    def warmup(self) -> int:
        """Length of the warmup, in tokens where `counts_tokens`, in steps otherwise."""
        return (self.warmup_tokens or 0) if self.counts_tokens else self.warmup_steps


_LOW_LIMIT = 2**20
"""Progress is stored as (high, low) with low < 2^20: float32 and int32 are too narrow to count the tokens of a long
run."""


class ScheduleState(NamedTuple):
    """Progress as high * 2^20 + low, and the learning rate of the last update."""

    high: Array
    low: Array
    learning_rate: Array


def scale_by_progress(
    schedule: Schedule, *, by_tokens: bool, reference_tokens: int | None = None
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by minus the schedule's learning rate.

    Its `update` takes the keyword `progress`, [] int32 or float: the number of tokens in this step, which is the count
    of the objective's progress metric.

    Args:
      schedule: see `Schedule`.
      by_tokens: whether the schedule counts tokens; otherwise it counts updates.
      reference_tokens: the learning rate is multiplied by `progress` divided by this; None = no scaling.

    Source: Merity et al. 2018, section 4.1, for learning rates that follow the sequence length.
    """

    def init(params: Params) -> ScheduleState:
        del params
        return ScheduleState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))

    def update(updates: PyTree, state: ScheduleState, params: Params | None = None, *, progress: Array):
        del params
        low = state.low + (progress.astype(jnp.int32) if by_tokens else 1)
        high, low = state.high + low // _LOW_LIMIT, low % _LOW_LIMIT
        rate = schedule(high.astype(jnp.float32) * _LOW_LIMIT + low.astype(jnp.float32))
        if reference_tokens is not None:
            rate = rate * progress.astype(jnp.float32) / reference_tokens
        return jax.tree.map(lambda u: -rate.astype(u.dtype) * u, updates), ScheduleState(high, low, rate)

    return optax.GradientTransformationExtraArgs(init, update)


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales gradients to a global norm of at most `max_norm`, as `optax.clip_by_global_norm` does.

    It multiplies all values by one factor. optax divides each value, which XLA on CPU does not fuse with Adam's passes.
    """

    def update(updates: PyTree, state: optax.EmptyState, params: Params | None = None):
        del params
        norm = optax.tree.norm(updates)
        factor = jnp.where(norm > max_norm, max_norm / norm, jnp.ones_like(norm))
        return jax.tree.map(lambda u: u * factor.astype(u.dtype), updates), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def has_weight_decay(params: Params, describe: Describe) -> PyTree:
    """True for matrices, as the model's table names them; biases, norms and embeddings have no weight decay."""
    return map_described(lambda parameter, _: parameter.matrix, describe, params)


def layer_factors(params: Params, describe: Describe, decay: float) -> PyTree:
    """Factors of the updates for layer-wise learning rates: the deeper a layer, the smaller.

    decay^(L - l)   block l of L, counted from 0; the last block has decay
    decay^(L + 1)   below the blocks: embeddings and their normalisation
    1               above the blocks: final normalisation, pooler, heads

    An output layer that shares the embedding matrix has the embedding's factor.

    L is counted in the parameters, for each stack of blocks separately:

    - A stacked parameter (axis L) has the length of that axis.
    - A parameter of block l belongs to the stack in the smallest subtree around it that also has parameters of other
      blocks, or of none; L is one more than the highest block in that subtree.
    - A parameter below the blocks takes L from the smallest subtree around it that has blocks. In an encoder-decoder,
      the encoder's embeddings take the encoder's L. Embeddings outside both take the larger L.

    Args:
      params: parameters, as nested dicts.
      describe: the model's table, `ModelConfig.parameter`.
      decay: in (0, 1].

    Returns:
      Float32 arrays in a tree like `params`: [1, ..., L, ..., 1] with the number of axes of a stacked parameter, and []
      for all others.

    Raises:
      ConfigError: when no parameter belongs to a block, or the model's table does not have a parameter.

    Source: Howard and Ruder 2018, section 3.2 (discriminative fine-tuning); Clark et al. 2020, appendix B, for one
    decay between successive layers.
    """
    described = map_described(lambda parameter, value: _Leaf(parameter, value.shape), describe, params)
    leaves = {names(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(described)}
    blocks = _blocks_in_subtrees(leaves)
    mixed = {path[:length] for path, leaf in leaves.items() if not leaf.blocks for length in range(len(path))}
    if not blocks:
        raise ConfigError(
            "optimizer.layer_decay needs a model with blocks that are trained, and this model has none; set it to 1"
        )

    def factor(path: tuple[Any, ...], leaf: _Leaf) -> np.ndarray:
        depth, axis = leaf.parameter.depth, leaf.stacked_axis
        if axis is not None:
            layers = leaf.shape[axis]
            shape = [layers if n == axis else 1 for n in range(len(leaf.shape))]
            return (decay ** np.arange(layers, 0, -1)).reshape(shape).astype(np.float32)
        if depth == "above":
            return np.ones((), np.float32)
        around = [names(path)[:length] for length in reversed(range(len(path)))]
        if depth == "below":
            subtree = next(subtree for subtree in around if subtree in blocks)
            return np.asarray(decay ** (max(blocks[subtree]) + 2), np.float32)
        subtree = next((subtree for subtree in around if subtree in mixed or blocks[subtree] != {depth}), ())
        return np.asarray(decay ** (max(blocks[subtree]) + 1 - depth), np.float32)

    return jax.tree_util.tree_map_with_path(factor, described)


@dataclasses.dataclass(frozen=True)
class _Leaf:
    parameter: Parameter
    shape: tuple[int, ...]

    @property
    def stacked_axis(self) -> int | None:
        return self.parameter.axes.index("L") if "L" in self.parameter.axes else None

    @property
    def blocks(self) -> set[int]:
        """Numbers of the blocks that it belongs to; empty below and above the blocks."""
        if self.stacked_axis is not None:
            return set(range(self.shape[self.stacked_axis]))
        return {self.parameter.depth} if isinstance(self.parameter.depth, int) else set()


def _blocks_in_subtrees(leaves: dict[tuple[str, ...], _Leaf]) -> dict[tuple[str, ...], set[int]]:
    """Numbers of the blocks in each subtree, by its path; subtrees without blocks are left out."""
    found: dict[tuple[str, ...], set[int]] = {}
    for path, leaf in leaves.items():
        if leaf.blocks:
            for length in range(len(path)):
                found.setdefault(path[:length], set()).update(leaf.blocks)
    return found


def scale_by_layer(decay: float, describe: Describe) -> optax.GradientTransformation:
    """Multiplies updates by `layer_factors`."""

    def init(params: Params) -> optax.EmptyState:
        layer_factors(params, describe, decay)  # refuses a model without blocks before the first step
        return optax.EmptyState()

    def update(updates: PyTree, state: optax.EmptyState, params: Params | None = None):
        del params
        factors = layer_factors(updates, describe, decay)
        return jax.tree.map(lambda u, f: u * jnp.asarray(f, u.dtype), updates, factors), state

    return optax.GradientTransformation(init, update)


def leave_frozen(
    optimizer: optax.GradientTransformationExtraArgs, frozen: Callable[[tuple[str, ...]], bool]
) -> optax.GradientTransformationExtraArgs:
    """Hides frozen parameters from an optimizer: their update is 0, and they have no optimizer state.

    Where no parameter is frozen, the state is that of the optimizer itself.

    Args:
      optimizer: for the other parameters.
      frozen: whether the parameter at a path is frozen.
    """

    def seen(tree: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda path, x: optax.MaskedNode() if frozen(names(path)) else x, tree)

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


def make_schedule(config: OptimizerConfig, *, total_steps: int) -> Schedule:
    """The config's schedule. A cosine schedule in steps ends with the run, unless the config gives decay_steps.

    A run that is shorter than the warmup ends during the warmup.
    """
    if config.schedule == "noam":
        return functools.partial(noam, peak=config.learning_rate, warmup=config.warmup)
    end = config.decay_tokens if config.counts_tokens else config.decay_steps
    return functools.partial(
        warmup_cosine,
        peak=config.learning_rate,
        warmup=config.warmup,
        end=end or total_steps,
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
    """Gradient clipping, the optimizer, weight decay, layer-wise rates and the learning rate, in this order.

    Its `update` takes the keyword `progress`: see `scale_by_progress`. Its `init` and `update` raise ConfigError for
    a parameter that the model's table does not have.

    Args:
      config: the optimizer and its options.
      schedule: of the learning rate.
      parameter: what the model says of the parameter at a path, `ModelConfig.parameter`. Matrices have weight decay;
        matrices that are not heads have Muon; the depth gives layer-wise rates.
      frozen: whether the parameter at a path is not trained, `ModelConfig.frozen`; see `leave_frozen`.
    """
    steps = [] if config.max_grad_norm is None else [clip_by_global_norm(config.max_grad_norm)]
    adam = optax.scale_by_adam(config.beta1, config.beta2, config.epsilon)
    if config.name == "muon":
        kinds = {"muon": scale_by_muon(config.muon_momentum, parameter), "adam": adam}
        steps.append(optax.partition(kinds, functools.partial(_muon_or_adam, describe=parameter)))
    elif config.name == "sgd":
        steps.append(optax.trace(config.momentum) if config.momentum else optax.identity())
    else:
        steps.append(adam)
    if config.weight_decay:
        mask = functools.partial(has_weight_decay, describe=parameter)
        steps.append(optax.add_decayed_weights(config.weight_decay, mask=mask))
    if config.layer_decay < 1.0:
        steps.append(scale_by_layer(config.layer_decay, parameter))
    steps.append(scale_by_progress(schedule, by_tokens=config.counts_tokens, reference_tokens=config.reference_tokens))
    return leave_frozen(optax.chain(*steps), frozen)


def _muon_or_adam(params: Params, describe: Describe) -> PyTree:
    return map_described(lambda parameter, _: "muon" if is_hidden_matrix(parameter) else "adam", describe, params)


def current_learning_rate(opt_state: PyTree) -> Array:
    """The learning rate of the last update, [] float32, on the device; with layer-wise rates, that of the heads."""
    return optax.tree.get(opt_state, "learning_rate")
