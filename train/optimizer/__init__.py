"""Optimizers: a class for each, and their common options. `train.optimizer.chain` makes the optax transformation.

A new optimizer is a new subclass of `OptimizerConfig`.
"""

import dataclasses
import functools
from typing import Annotated, ClassVar

import jax
import optax

from jaxnlp.config import Choice, Count, Natural, NonNegative, Positive, Rate, Within
from jaxnlp.models import Parameter
from jaxnlp.typing import Array, Params, PyTree
from train.optimizer.muon import scale_by_muon
from train.optimizer.parameters import Describe
from train.optimizer.schedules import Cosine, Schedule


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Choice):
    """Optimizer, gradient clipping and learning rates."""

    section: ClassVar[str] = "optimizer"
    usual = ("learning_rate",)

    learning_rate: Positive = 1e-3
    """Peak learning rate."""
    schedule: Schedule = dataclasses.field(default_factory=Cosine)
    """Learning rate after the warmup. cosine, linear and one_cycle fall until the end of the run; step, exponential and
    cosine_restarts fall in intervals; noam falls with the inverse square root of the step; plateau falls when the
    validation loss stops falling; constant does not fall. docs/schedules.md has plots."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay of dense kernels; biases, norms and embeddings have none."""
    layer_decay: Annotated[float, Within("(0, 1]")] = 1.0
    """Learning rate of each block relative to the block above it, for fine-tuning; embeddings have the lowest. 1 = the
    same rate for all."""
    blocks_lr_ratio: Annotated[float, Within("(0, 1]")] = 1.0
    """Learning rate of blocks and embeddings relative to the layers above the blocks, so that pretrained blocks learn
    more slowly than new layers. 1 = the same rate for all."""
    max_grad_norm: Positive | None = 1.0
    """Maximum global gradient norm; None = no clipping."""
    head_max_norm: Positive | None = None
    """Maximum norm of the weights of each output of the model, such as each class; larger norms are rescaled after each
    update. None = no maximum."""
    reference_tokens: Count | None = None
    """Multiply the learning rate of each step by its number of tokens divided by N, for batches of different lengths;
    None = no scaling."""

    frozen: tuple[str, ...] = ()
    """Names of parameters that are not trained, or of modules around them, such as encoder; none = train all. Their
    dropout stays: set its rates to 0."""
    lora_rank: Natural = 0
    """LoRA: keep each matrix, add a product of two factors of rank N, and train only the factors and the output layers;
    0 = train all parameters."""
    lora_alpha: Positive = 16.0
    """LoRA: the product of the factors is multiplied by N divided by the rank."""
    lora_targets: tuple[str, ...] = ()
    """LoRA: names of the dense layers with factors, or of modules around them, such as attention; none = all dense
    layers."""
    lora_heads: bool = True
    """LoRA: also train the output layers, which are not factored."""

    def __post_init__(self):
        super().__post_init__()
        self.only_if(
            self.lora_rank > 0, "LoRA, a positive optimizer.lora_rank", "lora_alpha", "lora_targets", "lora_heads"
        )

    def freezes(self, path: tuple[str, ...]) -> bool:
        """Whether `frozen` names the parameter at a path, or a module around it."""
        return not set(self.frozen).isdisjoint(path)

    def rate(self, progress: Array, *, total_steps: int) -> Array:
        """The learning rate, [] float32, of an update in a run of this length; see `Schedule`."""
        return self.schedule.rate(progress, peak=self.learning_rate, total_steps=total_steps)

    def direction(self, describe: Describe) -> optax.GradientTransformation:
        """Gradients -> the direction of the update, before weight decay and the learning rate.

        Args:
          describe: see `train.optimizer.parameters`.
        """
        raise TypeError(f"{type(self).__name__} does not define direction()")


@dataclasses.dataclass(frozen=True)
class AdamW(OptimizerConfig, kind="adamw"):
    """Adam with decoupled weight decay; without weight decay it is Adam."""

    beta1: Rate = 0.9
    """Adam's decay rate of the running mean of gradients."""
    beta2: Rate = 0.999
    """Adam's decay rate of the running mean of squared gradients."""
    epsilon: Positive = 1e-8
    """Adam's epsilon."""

    def direction(self, describe: Describe) -> optax.GradientTransformation:
        """Adam's."""
        return optax.scale_by_adam(self.beta1, self.beta2, self.epsilon)


@dataclasses.dataclass(frozen=True)
class Muon(AdamW, kind="muon"):
    """Muon for hidden matrices, AdamW for all other parameters."""

    muon_momentum: Rate = 0.95
    """Decay rate of Muon's running mean of gradients."""

    def direction(self, describe: Describe) -> optax.GradientTransformation:
        """Muon's for hidden matrices; Adam's for the rest."""
        muon = scale_by_muon(self.muon_momentum, describe)
        labels = functools.partial(muon_or_adam, describe=describe)
        return optax.partition({"muon": muon, "adam": super().direction(describe)}, labels)


@dataclasses.dataclass(frozen=True)
class SGD(OptimizerConfig, kind="sgd"):
    """Stochastic gradient descent, optionally with momentum."""

    momentum: Rate = 0.0
    """Momentum of SGD."""

    def direction(self, describe: Describe) -> optax.GradientTransformation:
        """The gradient's, or its running sum."""
        return optax.trace(self.momentum) if self.momentum else optax.identity()


@dataclasses.dataclass(frozen=True)
class RMSProp(OptimizerConfig, kind="rmsprop"):
    """Each gradient divided by the root of the running mean of its squares. Source: Tieleman and Hinton 2012."""

    beta2: Rate = 0.99
    """Decay rate of the running mean of squared gradients."""
    epsilon: Positive = 1e-8
    """Epsilon, added to the root."""

    def direction(self, describe: Describe) -> optax.GradientTransformation:
        """The scaled gradient's."""
        return optax.scale_by_rms(self.beta2, self.epsilon, eps_in_sqrt=False)


def muon_or_adam(params: Params, describe: Describe) -> PyTree:
    """`muon` for matrices, except those that map to the model's outputs (words, classes); `adam` for the rest."""

    def label(parameter: Parameter) -> str:
        return "muon" if parameter.matrix and not parameter.head else "adam"

    return jax.tree.map(label, describe(params))
