"""Objectives: from a model to the loss that training minimises and evaluation reports.

An objective is a function of a Linen module and a LossConfig. It returns `loss_fn(params, batch, key) -> (loss,
metrics)`: a scalar to differentiate, and named (sum, count) pairs among which `loss` is the same loss. With `key=None`
it is the evaluation, which leaves out what training adds to the cross-entropy (label smoothing, z-loss, activation
regularisation): losses of runs with other regularisers can be compared. Where a model carries something from one batch
to the next it is a CarryingLoss instead.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.ops.losses import MAX_LOGITS, TokenLosses, cross_entropy, linear_cross_entropy
from jaxnlp.ops.matmul import operand_dtype
from jaxnlp.ops.sampled_softmax import sampled_cross_entropy
from jaxnlp.text.tasks import TASKS
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree

LossFunction = Callable[[Params, Batch, PRNGKey | None], tuple[Array, Metrics]]


@dataclasses.dataclass(frozen=True)
class CarryingLoss:
    """A loss of a model that reads on where it stopped, row by row.

    Attributes:
      loss_fn: (params, batch, key, carry) -> (loss, (metrics, carry)); no gradient flows into the carry.
      empty: rows of a batch -> what is carried into the first one.
    """

    loss_fn: Callable[[Params, Batch, PRNGKey | None, PyTree], tuple[Array, tuple[Metrics, PyTree]]]
    empty: Callable[[int], PyTree]


def carrying(loss: LossFunction | CarryingLoss) -> CarryingLoss:
    """Any loss as one that carries: nothing, for most."""
    if isinstance(loss, CarryingLoss):
        return loss

    def loss_fn(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
        value, metrics = loss(params, batch, key)
        return value, (metrics, carry)

    return CarryingLoss(loss_fn, empty=lambda rows: ())


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """How training scores tokens, beyond the cross-entropy, which is what evaluation reports."""

    label_smoothing: float = 0.0
    """Share of each target's probability that is spread evenly over the vocabulary."""
    z_loss: float = 0.0
    """Weight of the squared log normaliser, which keeps it near 0."""
    chunk_tokens: int | None = None
    """Score so many tokens at a time, and never hold the logits of all: for large vocabularies; None = all at once."""
    sampled_tokens: int | None = None
    """Train on an estimate: the normaliser sums the frequent tokens and so many draws out of all others, which stand
    for them; evaluation is exact. For large vocabularies; None = train on the exact one."""
    frequent_tokens: int = 4_000
    """Where tokens are sampled: how many of the most frequent in training are always summed; with as many as there are
    in the vocabulary, training is exact."""
    task_weights: tuple[float, ...] = ()
    """Several tasks: what the loss of each is multiplied by, in the order of model.tasks; empty = 1 for all."""
    activation_regularisation: float = 0.0
    """Recurrent models: weight of the mean square of the last layer's outputs, after dropout (alpha, AR)."""
    temporal_activation_regularisation: float = 0.0
    """Recurrent models: weight of the mean square of what they change by from one position to the next, before dropout
    (beta, TAR)."""

    def __post_init__(self):
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"loss.label_smoothing must lie in [0, 1), got {self.label_smoothing}")
        for name in ("z_loss", "activation_regularisation", "temporal_activation_regularisation"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"loss.{name} must be finite and not negative, got {getattr(self, name)}")
        if self.chunk_tokens is not None and self.chunk_tokens < 1:
            raise ValueError(f"loss.chunk_tokens must be at least 1 or None, got {self.chunk_tokens}")
        if not all(0.0 < weight < math.inf for weight in self.task_weights):
            raise ValueError(f"loss.task_weights must be positive, got {self.task_weights}")
        if self.sampled_tokens is not None and self.sampled_tokens < 1:
            raise ValueError(f"loss.sampled_tokens must be at least 1 or None, got {self.sampled_tokens}")
        if self.frequent_tokens < 0:
            raise ValueError(f"loss.frequent_tokens must not be negative, got {self.frequent_tokens}")
        if self.sampled_tokens is not None and (self.label_smoothing or self.z_loss):
            raise ValueError("loss.sampled_tokens estimates the plain cross-entropy: leave label_smoothing and z_loss")

    def weights_of(self, tasks: Sequence[str]) -> dict[str, float]:
        """What the loss of each task is multiplied by. Raises: ValueError unless there is a number for each."""
        if self.task_weights and len(self.task_weights) != len(tasks):
            raise ValueError(
                f"loss.task_weights needs one for each of {', '.join(tasks)}, got {self.task_weights}; give "
                f"--loss.task-weights with {len(tasks)} of them"
            )
        return dict(zip(tasks, self.task_weights or [1.0] * len(tasks), strict=True))

    def of(self, key: PRNGKey | None) -> "LossConfig":
        """What counts with this key: all of it in training; in evaluation nothing that adds to the cross-entropy."""
        if key is not None:
            return self
        return dataclasses.replace(
            self,
            label_smoothing=0.0,
            z_loss=0.0,
            activation_regularisation=0.0,
            temporal_activation_regularisation=0.0,
        )


