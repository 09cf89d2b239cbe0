"""Text tasks: classes, paraphrases and similarities of texts and pairs; one part, or several with one encoder."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.convert import PretrainedError, exported_task, load_pretrained
from jaxnlp.corpus import Corpus, DataConfig, DataError, Split
from jaxnlp.models import ModelConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.models.text_vectors import Pooling
from jaxnlp.ops.gradient_surgery import project_conflicts
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.saving.serialization import from_json
from jaxnlp.tasks import Command, Evaluator, MetricKind, Objective, Task, Trained
from jaxnlp.tasks.bert_verbs.commands import Embed, Export, PairAttention
from jaxnlp.tasks.bert_verbs.encodings import attend, embed, warm_up_embed
from jaxnlp.tasks.bert_verbs.exported import read_exported
from jaxnlp.tasks.text_tasks.commands import Predict
from jaxnlp.tasks.text_tasks.evaluators import Validation
from jaxnlp.tasks.text_tasks.predictions import predict, warm_up
from jaxnlp.text.labels import Labels
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree

SIMILARITY = "similarity"
"""The part of a pretrained encoder that was not trained on parts: the cosine of texts' vectors."""


@dataclasses.dataclass(frozen=True)
class TextTasks(Task):
    """Predicts the labels of texts and pairs of texts.

    Classification: cross-entropy, in nats. Paraphrase: binary cross-entropy. Similarity: squared error of the score,
    relative to the highest label.

    Batches have `tokens` [B, S, T] int, `attention_mask` [B, S, T] bool, `loss_mask` [B] bool, and the labels [B] float
    under the part's name. Training logs the metrics of each part, such as `sst/loss` and `sst/accuracy`. With several
    parts it does not log a plain `loss`, which would depend on the order of the batches.
    """

    model_types = ("bert",)

    label_smoothing: float = 0.0
    """For classifications: share of each target's probability that is spread evenly over the classes in training."""
    part_weights: tuple[float, ...] = ()
    """Weight of each part's loss, in the order of data.parts; empty = 1 for all."""
    gradient_surgery: bool = False
    """With a batch of each part in a step: project away the conflicting part of each part's gradient (PCGrad)."""
    normalize_embeddings: bool = False
    """L2-normalise text embeddings."""

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"task.label_smoothing must be in [0, 1), got {self.label_smoothing}")
        if not all(0.0 < weight < math.inf for weight in self.part_weights):
            raise ValueError(f"task.part_weights must be positive, got {self.part_weights}")

    def metrics(self, processor: TextProcessor, split: Split) -> Mapping[str, MetricKind]:
        losses = {name: _loss_kind(labels) for name, labels in processor.parts}
        mixed = MetricKind("examples", "nats and squared errors", "lower")
        loss = losses[processor.names[0]] if len(set(losses.values())) == 1 else mixed
        found = {"loss": loss}
        if self._is_objective_apart(processor.parts):
            found["objective"] = loss._replace(training_only=True)
        for name, labels in processor.parts:
            found[f"{name}/loss"] = losses[name]
            if labels.kind == "similarity":
                found |= {
                    f"{name}/{measure}": MetricKind("pairs", title=f"{name} {measure.capitalize()} correlation")
                    for measure in ("pearson", "spearman")
                }
            else:
                found[f"{name}/accuracy"] = MetricKind("examples")
        if split.scored:
            found["mean_score"] = MetricKind("examples")
        return found | {"positions_per_token": MetricKind("tokens", "positions", "lower", training_only=True)}

    def _is_objective_apart(self, parts: tuple[tuple[str, Labels], ...]) -> bool:
        """Whether the objective differs from the plain loss of one part."""
        return bool(len(parts) > 1 or self.label_smoothing or any(weight != 1.0 for weight in self.part_weights))

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, TextTasksConfig):
            raise ValueError(f"text tasks need a TextTasksConfig, got model {type(model).__name__}")
        if not data.parts:
            raise ValueError("text tasks need data with labels, but this data set has no parts")
        if self.part_weights and len(self.part_weights) != len(data.parts):
            raise ValueError(
                f"task.part_weights needs one weight for each of {', '.join(data.parts)}, got {self.part_weights}"
            )
        if self.gradient_surgery and (not data.together or len(data.parts) < 2):
            raise ValueError(
                "task.gradient_surgery needs a batch of each of several parts in a step; set data.schedule together "
                f"and several data.parts, got {', '.join(data.parts)}"
            )

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        parts = corpus.processor.parts
        kinds = {labels.kind for _, labels in parts}
        if self.label_smoothing and "classification" not in kinds:
            raise DataError(
                "task.label_smoothing applies only to classifications, which this data does not have; set it to 0"
            )

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        parts: dict[str, Labels] = dict(model.parts)
        weights = dict(zip(parts, self.part_weights or [1.0] * len(parts), strict=True))
        apart = self._is_objective_apart(model.parts)

        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            (name,) = batch.keys() & parts.keys()
            labels, loss_mask = parts[name], batch["loss_mask"]
            # A masked row may have any label, also NaN, which a product with 0 would pass on to the gradient.
            targets = jnp.where(loss_mask, batch[name], 0.0)
            output = model.apply(
                {"params": params},
                batch["tokens"],
                batch["attention_mask"],
                name,
                deterministic=key is None,
                rngs=None if key is None else {"dropout": key},
                method="predict",
            )
            smoothing = 0.0 if key is None else self.label_smoothing
            objective, plain, count, right = _losses(output, targets, loss_mask, labels, smoothing)
            metrics: Metrics = {f"{name}/loss": (plain, count)}
            if right is not None:
                metrics[f"{name}/accuracy"] = ((right & loss_mask).sum().astype(plain.dtype), count)
            if len(parts) == 1:
                metrics["loss"] = (plain, count)
            if (key is not None and apart) or "loss" not in metrics:
                metrics["objective"] = (weights[name] * objective, count)
            mask = batch["attention_mask"]
            metrics["positions_per_token"] = (jnp.asarray(mask.size, jnp.float32), mask.sum(dtype=jnp.float32))
            return weights[name] * objective / jnp.maximum(count, 1.0), (metrics, carry)

        def without_conflicts(gradients: Mapping[str, PyTree], key: PRNGKey) -> PyTree:
            return project_conflicts(list(gradients.values()), key)

        combine = without_conflicts if self.gradient_surgery else None
        return Objective(loss, progress="positions_per_token", combine=combine)

    def evaluators(self) -> Mapping[str, type[Evaluator]]:
        return {"validation": Validation}

    def commands(self) -> Mapping[str, type[Command]]:
        return {"predict": Predict, "embed": Embed, "attention": PairAttention, "export": Export}

    def functions(self, model: nn.Module | None = None) -> Mapping[str, Callable[..., Any]]:
        return {"predict": predict, "embed": embed, "attend": attend}

    def warm_ups(self) -> Mapping[str, Callable[..., None]]:
        return {"predict": warm_up, "embed": warm_up_embed}

    @classmethod
    def from_pretrained(cls, place: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A BERT of Transformers or sentence-transformers: similarity by the cosine of the texts' vectors. A model of
        text tasks that `jaxnlp export` wrote has its heads, unless tensors are ignored.

        Raises: PretrainedError, WeightsError as `load_pretrained`; also for modules of sentence-transformers after the
          pooling that this library does not support.
        """
        exported = None if ignore else exported_task(place)
        if exported is not None and isinstance(from_json(exported, Task), cls):
            return read_exported(place)
        found = load_pretrained(place, ignore=ignore)
        others = [kind for kind in found.modules_after_pooling if kind != "Normalize"]
        pooling: Any = found.pooling or "mean"
        if others or pooling not in get_args(Pooling):
            what = ", ".join(others) or f"pooling {pooling}"
            raise PretrainedError(f"{place} computes embeddings with {what}, which is not supported")
        max_length = min(found.max_length or found.config.max_positions, found.config.max_positions)
        parts = ((SIMILARITY, Labels("similarity", 2, highest=1.0)),)
        processor = TextProcessor(found.vocabulary, max_length, parts, found.embeddings)
        config = TextTasksConfig(encoder=found.config, pooling=pooling)
        task = cls(normalize_embeddings="Normalize" in found.modules_after_pooling)
        model = config.build(processor)
        params = {"encoder": found.params} | ({} if found.heads is None else {"heads": found.heads})
        params = jax.device_put(params, jax.local_devices()[0])
        return Trained(task, model, params, processor, name=str(place))


def _loss_kind(labels: Labels) -> MetricKind:
    similar = labels.kind == "similarity"
    return MetricKind("pairs", "squared error", "lower") if similar else MetricKind("examples", "nats", "lower")


def _losses(
    output: Array, targets: Array, loss_mask: Array, labels: Labels, label_smoothing: float
) -> tuple[Array, Array, Array, Array | None]:
    """Sums of the objective and of the plain loss, the number of rows, and which rows are right, except for
    similarities."""
    if labels.kind == "classification":
        classes = targets.astype(jnp.int32)
        found = cross_entropy(output, classes, loss_mask, label_smoothing=label_smoothing)
        return found.objective, found.nll, found.count, output.argmax(axis=-1) == classes
    if labels.kind == "paraphrase":
        losses, right = jax.nn.softplus(output) - targets * output, (output > 0.0) == (targets > 0.5)
    else:
        losses, right = jnp.square(output - targets / labels.highest), None
    loss = jnp.where(loss_mask, losses, 0.0).sum()
    return loss, loss, loss_mask.sum().astype(losses.dtype), right
