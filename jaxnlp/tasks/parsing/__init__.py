"""Dependency parsing: predicts a tree over the words of a sentence, by transitions or from the scores of all arcs."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxnlp.config import NonNegative, Rate
from jaxnlp.corpus import Corpus, DataConfig, Split
from jaxnlp.models import ModelConfig
from jaxnlp.models.graph_parser import GraphParserConfig
from jaxnlp.models.parser import ParserConfig
from jaxnlp.tasks import Method, MetricKind, Objective, Task, Trained
from jaxnlp.tasks.attention import Attention, attends
from jaxnlp.tasks.bert_verbs.exported import read_exported
from jaxnlp.tasks.bert_verbs.word_attention import attend
from jaxnlp.tasks.bert_verbs.word_export import ExportWords
from jaxnlp.tasks.parsing.commands import Parse, parse, warm_up
from jaxnlp.tasks.parsing.evaluators import Validation
from jaxnlp.tasks.parsing.objectives import graph_objective, transition_objective
from jaxnlp.tasks.parsing.parser import exports
from jaxnlp.tasks.parsing.scores import SCORES


@dataclasses.dataclass(frozen=True)
class Parsing(Task):
    """Predicts the oracle's transitions, or the head and the relation of each word, by cross-entropy.

    A parser by transitions is trained on the configurations of gold trees; illegal transitions have the probability 0.
    A graph parser is trained on gold heads and relations.

    Validation parses whole sentences: UAS and LAS are defined in `jaxnlp.tasks.parsing.scores`.
    """

    evaluators = {"validation": Validation}
    commands = {"parse": Parse, "attention": Attention, "export": ExportWords}
    methods = {"parse": Method(parse, warm_up), "attend": Method(attend, offered=attends)}

    l2: NonNegative = 0.0
    """L2 regularisation: half of this times the sum of all squared parameters, in training."""
    label_smoothing: Rate = 0.0
    """Share of each target's probability that training spreads evenly over the allowed transitions; 0 for graph
    parsers."""

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        graph = processor.system == "graph"
        loss = MetricKind("words" if graph else "transitions", "nats", "lower")
        metrics = {"loss": loss}
        if graph:
            metrics |= {"head_accuracy": MetricKind("words"), "relation_accuracy": MetricKind("words")}
        else:
            metrics |= {"loss_per_word": loss._replace(of="words"), "transition_accuracy": MetricKind("transitions")}
        if self.l2 or self.label_smoothing:
            metrics["objective"] = loss._replace(training_only=True)
        if split.examples and split.scored:
            metrics |= {name: MetricKind("words", title=title) for name, title in SCORES.items()}
            metrics["exact_match"] = MetricKind("sentences")
        return metrics

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, ParserConfig | GraphParserConfig):
            raise ValueError(f"parsing needs a ParserConfig or GraphParserConfig, got model {type(model).__name__}")
        if self.label_smoothing and isinstance(model, GraphParserConfig):
            raise ValueError("task.label_smoothing is for parsers by transitions; leave it out for a graph parser")

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        if isinstance(model.config, GraphParserConfig):
            return graph_objective(model, l2=self.l2)
        return transition_objective(model, l2=self.l2, label_smoothing=self.label_smoothing)

    exports = staticmethod(exports)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A parser that `jaxnlp export` wrote. Raises: ValueError for other weights, and for tensors to ignore."""
        return read_exported(path, ignore=ignore)
