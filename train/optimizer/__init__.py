"""Optimizers and learning-rate schedules, built from optax."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from jaxnlp.config import Config, Count, Fraction, NonNegative, Positive, Rate, Within
from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import Params, PyTree
from train.optimizer import schedules
from train.optimizer.layer_rates import scale_by_layer
from train.optimizer.muon import scale_by_muon
from train.optimizer.parameters import Describe, describe, names
from train.optimizer.schedules import Schedule, scale_by_progress

ScheduleName = Literal[
    "cosine", "constant", "linear", "step", "exponential", "cosine_restarts", "one_cycle", "noam", "plateau"
]
TO_THE_END = ("cosine", "linear", "one_cycle")
"""The schedules that end with the run, unless the config sets another end."""
AT_INTERVALS = ("step", "exponential", "cosine_restarts")
"""The schedules that have an interval."""


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Config):
    """Adam, AdamW, Muon or SGD with gradient clipping, and a learning-rate schedule in steps or in tokens."""

    section: ClassVar[str] = "optimizer"
    usual = ("learning_rate",)

    name: Literal["adamw", "adam", "muon", "sgd"] = "adamw"
    """adam has no weight decay, adamw has decoupled weight decay. muon: Muon for hidden matrices, AdamW for all other
    parameters. sgd: SGD, optionally with momentum."""
    learning_rate: Positive = 1e-3
    """Peak learning rate."""
    beta1: Rate = 0.9
    """Adam's decay rate of the running mean of gradients."""
    beta2: Rate = 0.999
    """Adam's decay rate of the running mean of squared gradients."""
    muon_momentum: Rate = 0.95
    """Decay rate of Muon's running mean of gradients."""
    momentum: Rate = 0.0
    """Momentum of SGD."""
    epsilon: Positive = 1e-8
    """Adam's epsilon."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay of dense kernels; biases, norms and embeddings have none."""
    layer_decay: Annotated[float, Within("(0, 1]")] = 1.0
    """Learning rate of each block relative to the block above it, for fine-tuning; embeddings have the lowest. 1 = the
    same rate for all."""
    blocks_lr_ratio: Annotated[float, Within("(0, 1]")] = 1.0
    """Learning rate of the blocks and of the embeddings below them, relative to the layers above the blocks: pretrained
    blocks learn more slowly than new layers. 1 = the same rate for all."""
    max_grad_norm: Positive | None = 1.0
    """Maximum global gradient norm; None = no clipping."""
    head_max_norm: Positive | None = None
    """Maximum norm of the weights of each output of the model, such as each class; larger norms are rescaled to it
    after each update. None = no maximum."""
    schedule: ScheduleName = "cosine"
    """Learning rate after the warmup. cosine, linear and one_cycle fall until the end of the run; step, exponential and
    cosine_restarts fall in intervals; noam falls with the inverse square root of the step; plateau falls when the
    validation loss stops falling; constant does not fall. docs/schedules.md has plots."""
    warmup_steps: int = 0
    """Number of warmup steps. The learning rate rises linearly from 0 to its peak; with one_cycle, along a cosine."""
    decay_steps: int | None = None
    """Step at which cosine, linear and one_cycle end; None = the last step of the run."""
    min_lr_ratio: Fraction = 0.1
    """Lowest learning rate of cosine, linear, one_cycle, cosine_restarts and plateau, as a fraction of the peak."""
    start_lr_ratio: Fraction = 0.04
    """First learning rate of one_cycle, as a fraction of the peak."""
    interval_steps: int | None = None
    """Interval in steps: for step, between two drops; for exponential, in which the learning rate falls by
    decay_factor; for cosine_restarts, before the first restart."""
    decay_factor: float = 0.1
    """Factor of the learning rate in step, exponential and plateau."""
    restart_growth: float = 1.0
    """Length of each interval of cosine_restarts, relative to the one before it."""
    plateau_patience: int = 3
    """Number of evaluations without a lower validation loss that plateau accepts; one more lowers the learning rate."""
    warmup_tokens: int | None = None
    """Number of tokens of the warmup, instead of warmup_steps; cosine, linear and one_cycle also need decay_tokens."""
    decay_tokens: int | None = None
    """Number of training tokens at which cosine, linear and one_cycle end, instead of decay_steps."""
    reference_tokens: Count | None = None
    """Multiply the learning rate of each step by its number of tokens divided by N, for batches of different lengths;
    None = no scaling."""

    def __post_init__(self):
        super().__post_init__()
        uses_adam = self.name != "sgd"
        to_the_end, at_intervals = self.schedule in TO_THE_END, self.schedule in AT_INTERVALS
        has_floor = to_the_end or self.schedule in ("cosine_restarts", "plateau")
        has_factor = self.schedule in ("step", "exponential", "plateau")
        self.only_if(uses_adam, "adamw, adam and muon", "beta1", "beta2", "epsilon")
        self.only_if(self.name == "muon", "muon", "muon_momentum")
        self.only_if(self.name == "sgd", "sgd", "momentum")
        self.only_if(self.name != "adam", "adamw, muon and sgd", "weight_decay")
        self.only_if(to_the_end, "the schedules cosine, linear and one_cycle", "decay_steps", "decay_tokens")
        self.only_if(has_floor, "the schedules with a floor", "min_lr_ratio")
        self.only_if(self.schedule == "one_cycle", "the schedule one_cycle", "start_lr_ratio")
        self.only_if(at_intervals, "the schedules step, exponential and cosine_restarts", "interval_steps")
        self.only_if(has_factor, "the schedules step, exponential and plateau", "decay_factor")
        self.only_if(self.schedule == "cosine_restarts", "the schedule cosine_restarts", "restart_growth")
        self.only_if(self.schedule == "plateau", "the schedule plateau", "plateau_patience")
        self._check_schedule()

    def _check_schedule(self) -> None:
        if self.schedule in TO_THE_END and self.warmup_tokens is not None and self.decay_tokens is None:
            raise ValueError(f"optimizer.warmup_tokens needs optimizer.decay_tokens with the schedule {self.schedule}")
        if self.schedule in AT_INTERVALS:
            if self.counts_tokens:
                raise ValueError(f"the schedule {self.schedule} counts steps; leave optimizer.warmup_tokens unset")
            if self.interval_steps is None or self.interval_steps < 1:
                found = self.interval_steps
                raise ValueError(
                    f"the schedule {self.schedule} needs optimizer.interval_steps, at least 1, got {found}"
                )
        if not 0.0 < self.decay_factor < 1.0:
            raise ValueError(f"optimizer.decay_factor must be between 0 and 1, got {self.decay_factor}")
        if not 1.0 <= self.restart_growth < math.inf:
            raise ValueError(f"optimizer.restart_growth must be at least 1 and finite, got {self.restart_growth}")
        if self.plateau_patience < 0:
            raise ValueError(f"optimizer.plateau_patience must not be negative, got {self.plateau_patience}")
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
        """Whether the schedule counts tokens, not steps."""
        return self.warmup_tokens is not None or self.decay_tokens is not None

    @property
    def ends_with_run(self) -> bool:
        """Whether the learning rate depends on the number of steps of the run."""
        return self.schedule in TO_THE_END and self.decay_steps is None and self.decay_tokens is None

    @property
    def warmup(self) -> int:
        """Length of the warmup, in tokens with `counts_tokens`, otherwise in steps."""
        return (self.warmup_tokens or 0) if self.counts_tokens else self.warmup_steps


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales gradients to a global norm of at most `max_norm`, as `optax.clip_by_global_norm` does.

    It multiplies all values by one factor. optax divides each value, which XLA on CPU does not fuse with Adam's loops.
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


