"""Objectives: from a model to the loss that training minimises and evaluation reports.

An objective is a function of a Linen module that returns `loss_fn(params, batch, key) -> (loss, metrics)`: a scalar to
differentiate, and named (sum, count) pairs among which `loss` is the same loss. With `key=None` it is the evaluation.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxnlp.ops.losses import cross_entropy
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey

LossFunction = Callable[[Params, Batch, PRNGKey | None], tuple[Array, Metrics]]


def next_token(model: nn.Module) -> LossFunction:
    """Mean cross-entropy of each token given those before it, in nats per token.

    Batches hold `tokens` [B, T] int, `targets` [B, T] int and `loss_mask` [B, T] bool: the mean is over True.
    """

    def loss_fn(params: Params, batch: Batch, key: PRNGKey | None) -> tuple[Array, Metrics]:
        logits: Any = model.apply(
            {"params": params},
            batch["tokens"],
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )
        loss, count = cross_entropy(logits, batch["targets"], batch["loss_mask"])
        return loss / jnp.maximum(count, 1.0), {"loss": (loss, count)}

    return loss_fn


OBJECTIVES: dict[str, Callable[[nn.Module], LossFunction]] = {"next_token": next_token}
