"""Text to text: predict each token of a target text from a source text and the earlier target tokens."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxnlp.config import NonNegative, Rate
from jaxnlp.corpus import Corpus, DataConfig, Split
from jaxnlp.models import ModelConfig
from jaxnlp.models.sequence_to_sequence import SequenceToSequenceConfig
from jaxnlp.ops.losses import linear_cross_entropy
from jaxnlp.ops.r_drop import linear_r_drop
from jaxnlp.tasks import Evaluation, Evaluator, MetricKind, Objective, Scoring, Task, forward
from jaxnlp.tasks.export.decoders import encode_and_step
from jaxnlp.tasks.export.encoder_decoders import ExportEncoderDecoder
from jaxnlp.tasks.language_model.evaluators import perplexity
from jaxnlp.text.translation import TranslationProcessor
from jaxnlp.typing import Batch, Metrics, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """The task's loss and its exponential."""

    def __call__(self, scoring: Scoring) -> Evaluation:
        metrics = scoring.sums()
        return Evaluation({**metrics, "perplexity": perplexity(metrics["loss"])})


@dataclasses.dataclass(frozen=True)
class TextToText(Task):
    """Mean cross-entropy of each target token given the source and the previous ones, in nats per token.

    Batches have `source` [B, S] int and `source_mask` [B, S] bool; `inputs` and `targets` [B, T] int, the target after
    a start symbol and before an end symbol; `loss_mask` [B, T] bool: the mean is over True.
    """

    evaluators = {"validation": Validation}
    commands = {"export": ExportEncoderDecoder}

    label_smoothing: Rate = 0.0
    """Share of each target's probability that is spread evenly over the vocabulary in training."""
    r_drop: NonNegative = 0.0
    """Weight of R-Drop (Liang et al. 2021): training reads each pair twice, with different dropout, and half of this
    weight times the KL divergence of the two predictions, the mean of both directions, is added to the loss. 5 is
    published for translation. A step takes two to three times as long."""

    def metrics(self, processor: TranslationProcessor, split: Split) -> Mapping[str, MetricKind]:
        del processor, split
        loss = MetricKind("tokens", "nats", "lower")
        metrics = {"loss": loss, "perplexity": MetricKind("tokens", "choices", "lower")}
        if self.label_smoothing or self.r_drop:
            metrics["objective"] = loss._replace(training_only=True)
        return metrics | {"positions_per_token": MetricKind("tokens", "positions", "lower", training_only=True)}

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, SequenceToSequenceConfig):
            raise ValueError(
                f"this task needs a model that reads a source, such as EncoderDecoderConfig, got {type(model).__name__}"
            )

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            read = [batch[name] for name in model.config.reads]
            layer_and_targets = (
                *model.output_layer(params),
                batch["targets"].reshape(-1),
                batch["loss_mask"].reshape(-1),
            )
            operand_dtype = model.config.compute.operand_dtype
            smoothing = 0.0 if key is None else self.label_smoothing
            if self.r_drop and key is not None:
                hidden = forward(model, params, key, *(jnp.repeat(x, 2, axis=0) for x in read), return_hidden=True)
                _, length, width = hidden.shape
                losses = linear_r_drop(
                    hidden.reshape(-1, 2, length, width).swapaxes(1, 2).reshape(-1, 2, width),
                    *layer_and_targets,
                    weight=self.r_drop,
                    label_smoothing=smoothing,
                    matmul_dtype=operand_dtype,
                )
            else:
                hidden = forward(model, params, key, *read, return_hidden=True)
                losses = linear_cross_entropy(
                    hidden.reshape(-1, hidden.shape[-1]),
                    *layer_and_targets,
                    label_smoothing=smoothing,
                    matmul_dtype=operand_dtype,
                )
            metrics: Metrics = {"loss": (losses.nll, losses.count)}
            if key is not None:
                positions = batch["source"].size + batch["inputs"].size
                real = batch["source_mask"].sum(dtype=jnp.float32) + losses.count
                metrics["positions_per_token"] = (jnp.asarray(positions, jnp.float32), real)
            if key is not None and (self.label_smoothing or self.r_drop):
                metrics["objective"] = (losses.objective, losses.count)
            return losses.objective / jnp.maximum(losses.count, 1.0), (metrics, carry)

        return Objective(loss, progress="positions_per_token")

    exports = staticmethod(encode_and_step)
