"""Objectives: from a model to the loss that training minimises and evaluation reports.

An objective is a function of a Linen module and a LossConfig. It returns `loss_fn(params, batch, key) -> (loss,
metrics)`: a scalar to differentiate, and named (sum, count) pairs among which `loss` is the same loss. With `key=None`
it is the evaluation.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxnlp.ops.losses import cross_entropy, linear_cross_entropy
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey

LossFunction = Callable[[Params, Batch, PRNGKey | None], tuple[Array, Metrics]]


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """How tokens are scored, beyond the cross-entropy."""

    label_smoothing: float = 0.0
    """Share of each target's probability that is spread evenly over the vocabulary."""
    z_loss: float = 0.0
    """Weight of the squared log normaliser, which keeps it near 0."""
    chunk_tokens: int | None = None
    """Score so many tokens at a time, and never hold the logits of all: for large vocabularies; None = all at once."""

    def __post_init__(self):
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"loss.label_smoothing must lie in [0, 1), got {self.label_smoothing}")
        if not 0.0 <= self.z_loss < math.inf:
            raise ValueError(f"loss.z_loss must be finite and not negative, got {self.z_loss}")
        if self.chunk_tokens is not None and self.chunk_tokens < 1:
            raise ValueError(f"loss.chunk_tokens must be at least 1 or None, got {self.chunk_tokens}")


def next_token(model: Any, config: LossConfig | None = None) -> LossFunction:
    """Mean cross-entropy of each token given those before it, in nats per token.

    Batches hold `tokens` [B, T] int, `targets` [B, T] int and `loss_mask` [B, T] bool: the mean is over True. Where the
    config smooths labels or adds a z-loss, `loss` holds them, and evaluation reports the cross-entropy alone as `nll`.

    Args:
      model: a Linen module from tokens to logits; to be scored in chunks, it needs `return_hidden` and `output_layer`
        as `jaxnlp.models.gpt.GPT` has them.
      config: None = the plain cross-entropy.
    """
    config = config or LossConfig()

    def score(params: Params, batch: Batch, key: PRNGKey | None) -> Callable[..., tuple[Array, Array]]:
        """The sum of losses and their count, as a function of label smoothing and z-loss."""
        settings: dict[str, Any] = {} if config.chunk_tokens is None else {"return_hidden": True}
        y: Any = model.apply(
            {"params": params},
            batch["tokens"],
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
            **settings,
        )
        if config.chunk_tokens is None:
            return functools.partial(cross_entropy, y, batch["targets"], batch["loss_mask"])
        w, b = model.output_layer(params)
        return functools.partial(
            linear_cross_entropy,
            y.reshape(-1, y.shape[-1]),
            w,
            b,
            batch["targets"].reshape(-1),
            batch["loss_mask"].reshape(-1),
            chunk=config.chunk_tokens,
            matmul_dtype=model.config.matmul_dtype,
        )

    def loss_fn(params: Params, batch: Batch, key: PRNGKey | None) -> tuple[Array, Metrics]:
        losses = score(params, batch, key)
        loss, count = losses(label_smoothing=config.label_smoothing, z_loss=config.z_loss)
        metrics: Metrics = {"loss": (loss, count)}
        if key is None and (config.label_smoothing or config.z_loss):
            metrics["nll"] = losses()
        return loss / jnp.maximum(count, 1.0), metrics

    return loss_fn


OBJECTIVES: dict[str, Callable[..., LossFunction]] = {"next_token": next_token}
