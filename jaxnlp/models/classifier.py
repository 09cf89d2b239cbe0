"""The base of classifiers: models that score the classes of texts, pairs of texts, or images."""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import flax.linen as nn
import jax

from jaxnlp.models import Adopted, ModelConfig
from jaxnlp.typing import Params

_logger = logging.getLogger(__name__)
HEAD = "head"
"""Name of the module that scores the classes."""


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(ModelConfig):
    """The base of classifiers' configs.

    Their processor has the `targets` (`jaxnlp.targets`) and their number of `outputs`; `counted`, the noun for its
    examples; and for tables the `columns` that show an example, and its `cells`.

    The module takes the arrays of a batch that `inputs` names, in this order, and the keyword `deterministic`. It
    returns logits [B, C], float32. It must not return probabilities, which the loss would normalise again.
    """

    inputs: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays of a batch that the module reads."""
    has_rollout: ClassVar[bool] = False
    """Whether the module has `attention_rollout`: params, images -> the share of each patch in the prediction."""

    @property
    def has_attention_weights(self) -> bool:
        """Whether the module has `attention_weights`: params, tokens, attention_mask -> weights of the words."""
        return False

    def build_classifier(self, processor: Any) -> nn.Module:
        """The module for the inputs and the classes of a processor."""
        raise TypeError(f"{type(self).__name__} cannot build a classifier: it does not define build_classifier()")

    def shapes(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes of the arrays that the module reads, for one example."""
        raise TypeError(f"{type(self).__name__} cannot build a classifier: it does not define shapes()")

    def check_processor(self, processor: Any) -> None:
        """Raises ValueError when the model cannot read what the processor makes; the message says what to change."""

    def adopt(self, pretrained: Any) -> Adopted:
        """All parameters, but the head only if both models predict the same."""
        found = super().adopt(pretrained)
        heads = {name: params for name, params in found.params.items() if name == HEAD}
        rest = {name: params for name, params in found.params.items() if name != HEAD}
        return found._replace(params=rest, params_for=functools.partial(heads_for, pretrained, heads, ("targets",)))

    def initial_params(self, processor: Any) -> Params:
        """The parameters that are not initialised at random, such as word vectors.

        Raises: ValueError, or FileNotFoundError, for a file that is missing, damaged, or does not fit the model.
        """
        del processor
        return {}


def heads_for(pretrained: Any, heads: Params, names: Sequence[str], processor: Any) -> Params:
    """The heads of a pretrained model for a new processor; empty, with a warning, if the processors differ.

    Args:
      pretrained: a `jaxnlp.tasks.Trained`.
      heads: the parameters of its heads.
      names: the attributes in which both processors must be equal, such as the classes.
      processor: the new one.
    """
    theirs = pretrained.processor
    changed = [name for name in names if getattr(processor, name) != getattr(theirs, name)]
    if changed and heads:
        _logger.warning("the head of %s is not used: its %s differ", pretrained.name, ", ".join(changed))
    return {} if changed else heads
