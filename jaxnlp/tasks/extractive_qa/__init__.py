"""Extractive question answering: the answer is a span of a context, or the context has none.

Sources: Rajpurkar et al. 2016 and 2018 for the task; Devlin et al. 2019, sections 4.2 and 4.3, for the loss.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from jaxnlp.config import Count, Finite
from jaxnlp.corpus import Corpus, DataConfig, Split
from jaxnlp.models import ModelConfig
from jaxnlp.models.extractive_qa import AnswerSpanConfig
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.tasks import Method, MetricKind, Objective, Task, Trained, forward
from jaxnlp.tasks.attention import attends
from jaxnlp.tasks.bert_verbs.commands import PairAttention
from jaxnlp.tasks.bert_verbs.encodings import attend
from jaxnlp.tasks.extractive_qa.answers import ask, exports, warm_up_ask
from jaxnlp.tasks.extractive_qa.commands import Ask
from jaxnlp.tasks.extractive_qa.evaluators import Threshold, Validation
from jaxnlp.tasks.extractive_qa.export import CLASSES, ExportSpans, from_pretrained
from jaxnlp.typing import Batch, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True)
class ExtractiveQA(Task):
    """The mean of two cross-entropies in nats: of the answer's first token, and of its last one.

    Batches are those of `jaxnlp.text.question_contexts`. A window without the answer has [CLS] as both tokens.
    """

    model_types = tuple(CLASSES)
    evaluators = {"validation": Validation, "threshold": Threshold}
    commands = {"ask": Ask, "attention": PairAttention, "export": ExportSpans}
    methods = {"ask": Method(ask, warm_up_ask), "attend": Method(attend, offered=attends)}

    max_answer_tokens: Count = 30
    """Maximum length of an answer in tokens."""
    no_answer_threshold: Finite = 0.0
    """A question has no answer if no answer's log-probability exceeds the best answer's by more than this. `evaluate
    RUN threshold` finds the best one."""

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        del processor
        declared = {"loss": MetricKind("windows", "nats", "lower")}
        if not split.scored or not split.examples:
            return declared
        declared |= {"exact_match": MetricKind("questions"), "f1": MetricKind("questions", title="F1")}
        if len({bool(one.answers) for one in split.examples}) == 2:
            declared["answerable/f1"] = MetricKind("questions with an answer", title="F1, with an answer")
            declared["unanswerable/accuracy"] = MetricKind(
                "questions without an answer", title="accuracy, without an answer"
            )
        return declared

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if not isinstance(model, AnswerSpanConfig):
            raise ValueError(f"extractive question answering needs an AnswerSpanConfig, got {type(model).__name__}")

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            scores = forward(model, params, key, *(batch[name] for name in model.config.reads))
            scores = jnp.where(batch["answer_mask"], scores, jnp.finfo(scores.dtype).min).swapaxes(1, 2)
            losses = cross_entropy(scores, batch["span"], jnp.repeat(batch["loss_mask"][:, None], 2, axis=1))
            count = losses.count / 2
            return losses.nll / jnp.maximum(losses.count, 1.0), ({"loss": (losses.nll / 2, count)}, carry)

        return Objective(loss)

    exports = staticmethod(exports)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A BertForQuestionAnswering of Transformers, or a model that `jaxnlp export` wrote.

        Raises: PretrainedError, WeightsError as `jaxnlp.convert.read_pretrained`.
        """
        return from_pretrained(cls(), path, ignore=ignore)
