"""The base of classifiers: models that score the classes of texts, pairs of texts, or images."""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.models import Adopted, ModelConfig
from jaxnlp.targets import Targets, whole_number
from jaxnlp.typing import Params

_logger = logging.getLogger(__name__)
HEAD = "head"
"""Name of the module that scores the classes."""


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(ModelConfig):
    """The base of classifiers' configs.

    Their processor has `targets` (`jaxnlp.targets`), their number of `outputs`, and `by_part`, the processor of each
    part by name; `counted`, a plural noun for examples; and for tables `columns`, and `cells` of an example.

    The module takes the arrays of `reads`, the keyword `deterministic`, and with several parts the keyword `part`, a
    name. It returns logits [B, C], float32, never probabilities, which the loss would normalise again.
    """

    has_rollout: ClassVar[bool] = False
    """Whether the module has `attention_rollout`: params, images -> the share of each patch in the prediction."""

    @property
    def has_attention_weights(self) -> bool:
        """Whether the module has `attention_weights`: params, tokens, attention_mask -> weights of the words."""
        return False

    @property
    def attends(self) -> bool:
        return self.has_attention_weights

    def check(self, processor: Any) -> None:
        if len(processor.by_part) > 1:
            raise ValueError(
                f"this model has one head, but data.parts are {', '.join(processor.by_part)}; give one part, or a "
                "model with a head for each, such as that of bert_multitask"
            )

    def compares(self, processor: Any) -> bool:
        """Whether a processor's only part is predicted by the cosine of embeddings, without a head."""
        del processor
        return False

    def adopt(self, pretrained: Any) -> Adopted:
        """All parameters, but the head only if both models predict the same."""
        adopted = super().adopt(pretrained)
        heads = {name: params for name, params in adopted.params.items() if name == HEAD}
        rest = {name: params for name, params in adopted.params.items() if name != HEAD}
        theirs = pretrained.processor
        fitting = functools.partial(matching_heads, pretrained.name, theirs, heads, ("targets",), config=adopted.config)
        return adopted._replace(params=rest, matching_heads=fitting)


@dataclasses.dataclass(frozen=True)
class TokenClassifierConfig(ClassifierConfig):
    """The base of configs of classifiers that read the tokens of a text, or of both texts of a pair together."""

    reads: ClassVar[tuple[str, ...]] = ("tokens", "attention_mask")

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        del processor
        return jax.ShapeDtypeStruct((1, 1), jnp.int32), jax.ShapeDtypeStruct((1, 1), jnp.bool_)

    def check(self, processor: Any) -> None:
        super().check(processor)
        if processor.apart:
            raise ValueError("this model reads both texts of a pair together; set data.pairs to together")


def matching_heads(
    name: str, theirs: Any, heads: Params, names: Sequence[str], processor: Any, config: ModelConfig
) -> Params:
    """The heads of a pretrained model that fit a new processor; empty, with a warning, if the processors differ.

    Classes in another order reorder the heads.

    Args:
      name: of the pretrained model.
      theirs: its processor.
      heads: the parameters of its heads.
      names: attributes that must be equal in both processors, such as the classes.
      processor: the new one.
      config: of the model, with the axes of classes.
    """
    changed = [each for each in names if getattr(processor, each) != getattr(theirs, each)]
    if not changed or not heads:
        return {} if changed else heads
    order = _order(getattr(theirs, changed[0]), getattr(processor, changed[0])) if len(changed) == 1 else None
    reordered = None if order is None else _reordered(heads, order, config)
    if reordered is None:
        _logger.warning("the head of %s is not used: its %s differ", name, ", ".join(changed))
    return reordered or {}


def _order(theirs: Any, ours: Any) -> list[int] | None:
    """The indices of our classes among theirs; None for other classes. 1 and 1.0 are the same."""
    if type(theirs) is not type(ours):
        return None
    held, wanted = (tuple(map(whole_number, one.names)) if isinstance(one, Targets) else one for one in (theirs, ours))
    same = isinstance(held, tuple) and held and all(isinstance(one, str) for one in held)
    return [held.index(one) for one in wanted] if same and sorted(held) == sorted(wanted) else None


def _reordered(heads: Params, order: Sequence[int], config: ModelConfig) -> Params | None:
    """The heads with another order of classes; None for another number of classes."""
    fits = True

    def reordered(path: Any, x: Any) -> Any:
        nonlocal fits
        for axis, letter in enumerate(config.parameter(tuple(key.key for key in path)).axes):
            if letter == "C":
                fits = fits and x.shape[axis] == len(order)
                x = np.take(x, order, axis) if fits else x
        return x

    found: Params = jax.tree_util.tree_map_with_path(reordered, heads)
    return found if fits else None