def next_token(model: Any, config: LossConfig | None = None, token_counts: np.ndarray | None = None) -> LossFunction:
    """Mean cross-entropy of each token given those before it, in nats per token.

    Batches hold `tokens` [B, T] int, `targets` [B, T] int and `loss_mask` [B, T] bool: the mean is over True.

    Args:
      model: a Linen module from tokens to logits; to be scored in chunks or against a sample, it needs `return_hidden`
        and `output_layer` as `jaxnlp.models.gpt.GPT` has them.
      config: None = the plain cross-entropy.
      token_counts: [V] int, how often each occurs in training; for a sample alone.
    """
    config = config or LossConfig()
    linear = _linear_losses(model, config, token_counts)
    whole = config.chunk_tokens is None and config.sampled_tokens is None

    def score(params: Params, batch: Batch, key: PRNGKey | None) -> _Losses:
        y: Any = model.apply(
            {"params": params},
            batch["tokens"],
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
            **({} if whole else {"return_hidden": True}),
        )
        if whole:
            return functools.partial(cross_entropy, y, batch["targets"], batch["loss_mask"])
        return linear(params, y, batch, key)

    def loss_fn(params: Params, batch: Batch, key: PRNGKey | None) -> tuple[Array, Metrics]:
        asked = config.of(key)
        loss, _, count = score(params, batch, key)(label_smoothing=asked.label_smoothing, z_loss=asked.z_loss)
        return loss / jnp.maximum(count, 1.0), {"loss": (loss, count)}

    return loss_fn