def muon_or_adam(params: Params, describe: Describe) -> PyTree:
    """`muon` for matrices, except for those that map to the model's outputs (words, classes); `adam` for the rest."""

    def label(parameter: Parameter) -> str:
        return "muon" if parameter.matrix and not parameter.head else "adam"

    return jax.tree.map(label, describe(params))


def bound_head_norms(max_norm: float, describe: Describe) -> optax.GradientTransformation:
    """Bounds the norm of the weights of each output of the model by `max_norm`.

    For the weights w of an output, such as a class, and their update u

        u <- w' - w,   w' = (w + u) min(1, max_norm / ||w + u||)

    Output layers are the kernels with `head` in the model's table. All other updates are unchanged, like those of
    outputs whose weights stay within the bound. It must be the last step of a chain.

    Args:
      max_norm: positive.
      describe: see `train.optimizer.parameters`.

    Raises: ConfigError, from `init`, when the model does not have an output layer that is trained.

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


def leave_frozen(
    optimizer: optax.GradientTransformationExtraArgs, frozen: Callable[[tuple[str, ...]], bool]
) -> optax.GradientTransformationExtraArgs:
    """Hides frozen parameters from an optimizer: their update is 0, and they have no optimizer state.

    If no parameter is frozen, the state is that of the optimizer.

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
    """The config's schedule. A schedule with an end in steps ends with the run, unless the config sets decay_steps.

    A run that is shorter than the warmup ends during the warmup. For plateau this is the rate before it is lowered: see
    `plateau_scale`.
    """
    end = (config.decay_tokens if config.counts_tokens else config.decay_steps) or total_steps
    floor, every = {"min_lr_ratio": config.min_lr_ratio}, {"interval": config.interval_steps}
    options: dict[str, dict[str, Any]] = {
        "constant": {},
        "plateau": {},
        "noam": {},
        "linear": {"end": end, **floor},
        "cosine": {"end": end, **floor},
        "one_cycle": {"end": end, "start_lr_ratio": config.start_lr_ratio, **floor},
        "cosine_restarts": {**every, "growth": config.restart_growth, **floor},
        "step": {**every, "factor": config.decay_factor},
        "exponential": {**every, "factor": config.decay_factor},
    }
    formula = getattr(schedules, "constant" if config.schedule == "plateau" else config.schedule)
    return functools.partial(formula, peak=config.learning_rate, warmup=config.warmup, **options[config.schedule])


