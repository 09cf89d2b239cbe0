"""Classification of any inputs: one class, any number of classes, or a number."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.corpus import Corpus, DataConfig, DataError, Split
from jaxnlp.models import ModelConfig
from jaxnlp.models.classifier import ClassifierConfig
from jaxnlp.ops.classification import balanced_weights, class_cross_entropy, several_cross_entropy, squared_error
from jaxnlp.targets import Scale
from jaxnlp.tasks import Command, Evaluator, MetricKind, Objective, Task, Trained
from jaxnlp.tasks.bert_verbs.commands import Embed, Export
from jaxnlp.tasks.bert_verbs.encodings import embed, has_bert, warm_up_embed
from jaxnlp.tasks.bert_verbs.exported import read_exported
from jaxnlp.tasks.classification.attention import attend, attends
from jaxnlp.tasks.classification.commands import Attention, Predict
from jaxnlp.tasks.classification.evaluators import Validation, label_array, measures
from jaxnlp.tasks.classification.predict import predict, warm_up
from jaxnlp.tasks.classification.threshold import ChooseThreshold
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Predicts the class of an input, by cross-entropy; or several classes, or a number, if the data has these.

    Batches have the model's inputs, `loss_mask` [B] bool, and `labels`: the ids of classes [B] int, with the loss
    `class_cross_entropy`; any number of classes as 0 and 1 [B, C] float, with `several_cross_entropy`; or numbers on
    their scale [B] float, with the squared error. Mixed inputs also have `other_labels` [B] int and `share` [B] float,
    the weight of the first label. Training logs the plain `loss`, the `objective`, and the accuracy with respect to the
    first label.
    """

    label_smoothing: float = 0.0
    """Share of each target's probability that is spread evenly over the classes in training."""
    focal_gamma: float = 0.0
    """Focal loss: larger values give less weight to examples that are already right; 0 = cross-entropy."""
    balanced: bool = False
    """Weight classes by the inverse of their frequency in training."""
    class_weights: tuple[float, ...] = ()
    """Weight of each class in training, in the order of their names; empty = 1 for all."""

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"task.label_smoothing must be in [0, 1), got {self.label_smoothing}")
        if not 0.0 <= self.focal_gamma < math.inf:
            raise ValueError(f"task.focal_gamma must be finite and not negative, got {self.focal_gamma}")
        if not all(0.0 < weight < math.inf for weight in self.class_weights):
            raise ValueError(f"task.class_weights must be positive and finite, got {self.class_weights}")
        refuse_unread(self, [ReadWhen("class_weights", (), not self.balanced, "training without task.balanced")])

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        of, targets = processor.counted, processor.targets
        loss = MetricKind(of, "squared error" if isinstance(targets, Scale) else "nats", "lower")
        found = {"loss": loss, "objective": loss._replace(training_only=True)}
        if targets.one_class:
            found["accuracy"] = MetricKind(of)
        if split.examples and split.scored:
            found |= measures(targets).kinds(targets.names, label_array(targets, split.examples), of)
        return found

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, ClassifierConfig):
            raise ValueError(f"classification needs a ClassifierConfig, got model {type(model).__name__}")

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        assert isinstance(model, ClassifierConfig)
        targets = corpus.processor.targets
        if isinstance(targets, Scale):
            self._refuse(
                ("label_smoothing", "focal_gamma", "balanced", "class_weights"), "classes, and labels are numbers"
            )
        elif targets.several:
            self._refuse(("balanced",), "one class for each example; give task.class_weights")
        if self.balanced and corpus.token_counts is None:
            raise DataError("task.balanced needs the counts of the classes, which this data set does not have")
        if self.class_weights and len(self.class_weights) != len(targets.names):
            raise DataError(
                f"task.class_weights needs a weight for each of {len(targets.names)} classes, "
                f"{', '.join(targets.names[:10])}, got {len(self.class_weights)}"
            )

    def _refuse(self, names: tuple[str, ...], applies_to: str) -> None:
        """Raises DataError for options that do not apply to this data."""
        for name in names:
            if getattr(self, name):
                raise DataError(f"task.{name} applies only to {applies_to}")

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        weights = self._weights(corpus)
        reads = model.config.reads

        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            logits = model.apply(
                {"params": params},
                *(batch[name] for name in reads),
                deterministic=key is None,
                rngs=None if key is None else {"dropout": key},
            )
            training = key is not None
            labels, loss_mask = batch["labels"], batch["loss_mask"]
            options: dict[str, Any] = {}
            if training:
                smoothing, gamma = self.label_smoothing, self.focal_gamma
                options = {"class_weights": weights, "label_smoothing": smoothing, "focal_gamma": gamma}
            metrics: Metrics = {}
            if labels.ndim == 2:
                found = several_cross_entropy(logits, labels, loss_mask, **options)
            elif jnp.issubdtype(labels.dtype, jnp.floating):
                found = squared_error(logits, labels, loss_mask)
            else:
                found = class_cross_entropy(logits, _shares(batch, logits.shape[1]), loss_mask, **options)
                right = ((logits.argmax(axis=1) == labels) & loss_mask).sum().astype(found.nll.dtype)
                metrics["accuracy"] = (right, found.count)
            metrics["loss"] = (found.nll, found.count)
            if training:
                metrics["objective"] = (found.objective, found.weight)
            return found.objective / jnp.maximum(found.weight, 1e-12), (metrics, carry)

        return Objective(loss)

    def _weights(self, corpus: Corpus | None) -> Array | None:
        if self.balanced and corpus is not None:  # a file is scored without weights
            return balanced_weights(jnp.asarray(corpus.token_counts))
        return jnp.asarray(self.class_weights, jnp.float32) if self.class_weights else None

    def evaluators(self) -> Mapping[str, type[Evaluator]]:
        return {"validation": Validation, "threshold": ChooseThreshold}

    def commands(self) -> Mapping[str, type[Command]]:
        return {"predict": Predict, "attention": Attention, "embed": Embed, "export": Export}

    def functions(self, model: nn.Module | None = None) -> Mapping[str, Callable[..., Any]]:
        found: dict[str, Callable[..., Any]] = {"predict": predict}
        found |= {"embed": embed} if model is None or has_bert(model) else {}
        return found | ({"attend": attend} if model is None or attends(model) else {})

    def warm_ups(self) -> Mapping[str, Callable[..., None]]:
        return {"predict": warm_up, "embed": warm_up_embed}

    @classmethod
    def from_pretrained(cls, place: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A classifier that `jaxnlp export` wrote. Raises: ValueError for other weights, and for tensors to ignore."""
        return read_exported(place, ignore=ignore)


def _shares(batch: Batch, classes: int) -> Array:
    """The labels [B], or for mixed inputs the shares of both labels [B, C]."""
    if "other_labels" not in batch:
        return batch["labels"]
    share = batch["share"][:, None]
    first, other = (jax.nn.one_hot(batch[name], classes) for name in ("labels", "other_labels"))
    return share * first + (1.0 - share) * other
