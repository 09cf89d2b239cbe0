"""Classification: one class for each input, whatever the model reads."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.corpus import Corpus, DataError, DataFacts, Split
from jaxnlp.models import ModelConfig
from jaxnlp.models.classifier import ClassifierConfig
from jaxnlp.ops.classification import balanced_weights, class_cross_entropy
from jaxnlp.tasks import Command, Evaluator, MetricKind, Objective, Task
from jaxnlp.tasks.classification import scores
from jaxnlp.tasks.classification.commands import AttentionRollout, Predict
from jaxnlp.tasks.classification.evaluators import Validation
from jaxnlp.typing import Array, Batch, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Predicts the class of an input, by cross-entropy.

    Batches hold what the model reads, `labels` [B] int, and `loss_mask` [B] bool; where inputs are mixed, also
    `other_labels` [B] int and `share` [B] float, the weight of the first label. Training logs the plain `loss`, the
    `objective`, and the accuracy with respect to the first label.
    """

    label_smoothing: float = 0.0
    """Share of each target's probability that is spread evenly over the classes in training."""
    focal_gamma: float = 0.0
    """Focal loss: the greater, the less weight examples have that are right already; 0 = cross-entropy."""
    balanced: bool = False
    """Weight classes by the inverse of their frequency in training, so that all weigh the same."""
    class_weights: tuple[float, ...] = ()
    """Weight of each class in training, in the order of their names; empty = 1 for all."""

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"task.label_smoothing must lie in [0, 1), got {self.label_smoothing}")
        if not 0.0 <= self.focal_gamma < math.inf:
            raise ValueError(f"task.focal_gamma must be finite and not negative, got {self.focal_gamma}")
        if not all(0.0 < weight < math.inf for weight in self.class_weights):
            raise ValueError(f"task.class_weights must be positive and finite, got {self.class_weights}")
        refuse_unread(self, [ReadWhen("class_weights", (), not self.balanced, "training without task.balanced")])

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        of = processor.counted
        loss = MetricKind(of, "nats", "lower")
        found = {"loss": loss, "objective": loss._replace(training_only=True), "accuracy": MetricKind(of)}
        if split.examples and split.scored:
            found |= scores.kinds(processor.classes, np.array([example.label for example in split.examples]), of)
        return found

    def check(self, model: ModelConfig, data: DataFacts) -> None:
        if not isinstance(model, ClassifierConfig):
            raise ValueError(f"classification needs a ClassifierConfig, got model {type(model).__name__}")

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        assert isinstance(model, ClassifierConfig)
        try:
            model.check_processor(corpus.processor)
        except ValueError as error:
            raise DataError(str(error)) from error
        if self.balanced and corpus.token_counts is None:
            raise DataError("task.balanced needs to know how often each class occurs, and this data set does not count")
        classes = corpus.processor.classes
        if self.class_weights and len(self.class_weights) != len(classes):
            raise DataError(
                f"task.class_weights needs a weight for each of {len(classes)} classes, {', '.join(classes[:10])}, got "
                f"{len(self.class_weights)}"
            )

    def build(self, model: ModelConfig, processor: Any) -> tuple[nn.Module, tuple[jax.ShapeDtypeStruct, ...]]:
        assert isinstance(model, ClassifierConfig)
        return model.build_classifier(processor), model.shapes(processor)

    def begin(self, model: Any, corpus: Corpus) -> Params:
        try:
            return model.config.initial_params(corpus.processor)
        except ValueError as error:
            raise DataError(str(error)) from error

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        weights = self._weights(corpus)
        inputs = model.config.inputs

        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            logits = model.apply(
                {"params": params},
                *(batch[name] for name in inputs),
                deterministic=key is None,
                rngs=None if key is None else {"dropout": key},
            )
            training = key is not None
            found = class_cross_entropy(
                logits,
                _targets(batch, logits.shape[1]),
                batch["loss_mask"],
                class_weights=weights if training else None,
                label_smoothing=self.label_smoothing if training else 0.0,
                focal_gamma=self.focal_gamma if training else 0.0,
            )
            right = ((logits.argmax(axis=1) == batch["labels"]) & batch["loss_mask"]).sum().astype(found.nll.dtype)
            metrics = {"loss": (found.nll, found.count), "accuracy": (right, found.count)}
            if training:
                metrics["objective"] = (found.objective, found.weight)
            return found.objective / jnp.maximum(found.weight, 1e-12), (metrics, carry)

        return Objective(loss)

    def _weights(self, corpus: Corpus | None) -> Array | None:
        if self.balanced and corpus is not None:  # a file is scored without weights
            return balanced_weights(jnp.asarray(corpus.token_counts))
        return jnp.asarray(self.class_weights, jnp.float32) if self.class_weights else None

    def evaluators(self) -> Mapping[str, type[Evaluator]]:
        return {"validation": Validation}

    def commands(self) -> Mapping[str, type[Command]]:
        return {"predict": Predict, "attention": AttentionRollout}


def _targets(batch: Batch, classes: int) -> Array:
    """The labels [B], or where inputs are mixed the shares of both labels [B, C]."""
    if "other_labels" not in batch:
        return batch["labels"]
    share = batch["share"][:, None]
    first, other = (jax.nn.one_hot(batch[name], classes) for name in ("labels", "other_labels"))
    return share * first + (1.0 - share) * other