def plateau_scale(config: OptimizerConfig, losses: Sequence[float]) -> float | None:
    """The factor of the learning rate after these validation losses; None for schedules other than plateau."""
    if config.schedule != "plateau":
        return None
    return schedules.plateau_scale(
        losses, patience=config.plateau_patience, factor=config.decay_factor, min_lr_ratio=config.min_lr_ratio
    )


def make_optimizer(
    config: OptimizerConfig,
    schedule: Schedule,
    *,
    parameter: Callable[[tuple[str, ...]], Parameter],
    frozen: Callable[[tuple[str, ...]], bool] = lambda path: False,
) -> optax.GradientTransformationExtraArgs:
    """Gradient clipping, the optimizer, weight decay, layer-wise rates, the learning rate and the bound on the output
    weights, in this order.

    Its `update` takes the keyword `progress`: see `scale_by_progress`. Its `init` and `update` raise ConfigError for
    a parameter that the model's table does not have.

    Args:
      config: the optimizer and its options.
      schedule: of the learning rate.
      parameter: the model's table, `ModelConfig.parameter`. Matrices have weight decay; matrices that are not heads
        have Muon; heads have bounded norms; the depth gives layer-wise rates.
      frozen: whether the parameter at a path is not trained, `ModelConfig.frozen`; see `leave_frozen`.
    """
    described = functools.partial(describe, parameter)
    steps = [] if config.max_grad_norm is None else [clip_by_global_norm(config.max_grad_norm)]
    adam = optax.scale_by_adam(config.beta1, config.beta2, config.epsilon)
    if config.name == "muon":
        muon = scale_by_muon(config.muon_momentum, described)
        labels = functools.partial(muon_or_adam, describe=described)
        steps.append(optax.partition({"muon": muon, "adam": adam}, labels))
    elif config.name == "sgd":
        steps.append(optax.trace(config.momentum) if config.momentum else optax.identity())
    else:
        steps.append(adam)
    if config.weight_decay:
        mask = functools.partial(has_weight_decay, describe=described)
        steps.append(optax.add_decayed_weights(config.weight_decay, mask=mask))
    if config.layer_decay < 1.0 or config.blocks_lr_ratio < 1.0:
        steps.append(scale_by_layer(config.layer_decay, described, config.blocks_lr_ratio))
    steps.append(scale_by_progress(schedule, by_tokens=config.counts_tokens, reference_tokens=config.reference_tokens))
    if config.head_max_norm is not None:
        steps.append(bound_head_norms(config.head_max_norm, described))
    return leave_frozen(optax.chain(*steps), frozen)
