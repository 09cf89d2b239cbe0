"""BERT's pretraining: masked language modelling and next-sentence prediction."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxnlp.config import Count, NonNegative, Rate
from jaxnlp.corpus import Corpus, DataConfig, Split
from jaxnlp.inference.exportable import Axes, Exportable
from jaxnlp.models import ModelConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.nn.shards import sum_over_shards
from jaxnlp.ops.losses import chunk_length, cross_entropy, linear_cross_entropy
from jaxnlp.tasks import Evaluation, Evaluator, Method, Metric, MetricKind, Objective, Scoring, Task, Trained, forward
from jaxnlp.tasks.bert_verbs.commands import Embed, Export, PairAttention
from jaxnlp.tasks.bert_verbs.encodings import attend, embed, exported_embed, max_length_of, warm_up_embed
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """Losses and accuracies of masked tokens and of next-sentence prediction; `loss` is the sum of both losses."""

    def __call__(self, scoring: Scoring) -> Evaluation:
        metrics = scoring.sums()
        if metrics:
            losses = [metrics[name] for name in ("mlm/loss", "nsp/loss")]
            value = sum(loss.value for loss in losses if loss.count)
            metrics["loss"] = Metric(value, metrics["nsp/loss"].count)
        return Evaluation(metrics)


def _mean(value: Array, count: Array) -> Array:
    return value / jnp.maximum(count, 1.0)


def _most_likely(x: Array, w: Array, b: Array, chunk: int | None) -> Array:
    """The token with the highest logit [N] int32 for each of x [N, D], in chunks like those of the loss."""
    w, b = w.astype(x.dtype), b.astype(x.dtype)
    size = chunk_length(len(x), w.shape[1]) if chunk is None else max(1, min(len(x), chunk))
    return jax.lax.map(lambda row: (row @ w + b).argmax().astype(jnp.int32), x, batch_size=size)


@dataclasses.dataclass(frozen=True)
class MaskedLanguageModel(Task):
    """Mean cross-entropy of the masked tokens, plus that of next-sentence prediction, in nats.

    Batches have `tokens`, `segments` [B, T] int and `attention_mask` [B, T] bool; `positions` of masked tokens, their
    `targets` [B, P] int and `predicted` [B, P] bool, False for padding; `follows` [B] int, 1 if the second text follows
    the first; and `loss_mask` [B], False for rows of padding.

    The two means have different counts, so a batch cannot be split, and validation adds up the means over the whole
    split. In training the count of `loss` is the number of rows.

    Source: Devlin et al. 2019, appendix A.2.
    """

    evaluators = {"validation": Validation}
    commands = {"embed": Embed, "attention": PairAttention, "export": Export}
    methods = {"embed": Method(embed, warm_up_embed), "attend": Method(attend)}

    label_smoothing: Rate = 0.0
    """Share of each masked token's probability that is spread evenly over the vocabulary in training."""
    z_loss: NonNegative = 0.0
    """Weight of the squared log normaliser in training, which keeps the normaliser near 1."""
    chunk_tokens: Count | None = None
    """Score N masked tokens at a time, so that the logits of all never exist at once; None = the device's best."""

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        del processor, split
        loss = MetricKind("examples", "nats", "lower")
        return {
            "loss": loss,
            **({"objective": loss._replace(training_only=True)} if self.label_smoothing or self.z_loss else {}),
            "mlm/loss": MetricKind("masked tokens", "nats", "lower", title="MLM loss"),
            "mlm/accuracy": MetricKind("masked tokens", title="MLM accuracy"),
            "nsp/loss": loss._replace(title="NSP loss"),
            "nsp/accuracy": MetricKind("examples", title="NSP accuracy"),
            "positions_per_token": MetricKind("tokens", "positions", "lower", training_only=True),
        }

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, BertPretrainingConfig):
            raise ValueError(f"a masked language model needs a BertPretrainingConfig, got {type(model).__name__}")

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            names = ("tokens", "segments", "attention_mask", "positions")
            x, logits = forward(model, params, key, *(batch[name] for name in names))
            w, b = model.output_layer(params)
            rows, targets = x.reshape(-1, x.shape[-1]), batch["targets"].reshape(-1)
            scored = (batch["predicted"] & batch["loss_mask"][:, None]).reshape(-1)
            smoothing = {} if key is None else {"label_smoothing": self.label_smoothing, "z_loss": self.z_loss}
            masked = linear_cross_entropy(
                rows,
                w,
                b,
                targets,
                scored,
                chunk=self.chunk_tokens,
                matmul_dtype=model.config.compute.operand_dtype,
                **smoothing,
            )
            classes = 1 - batch["follows"]  # class 0: the second text follows, as in released weights
            following = cross_entropy(logits, classes, batch["loss_mask"])
            right = (logits.argmax(axis=-1) == classes) & batch["loss_mask"]
            # The scalar of a device's rows is their share of the batch's: counts are those of all rows.
            count, tokens, texts = following.count, *map(sum_over_shards, (masked.count, following.count))
            objective = _mean(masked.objective, tokens) + _mean(following.objective, texts)
            plain = _mean(masked.nll, tokens) + _mean(following.nll, texts)
            mask = batch["attention_mask"]
            metrics: Metrics = {
                "loss": (plain * texts, count),
                "mlm/loss": (masked.nll, masked.count),
                "nsp/loss": (following.nll, count),
                "nsp/accuracy": (right.sum().astype(count.dtype), count),
                "positions_per_token": (jnp.asarray(mask.size, jnp.float32), mask.sum(dtype=jnp.float32)),
            }
            if key is not None and (self.label_smoothing or self.z_loss):
                metrics["objective"] = (objective * texts, count)
            if key is None:
                predicted = _most_likely(rows, w, b, self.chunk_tokens)
                metrics["mlm/accuracy"] = ((scored & (predicted == targets)).sum().astype(count.dtype), masked.count)
            return objective, (metrics, carry)

        return Objective(loss, progress="positions_per_token", is_mean=False)

    @staticmethod
    def exports(trained: Trained) -> Mapping[str, Exportable]:
        model: Any = trained.model

        def apply(params: Params, inputs: Mapping[str, Any]) -> dict[str, Array]:
            arrays = (inputs[name] for name in ("tokens", "segments", "attention_mask"))
            hidden, follows = model.apply({"params": params}, *arrays)
            w, b = model.output_layer(params)
            logits = hidden.reshape(-1, hidden.shape[-1]) @ w + b[None]
            return {"logits": logits.reshape(*hidden.shape[:2], -1), "follows": follows}

        axes = Axes(T=(1, max_length_of(trained)))
        inputs = {"tokens": axes("B, T"), "segments": axes("B, T"), "attention_mask": axes("B, T", bool)}
        returns = (
            "logits [B, T, V] of the token at each place; follows [B, 2], class 0: the second text is the next one"
        )
        return {"predict": Exportable(returns, apply, axes, inputs), "embed": exported_embed(trained)}
