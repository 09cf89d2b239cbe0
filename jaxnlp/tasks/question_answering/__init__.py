"""Question answering by a language model over characters: `question MASK answer MASK`, scored on the answer."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxnlp.corpus import Split
from jaxnlp.tasks import Method, MetricKind
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.tasks.question_answering.commands import Predict, ask, warm_up_ask
from jaxnlp.tasks.question_answering.evaluators import ConstantAnswer, Validation
from jaxnlp.typing import Batch, Metrics


@dataclasses.dataclass(frozen=True)
class QuestionAnswering(LanguageModel):
    """Language modelling of the answers' characters, validated by the share of exactly right answers.

    Source: CS224N assignment 5.
    """

    model_types = ()
    evaluators = {"validation": Validation, "constant_answer": ConstantAnswer}
    commands = {**LanguageModel.commands, "predict": Predict}
    methods = {**LanguageModel.methods, "ask": Method(ask, warm_up_ask)}

    _progress = "positions_per_token"

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        declared = {**super().metrics(processor, split)}
        del declared["perplexity"]  # its evaluator measures exact matches
        if split.scored and len(split.examples):
            declared["exact_match"] = MetricKind("questions")
        title = f"positions per {processor.unit.removesuffix('s')}"
        padding = MetricKind(processor.unit, "positions", "lower", training_only=True, title=title)
        return declared | {"positions_per_token": padding}

    def _more_metrics(self, batch: Batch) -> Metrics:
        tokens = batch["tokens"]
        # Padding is PAD, id 0, on both sides.
        return {"positions_per_token": (jnp.asarray(tokens.size, jnp.float32), (tokens != 0).sum(dtype=jnp.float32))}
