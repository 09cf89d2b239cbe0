"""Tagging: predicts a label for each word of a sentence, such as its named entity or its part of speech."""

import dataclasses
import functools
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from jaxnlp.convert import exported_task, pretrained_types
from jaxnlp.corpus import Corpus, DataConfig, Split
from jaxnlp.models import ModelConfig
from jaxnlp.models.tagger import LabelScores, TaggerConfig, by_part
from jaxnlp.ops.crf import crf_log_likelihood
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.targets import of_part
from jaxnlp.tasks import Method, MetricKind, Objective, Task, Trained, forward
from jaxnlp.tasks.attention import Attention, attends
from jaxnlp.tasks.bert_verbs.exported import read_exported
from jaxnlp.tasks.bert_verbs.word_attention import attend
from jaxnlp.tasks.bert_verbs.word_export import ExportWords
from jaxnlp.tasks.tagging import scores
from jaxnlp.tasks.tagging.commands import Predict, tag
from jaxnlp.tasks.tagging.evaluators import Validation
from jaxnlp.tasks.tagging.inference import exports, warm_up
from jaxnlp.tasks.tagging.pretrained import CLASSES, tagger_of_transformers
from jaxnlp.typing import Array, Batch, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True)
class Tagging(Task):
    """Predicts the labels of words; trained with the likelihood of a CRF or with cross-entropy.

    Batches contain the inputs of the model, `labels` [B, T] int and `loss_mask` [B, T] bool. The loss is the negative
    log-likelihood of the labels of all sentences, divided by the number of words.

    Several kinds of tags have `upos/labels` and so on. Their losses are added, and `accuracy` is the share of words
    with all tags right. A sentence with an unknown tag counts in the scores, but not in the loss.
    """

    model_types = tuple(CLASSES)
    evaluators = {"validation": Validation}
    commands = {"predict": Predict, "attention": Attention, "export": ExportWords}
    methods = {"tag": Method(tag, warm_up), "attend": Method(attend, offered=attends)}

    constrained: bool = True
    """Predict only sequences of labels that the scheme allows, such as I-PER only within an entity."""

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        loss, scored = MetricKind("words", "nats", "lower"), bool(split.examples and split.scored)
        metrics = {"loss": loss} | ({"accuracy": MetricKind("words")} if scored else {})
        for name, one in processor.by_part.items():
            kinds = {"loss": loss} | (scores.kinds(one) if scored else {})
            for metric, kind in kinds.items():
                title = f"{name} {kind.title}" if name and kind.title else kind.title
                metrics[of_part(name, metric)] = kind._replace(title=title)
        return metrics

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, TaggerConfig):
            raise ValueError(f"tagging needs a TaggerConfig, got model {type(model).__name__}")
        if getattr(data, "context", 0) and not model.bert:
            raise ValueError("only a BERT reads data.context: set model.bert, or data.context 0")

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        config = model.config

        def nll_of(output: LabelScores, labels: Array, mask: Array) -> Array:
            if config.crf:
                return -crf_log_likelihood(output.scores, labels, mask.sum(axis=1), output.chain).sum()
            return cross_entropy(output.scores, labels, mask).objective

        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            output = forward(model, params, key, *(batch[name] for name in config.reads))
            outputs, mask = by_part(output), batch["loss_mask"]
            labels = {name: batch[of_part(name, "labels")] for name in outputs}
            for name in filter(None, labels):
                mask = mask & (labels[name] >= 0).all(axis=1, keepdims=True)
                labels[name] = jnp.maximum(labels[name], 0)
            nlls = {name: nll_of(one, labels[name], mask) for name, one in outputs.items()}
            count = mask.sum(dtype=jnp.float32)
            nll = functools.reduce(operator.add, nlls.values())
            metrics = {of_part(name, "loss"): (one, count) for name, one in nlls.items()}
            return nll / jnp.maximum(count, 1.0), (metrics | {"loss": (nll, count)}, carry)

        return Objective(loss)

    exports = staticmethod(exports)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A tagger that `jaxnlp export` wrote; or one that Transformers trained, which gives each word its best label,
        as there.

        Raises: ValueError for other weights, and for tensors to ignore.
        """
        if exported_task(path) is None and not ignore and pretrained_types(path)[0] in CLASSES:
            return tagger_of_transformers(cls(constrained=False), path)
        return read_exported(path, ignore=ignore)
