"""Classification of any inputs: one class, any number of classes, or a number; of one part of the data, or several."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxnlp.config import NonNegative, Positive, Rate
from jaxnlp.convert import exported_task, image_encoders, pretrained_types
from jaxnlp.convert.encoders import families
from jaxnlp.convert.pretrained_encoder import OF_TEXTS
from jaxnlp.convert.pretrained_image_encoder import read_image_encoder
from jaxnlp.corpus import Corpus, DataConfig, DataError, Split
from jaxnlp.models import ModelConfig
from jaxnlp.models.classifier import ClassifierConfig
from jaxnlp.ops.classification import balanced_weights
from jaxnlp.ops.gradient_surgery import project_conflicts
from jaxnlp.saving.serialization import from_json
from jaxnlp.targets import of_part
from jaxnlp.tasks import Method, MetricKind, Objective, Task, Trained, forward, pretrained_model
from jaxnlp.tasks.attention import attends
from jaxnlp.tasks.bert_verbs.encodings import has_bert
from jaxnlp.tasks.bert_verbs.exported import read_exported
from jaxnlp.tasks.classification.attention import attend
from jaxnlp.tasks.classification.commands import Predict, PredictionAttention
from jaxnlp.tasks.classification.decoders import decoder_classes, decoder_classifier_of_transformers
from jaxnlp.tasks.classification.ensemble import Ensemble
from jaxnlp.tasks.classification.evaluators import Validation, measures_of
from jaxnlp.tasks.classification.export import exports
from jaxnlp.tasks.classification.export_command import ExportClassifier
from jaxnlp.tasks.classification.predict import predict, warm_up
from jaxnlp.tasks.classification.pretrained import classifier_of_transformers, encoder_of_similarity
from jaxnlp.tasks.classification.threshold import ChooseThreshold
from jaxnlp.tasks.classification.vectors import EmbedInputs, embed, of_images
from jaxnlp.tasks.classification.vectors import warm_up as warm_up_embed
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree

CLASSIFIERS = OF_TEXTS.classes()
"""Classes of Transformers whose heads this task reads, and their families."""
DECODERS = decoder_classes()
"""Classes with a decoder."""


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Predicts the class of an input, by cross-entropy; or several classes, or a number, if the data has these.

    Batches have the model's inputs, `loss_mask` [B] bool, and `labels`: ids [B] int, with `class_cross_entropy`;
    several classes as 0 and 1 [B, C] float, with `several_cross_entropy`; or scaled numbers [B] float, with the squared
    error. Mixed inputs also have `other_labels` [B] int and `share` [B] float, the weight of the first label. Training
    logs `loss` and `objective`, and for one class the accuracy of the first label.

    With named parts, a batch has examples of one part, and labels and metrics have its name: `sst/labels`. Training
    then logs no plain `loss`, which would depend on the order of the batches.
    """

    model_types = (*families(), *CLASSIFIERS, *DECODERS, *image_encoders.families())
    evaluators = {"validation": Validation, "threshold": ChooseThreshold, "ensemble": Ensemble}
    commands = {"predict": Predict, "attention": PredictionAttention, "embed": EmbedInputs, "export": ExportClassifier}
    methods = {
        "predict": Method(predict, warm_up),
        "embed": Method(embed, warm_up_embed, lambda model: has_bert(model) or of_images(model)),
        "attend": Method(attend, offered=attends),
    }

    label_smoothing: Rate = 0.0
    """Share of each target's probability that is spread evenly over the classes in training."""
    focal_gamma: NonNegative = 0.0
    """Focal loss: larger values give less weight to examples that are already right; 0 = cross-entropy."""
    balanced: bool = False
    """Weight classes by the inverse of their frequency in training."""
    class_weights: tuple[Positive, ...] = ()
    """Weight of each class in training, in the order of their names; empty = 1 for all."""
    part_weights: tuple[Positive, ...] = ()
    """Weight of each part's loss, in the order of data.parts; empty = 1 for all."""
    part_label_smoothing: tuple[Rate, ...] = ()
    """Label smoothing of each part, in the order of data.parts; empty = task.label_smoothing for all."""
    gradient_surgery: bool = False
    """Remove conflicts between the gradients of parts by projection (PCGrad). Each step needs a batch of every part."""

    def __post_init__(self):
        super().__post_init__()
        self.only_if(not self.balanced, "training without task.balanced", "class_weights")
        self.only_if(not self.part_label_smoothing, "training without it for each part", "label_smoothing")

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        metrics, losses = dict[str, MetricKind](), list[MetricKind]()
        for name, one in processor.by_part.items():
            of, measures = one.counted, measures_of(one.targets)
            kinds = measures.loss_kinds(of)
            losses.append(kinds["loss"])
            part = split.parts.get(name, Split()) if name else split
            if part.examples and part.scored:
                kinds |= measures.kinds(one.targets.values([example.label for example in part.examples]), of)
            for metric, kind in kinds.items():
                title = f"{name} {kind.title}" if name and kind.title else kind.title
                metrics[of_part(name, metric)] = kind._replace(title=title)
        if "" not in processor.by_part and split.scored:
            metrics["mean_score"] = MetricKind("examples")
        units = " and ".join(dict.fromkeys(loss.unit for loss in losses))
        loss = losses[0] if len(losses) == 1 else MetricKind("examples", units, "lower")
        weighted = self._is_regularised or "" not in processor.by_part
        return metrics | {"loss": loss} | ({"objective": loss._replace(training_only=True)} if weighted else {})

    @property
    def _is_regularised(self) -> bool:
        smoothed = self.label_smoothing or any(self.part_label_smoothing) or self.focal_gamma
        return bool(smoothed or self.balanced or self.class_weights)

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, ClassifierConfig):
            raise ValueError(f"classification needs a ClassifierConfig, got model {type(model).__name__}")
        for name in ("part_weights", "part_label_smoothing"):
            values = getattr(self, name)
            if values and len(values) != len(data.parts):
                parts = ", ".join(data.parts) or "none"
                raise ValueError(f"task.{name} needs a value for each of data.parts, {parts}; got {values}")
        if self.gradient_surgery and (not data.joint or len(data.parts) < 2):
            raise ValueError(
                "task.gradient_surgery needs a batch of each of several parts in a step; set data.schedule together "
                f"and several data.parts, got {', '.join(data.parts) or 'none'}"
            )

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        parts = [one.targets for one in corpus.processor.by_part.values()]
        options = {option for targets in parts for option in measures_of(targets).options}
        for name in ("label_smoothing", "part_label_smoothing", "focal_gamma", "balanced", "class_weights"):
            if any(np.ravel(getattr(self, name))) and name.removeprefix("part_") not in options:
                what = "one class for each example" if name == "balanced" else "classes"
                usual = getattr(type(self), name)
                raise DataError(f"task.{name} applies only to {what}, which this data does not have; set it to {usual}")
        if (self.balanced or self.class_weights) and len(parts) > 1:
            raise DataError("task.balanced and task.class_weights apply only to data of one part; remove them")
        if self.balanced and corpus.token_counts is None:
            raise DataError("task.balanced needs the counts of the classes, which this data set does not have")
        if self.class_weights and len(self.class_weights) != len(parts[0].names):
            raise DataError(
                f"task.class_weights needs a weight for each of {len(parts[0].names)} classes, "
                f"{', '.join(parts[0].names[:10])}, got {len(self.class_weights)}"
            )

    def weights_of(self, processor: Any) -> dict[str, float]:
        """The weight of each part's loss, by name."""
        names = processor.by_part
        return dict(zip(names, self.part_weights or [1.0] * len(names), strict=True))

    def objective(self, model: Any, corpus: Corpus) -> Objective:
        by_part, class_weights = corpus.processor.by_part, self._class_weights(corpus)
        weights, rates = (
            self.weights_of(corpus.processor),
            self.part_label_smoothing or [self.label_smoothing] * len(by_part),
        )
        smoothing = dict(zip(by_part, rates, strict=True))
        parts = {of_part(name, "labels"): (name, measures_of(one.targets)) for name, one in by_part.items()}

        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            (labels,) = batch.keys() & parts.keys()
            name, measures = parts[labels]
            inputs = (batch[array] for array in model.config.reads)
            outputs = forward(model, params, key, *inputs, **({"part": name} if name else {}))
            options: dict[str, Any] = {}
            if key is not None:
                options = {"class_weights": class_weights, "focal_gamma": self.focal_gamma}
                options["label_smoothing"] = smoothing[name]
            losses, further = measures.loss(outputs, batch[labels], batch, **options)
            metrics: Metrics = {"loss": (losses.nll, losses.count), **further}
            metrics = {of_part(name, metric): pair for metric, pair in metrics.items()}
            if name or (key is not None and self._is_regularised):
                metrics["objective"] = (weights[name] * losses.objective, losses.weight)
            return weights[name] * losses.objective / jnp.maximum(losses.weight, 1e-12), (metrics, carry)

        def without_conflicts(gradients: Mapping[str, PyTree], key: PRNGKey) -> PyTree:
            return project_conflicts(list(gradients.values()), key)

        return Objective(
            loss,
            progress="loss" if "" in by_part else "objective",
            combine=without_conflicts if self.gradient_surgery else None,
        )

    def _class_weights(self, corpus: Corpus) -> Array | None:
        if self.balanced and corpus.token_counts is not None:  # a file is scored without weights
            return balanced_weights(jnp.asarray(corpus.token_counts))
        return jnp.asarray(self.class_weights, jnp.float32) if self.class_weights else None

    exports = staticmethod(exports)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A classifier of texts or images, or an encoder for the cosine similarity of two texts, from Transformers,
        sentence-transformers or `jaxnlp export`. With tensors to ignore, a classifier is read as an encoder.

        Raises: PretrainedError, WeightsError as `jaxnlp.convert.read_pretrained` and `read_image_encoder`.
        """
        exported = None if ignore else exported_task(path)
        if exported is not None and isinstance(from_json(exported, Task), cls):
            return read_exported(path)
        kinds = [] if exported is not None else pretrained_types(path)
        if kinds and kinds[-1] in image_encoders.families():
            config, params, processor = read_image_encoder(path, ignore=ignore)
            return pretrained_model(cls(), config, params, processor, str(path))
        if kinds and kinds[0] in CLASSIFIERS and not ignore:
            return classifier_of_transformers(cls(), path, CLASSIFIERS[kinds[0]])
        if kinds and kinds[0] in DECODERS and not ignore:
            return decoder_classifier_of_transformers(cls(), path)
        return encoder_of_similarity(cls(), path, ignore=ignore)