def next_token_carried(
    model: Any, config: LossConfig | None = None, token_counts: np.ndarray | None = None
) -> CarryingLoss:
    """`next_token` for recurrent models, which read each row on from where the batch before it stopped.

    loss = cross-entropy + alpha mean_t |d_t|^2 + beta mean_t |h_{t+1} - h_t|^2

    with h_t the last layer's outputs, d_t the same after dropout, and means over positions that count, and features.

    Batches are those of `next_token`. Where they have `reset` [B] bool, rows that are False continue, and the others
    begin anew; without it all do, and the carry, which may be (), is handed on as it is.

    Args:
      model: a `jaxnlp.models.recurrent_lm.RecurrentLM`, or what reads as it does.
      config: None = the plain cross-entropy.
      token_counts: as for `next_token`.

    Source: Merity et al. 2018, section 4.6, for both regularisers; Williams and Peng 1990 for truncated
    back-propagation.
    """
    config = config or LossConfig()
    linear = _linear_losses(model, config, token_counts)

    def loss_fn(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
        states, asked = None, config.of(key)
        if "reset" in batch:
            states = jax.tree.map(lambda s: jnp.where(batch["reset"][:, None], jnp.zeros_like(s), s), carry)
        reading = model.apply(
            {"params": params},
            batch["tokens"],
            states,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
            method="read",
        )
        losses = linear(params, reading.hidden, batch, key)
        loss, _, count = losses(label_smoothing=asked.label_smoothing, z_loss=asked.z_loss)
        counted = batch["loss_mask"]
        if asked.activation_regularisation:
            loss += count * asked.activation_regularisation * _mean_square(reading.dropped, counted)
        if asked.temporal_activation_regularisation:
            change = reading.outputs[:, 1:] - reading.outputs[:, :-1]
            loss += count * asked.temporal_activation_regularisation * _mean_square(change, counted[:, 1:])
        carry = jax.lax.stop_gradient(reading.states if "reset" in batch else carry)
        return loss / jnp.maximum(count, 1.0), ({"loss": (loss, count)}, carry)

    return CarryingLoss(loss_fn, empty=model.empty_cache)


_Losses = Callable[..., TokenLosses]
"""The sums of losses and their count, as a function of label smoothing and z-loss."""


def _linear_losses(
    model: Any, config: LossConfig, token_counts: np.ndarray | None
) -> Callable[[Params, Array, Batch, PRNGKey | None], _Losses]:
    """How the output layer's inputs [B, T, D] are scored: against a sample in training, if the config has one."""
    frequent, rare = None, None
    sampled = config.sampled_tokens
    if token_counts is not None and len(token_counts) <= config.frequent_tokens:
        sampled = None
    if token_counts is not None and sampled is not None:
        by_count = np.argsort(-token_counts, kind="stable")
        frequent, rare = np.split(by_count.astype(np.int32), [config.frequent_tokens])

    def linear(params: Params, hidden: Array, batch: Batch, key: PRNGKey | None) -> _Losses:
        w, b = model.output_layer(params)
        rows, targets = hidden.reshape(-1, hidden.shape[-1]), batch["targets"].reshape(-1)
        scored = (rows, w, b, targets, batch["loss_mask"].reshape(-1))
        if sampled is None or key is None:
            return functools.partial(
                linear_cross_entropy,
                *scored,
                chunk=config.chunk_tokens,
                matmul_dtype=operand_dtype(model.config.matmul_dtype),
            )
        if frequent is None or rare is None:
            raise ValueError("loss.sampled_tokens needs to know which tokens are rare: give token_counts")
        estimate = sampled_cross_entropy(
            *scored,
            frequent=jnp.asarray(frequent),
            rare=jnp.asarray(rare),
            samples=sampled,
            key=jax.random.fold_in(key, _SAMPLE),
            matmul_dtype=operand_dtype(model.config.matmul_dtype),
        )
        return lambda **plain: estimate  # LossConfig admits no others beside a sample

    return linear


_SAMPLE = 0x5A3
"""Keeps the key of the sample apart from those that Linen makes of the same one for dropout."""


def text_tasks(model: Any, config: LossConfig | None = None, token_counts: np.ndarray | None = None) -> LossFunction:
    """The loss of the task that a batch is about, times the task's weight.

    Classification: cross-entropy, in nats. Paraphrase: the same of two classes, from one logit. Similarity: the square
    of the difference between the score and the label's share of the highest label.

    Batches hold `tokens` [B, S, T] int, `attention_mask` [B, S, T] bool, `loss_mask` [B] bool, and the labels [B] float
    by the name of the task. Beside `loss` there are, by the task's name, `sst/loss` and so on without the weight, and
    `sst/accuracy` where there are classes.

    Args:
      model: a `jaxnlp.models.text_tasks.TextTasks`.
      config: label smoothing and the weights count; None = neither.
      token_counts: not used.
    """
    del token_counts
    config = config or LossConfig()
    weights = config.weights_of(model.config.tasks)

    def loss_fn(params: Params, batch: Batch, key: PRNGKey | None) -> tuple[Array, Metrics]:
        (name,) = batch.keys() & weights.keys()
        task, loss_mask = TASKS[name], batch["loss_mask"]
        # A masked row's label may be anything, also NaN, which a product with 0 would pass on to the gradient.
        labels = jnp.where(loss_mask, batch[name], 0.0)
        answer = model.apply(
            {"params": params},
            batch["tokens"],
            batch["attention_mask"],
            name,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )
        if task.kind == "classification":
            classes = labels.astype(jnp.int32)
            loss, _, count = cross_entropy(answer, classes, loss_mask, label_smoothing=config.of(key).label_smoothing)
            right = answer.argmax(axis=-1) == classes
        else:
            if task.kind == "paraphrase":
                losses = jax.nn.softplus(answer) - labels * answer
                right = (answer > 0.0) == (labels > 0.5)
            else:
                losses, right = jnp.square(answer - labels / task.labels), None
            loss, count = jnp.where(loss_mask, losses, 0.0).sum(), loss_mask.sum().astype(losses.dtype)
        weight = weights[name]
        metrics: Metrics = {"loss": (weight * loss, count), f"{name}/loss": (loss, count)}
        if right is not None:
            metrics[f"{name}/accuracy"] = ((right & loss_mask).sum().astype(loss.dtype), count)
        return weight * loss / jnp.maximum(count, 1.0), metrics

    return loss_fn


def masked_tokens(model: Any, config: LossConfig | None = None, token_counts: np.ndarray | None = None) -> LossFunction:
    """BERT's: mean cross-entropy of the masked tokens, plus that of the second text following the first, in nats.

    Batches are those of `data.masked_text`: `tokens`, `segments` [B, T] int and `attention_mask` [B, T] bool are read;
    `positions`, `targets` [B, P] int and `predicted` [B, P] bool say what to guess where; `follows` [B] int is 1 where
    the second text follows; rows where `loss_mask` [B] is False count for nothing.

    Beside `loss` there are `mlm/loss` over masked tokens, `nsp/loss` and `nsp/accuracy` over rows, and in evaluation
    `mlm/accuracy`. The count of `loss` is that of the rows, and its sum as many times the sum of both means: where a
    batch is read in shards or parts, or a split in batches, `loss` weighs theirs by rows, not by masked tokens. That of
    `mlm/loss` is exact everywhere.

    Args:
      model: a `jaxnlp.models.bert_pretraining.BertPretraining`.
      config: label smoothing and z-loss of the masked tokens, and `chunk_tokens`; None = the plain cross-entropy.
      token_counts: not used.

    Source: Devlin et al. 2019, appendix A.2.
    """
    del token_counts
    config = config or LossConfig()
    matmul_dtype = operand_dtype(model.config.encoder.matmul_dtype)

    def loss_fn(params: Params, batch: Batch, key: PRNGKey | None) -> tuple[Array, Metrics]:
        x, logits = model.apply(
            {"params": params},
            batch["tokens"],
            batch["segments"],
            batch["attention_mask"],
            batch["positions"],
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )
        asked, (w, b) = config.of(key), model.output_layer(params)
        rows, targets = x.reshape(-1, x.shape[-1]), batch["targets"].reshape(-1)
        counted = (batch["predicted"] & batch["loss_mask"][:, None]).reshape(-1)
        masked_losses = linear_cross_entropy(
            rows,
            w,
            b,
            targets,
            counted,
            label_smoothing=asked.label_smoothing,
            z_loss=asked.z_loss,
            chunk=config.chunk_tokens,
            matmul_dtype=matmul_dtype,
        )
        classes = 1 - batch["follows"]  # class 0 is that it follows
        masked = masked_losses.objective, masked_losses.count
        following = cross_entropy(logits, classes, batch["loss_mask"])[::2]
        right = (logits.argmax(axis=-1) == classes) & batch["loss_mask"]
        loss, count = _mean(masked) + _mean(following), following[1]
        metrics: Metrics = {
            "loss": (loss * count, count),
            "mlm/loss": masked,
            "nsp/loss": following,
            "nsp/accuracy": (right.sum().astype(count.dtype), count),
        }
        if key is None:
            guessed = _most_likely(rows, w, b, config.chunk_tokens)
            metrics["mlm/accuracy"] = ((counted & (guessed == targets)).sum().astype(count.dtype), masked[1])
        return loss, metrics

    return loss_fn


def _mean(pair: tuple[Array, Array]) -> Array:
    return pair[0] / jnp.maximum(pair[1], 1.0)


def _most_likely(x: Array, w: Array, b: Array, chunk: int | None) -> Array:
    """The token with the highest logit [N] int32 for each of x [N, D], so many logits at a time as the loss holds."""
    w, b = w.astype(x.dtype), b.astype(x.dtype)
    size = max(1, min(len(x), MAX_LOGITS // w.shape[1] if chunk is None else chunk))
    return jax.lax.map(lambda row: (row @ w + b).argmax().astype(jnp.int32), x, batch_size=size)


def _mean_square(x: Array, counted: Array) -> Array:
    """Of x [B, T, K], over the positions [B, T] that count, in float32."""
    squares = jnp.square(x.astype(jnp.float32)).mean(axis=-1)
    return jnp.where(counted, squares, 0.0).sum() / jnp.maximum(counted.sum().astype(jnp.float32), 1.0)


COUNTED = {"text_tasks": "examples", "masked_tokens": "examples"}
"""What the count of an objective's loss is a number of, where it is not tokens."""

OBJECTIVES: dict[str, Callable[..., LossFunction | CarryingLoss]] = {
    "next_token": next_token,
    "next_token_carried": next_token_carried,
    "text_tasks": text_tasks,
    "masked_tokens": masked_tokens,
}
