"""Transition-based dependency parsing: predicts a tree over the words of a sentence; scored by UAS and LAS."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import NonNegative, Rate
from jaxnlp.corpus import Corpus, DataConfig, Split
from jaxnlp.inference.exportable import Exportable
from jaxnlp.models import ModelConfig
from jaxnlp.models.parser import ParserConfig
from jaxnlp.ops.transitions import legal_transitions, node_labels
from jaxnlp.tasks import Command, Evaluator, MetricKind, Objective, Task, Trained
from jaxnlp.tasks.attention import Attention
from jaxnlp.tasks.bert_verbs.exported import read_exported
from jaxnlp.tasks.bert_verbs.word_attention import attends
from jaxnlp.tasks.bert_verbs.word_export import ExportWords
from jaxnlp.tasks.parsing.commands import Parse, attend, parse, warm_up
from jaxnlp.tasks.parsing.evaluators import Validation
from jaxnlp.tasks.parsing.parser import exports
from jaxnlp.tasks.parsing.scores import SCORES
from jaxnlp.typing import Batch, Metrics, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True)
class Parsing(Task):
    """Predicts the oracle's transition in each configuration of gold trees, by cross-entropy.

    Transitions that are not allowed have the probability 0. Validation parses whole sentences: UAS is the share of
    words with the right head, and LAS the share of words with the right head and relation. The CoNLL 2018 shared task
    defines both on gold words. Punctuation counts, and relations are compared without their subtypes.
    """

    l2: NonNegative = 0.0
    """L2 regularisation: add half of this times the sum of all squared parameters to the training loss."""
    label_smoothing: Rate = 0.0
    """Share of each target's probability that training spreads evenly over the allowed transitions."""

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        loss = MetricKind("transitions", "nats", "lower")
        metrics = {"loss": loss, "loss_per_word": loss._replace(of="words")}
        metrics["transition_accuracy"] = MetricKind("transitions")
        if self.l2 or self.label_smoothing:
            metrics["objective"] = loss._replace(training_only=True)
        if split.examples and split.scored:
            metrics |= {name: MetricKind("words", title=title) for name, title in SCORES.items()}
            metrics["exact_match"] = MetricKind("sentences")
        return metrics

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, ParserConfig):
            raise ValueError(f"parsing needs a ParserConfig, got model {type(model).__name__}")

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        relations = model.num_relations

        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            labels = jax.vmap(lambda nodes, relation_ids: node_labels(nodes, relation_ids, relations))(
                batch["nodes"], batch["relations"]
            )
            logits = model.apply(
                {"params": params},
                batch["nodes"],
                labels,
                *(batch[name] for name in model.config.reads),
                deterministic=key is None,
                rngs=None if key is None else {"dropout": key},
            )
            legal = legal_transitions(batch["legal"], relations)
            mask = batch["loss_mask"]
            # A finite number: with -inf, the gradients at padding would be NaN.
            allowed = jnp.where(legal, logits, jnp.finfo(logits.dtype).min / 2)
            logprobs = jax.nn.log_softmax(allowed, axis=-1)
            gold = jnp.take_along_axis(logprobs, batch["transitions"][:, :, None], axis=-1)[:, :, 0]
            count = mask.sum(dtype=jnp.float32)
            nll = -jnp.where(mask, gold, 0.0).sum()
            right = ((allowed.argmax(axis=-1) == batch["transitions"]) & mask).sum(dtype=jnp.float32)
            words = batch["word_mask"].sum(dtype=jnp.float32)
            metrics: Metrics = {"loss": (nll, count), "loss_per_word": (nll, words)}
            metrics["transition_accuracy"] = (right, count)
            total = nll
            if key is not None and self.label_smoothing:
                spread = jnp.where(legal, logprobs, 0.0).sum(axis=-1) / legal.sum(axis=-1)
                spread = -jnp.where(mask, spread, 0.0).sum()
                total = (1.0 - self.label_smoothing) * nll + self.label_smoothing * spread
            scalar = total / jnp.maximum(count, 1.0)
            if key is not None and self.l2:
                scalar += 0.5 * self.l2 * sum(jnp.square(x).sum() for x in jax.tree.leaves(params))
            if key is not None and (self.l2 or self.label_smoothing):
                metrics["objective"] = (scalar * count, count)
            return scalar, (metrics, carry)

        return Objective(loss, progress="loss_per_word")

    def evaluators(self) -> Mapping[str, type[Evaluator]]:
        return {"validation": Validation}

    def commands(self) -> Mapping[str, type[Command]]:
        return {"parse": Parse, "attention": Attention, "export": ExportWords}

    def functions(self, model: nn.Module | None = None) -> Mapping[str, Callable[..., Any]]:
        return {"parse": parse} | ({"attend": attend} if model is None or attends(model) else {})

    def warm_ups(self) -> Mapping[str, Callable[..., None]]:
        return {"parse": warm_up}

    def exports(self, trained: Trained) -> Mapping[str, Exportable]:
        return exports(trained)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A parser that `jaxnlp export` wrote. Raises: ValueError for other weights, and for tensors to ignore."""
        return read_exported(path, ignore=ignore)
