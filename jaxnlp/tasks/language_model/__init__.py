"""Language modelling: predict each token from the previous ones. Recurrent models carry states between batches."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.config import Count, Natural, NonNegative, Rate
from jaxnlp.convert.decoders import families
from jaxnlp.convert.pretrained_decoder import read_decoder
from jaxnlp.corpus import Corpus, DataConfig, DataError, Split
from jaxnlp.decoding.generation import decoder_of
from jaxnlp.inference.exportable import Exportable
from jaxnlp.models import ModelConfig
from jaxnlp.models.recurrent import RecurrentModelConfig
from jaxnlp.ops.losses import TokenLosses, cross_entropy, linear_cross_entropy
from jaxnlp.ops.sampled_softmax import sampled_cross_entropy
from jaxnlp.tasks import Method, MetricKind, Objective, Task, Trained, forward, pretrained_model
from jaxnlp.tasks.attention import Attention, attends
from jaxnlp.tasks.export.decoders import read_and_step
from jaxnlp.tasks.language_model.attention import attend
from jaxnlp.tasks.language_model.commands import Generate, generate, warm_up
from jaxnlp.tasks.language_model.dynamic_evaluation import DynamicPerplexity
from jaxnlp.tasks.language_model.evaluators import (
    Continuations,
    NextWord,
    Perplexity,
    RecurrentValidation,
    Validation,
)
from jaxnlp.tasks.language_model.export_command import ExportDecoder
from jaxnlp.tasks.language_model.prompts import check_prompt
from jaxnlp.tasks.language_model.text_scores import Perplexity as PerplexityOfTexts
from jaxnlp.tasks.language_model.text_scores import perplexity, warm_up_perplexity
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree

_SAMPLE = 0x5A3
"""Separates the key of sampled tokens from the dropout keys that Linen derives from the same key."""


@dataclasses.dataclass(frozen=True)
class LanguageModel(Task):
    """Mean cross-entropy of each token given the previous ones, in nats per token.

    Batches have `tokens` [B, T] int, `targets` [B, T] int and `loss_mask` [B, T] bool: the mean is over True.
    """

    model_types = tuple(families())
    evaluators = {"validation": Validation}
    commands = {"generate": Generate, "perplexity": PerplexityOfTexts, "attention": Attention, "export": ExportDecoder}
    methods = {
        "generate": Method(generate, warm_up),
        "perplexity": Method(perplexity, warm_up_perplexity),
        "attend": Method(attend, offered=attends),
    }

    stateful: ClassVar[bool] = False
    """Whether a row continues from the final states of the previous batch."""

    label_smoothing: Rate = 0.0
    """Share of each target's probability that is spread evenly over the vocabulary in training."""
    z_loss: NonNegative = 0.0
    """Weight of the squared log normaliser in training, which keeps the normaliser near 1."""
    chunk_tokens: Count | None = None
    """Score N tokens at a time, so that the logits of all tokens never exist at once; None = all at once."""
    num_sampled: Count | None = None
    """Train on a sampled softmax with N sampled tokens; evaluation is exact. None = the full softmax."""
    num_frequent: Natural = 4_000
    """With num_sampled: always include the N most frequent tokens in the normaliser."""
    sample_prompt: str | None = None
    """Generate text from this prompt at each evaluation, for the report; None = no samples. A prompt with unknown
    tokens is replaced by the vocabulary's first token."""
    sample_tokens: Count = 200
    """Number of tokens in each sample."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_sampled is not None and (self.label_smoothing or self.z_loss):
            raise ValueError(
                "task.num_sampled estimates the plain cross-entropy; set task.label_smoothing and task.z_loss to 0"
            )
        self.only_if(self.num_sampled is not None, "a sampled softmax (task.num_sampled)", "num_frequent")

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        del split
        loss = MetricKind(processor.unit, "nats", "lower")
        metrics = {"loss": loss, "perplexity": MetricKind(processor.unit, "choices", "lower")}
        return metrics | ({"objective": loss._replace(training_only=True)} if self._is_regularised else {})

    @property
    def _is_regularised(self) -> bool:
        return bool(self.label_smoothing or self.z_loss)

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if data.parts:
            raise ValueError(f"a language model needs texts without labels, but the data has the parts {data.parts}")
        is_recurrent = isinstance(model, RecurrentModelConfig)
        if is_recurrent and not self.stateful and (self.chunk_tokens or self.num_sampled):
            raise ValueError(
                "task.chunk_tokens and task.num_sampled of a recurrent model need the task RecurrentLanguageModel"
            )
        if getattr(model, "logit_cap", None) is not None and (self.chunk_tokens or self.num_sampled):
            raise ValueError("model.logit_cap needs all logits at once; remove task.chunk_tokens and task.num_sampled")
        if data.stateful and not self.stateful:
            raise ValueError(
                "rows of this data continue from batch to batch, but LanguageModel does not carry states; use the task "
                "RecurrentLanguageModel with a recurrent model, or data of separate windows"
            )

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        if self.num_sampled is not None and corpus.token_counts is None:
            raise DataError("task.num_sampled needs token counts, which this data set does not have")
        if self.sample_prompt is not None:
            check_prompt(self.sample_prompt, model.max_length, corpus.processor)

    def objective(self, model: nn.Module, corpus: Corpus | None) -> Objective:
        scorer = _LinearLosses(self, model, None if corpus is None else corpus.token_counts)
        whole = self.chunk_tokens is None and self.num_sampled is None
        extra: dict[str, Any] = {} if whole else {"return_hidden": True}

        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            y = forward(model, params, key, batch["tokens"], **extra)
            if whole:
                losses = cross_entropy(y, batch["targets"], batch["loss_mask"], **self._smoothing(key))
            else:
                losses = scorer(params, y, batch, key)
            return self._measured(losses, losses.objective, key, batch, carry)

        return Objective(loss, progress=self._progress)

    _progress = "loss"

    def _smoothing(self, key: PRNGKey | None) -> dict[str, Any]:
        return {} if key is None else {"label_smoothing": self.label_smoothing, "z_loss": self.z_loss}

    def _measured(
        self, losses: TokenLosses, objective: Array, key: PRNGKey | None, batch: Batch, carry: PyTree
    ) -> tuple[Array, tuple[Metrics, PyTree]]:
        """The scalar to minimise, and the metrics, from sums over a batch."""
        metrics: Metrics = {"loss": (losses.nll, losses.count)}
        if key is not None and self._is_regularised:
            metrics["objective"] = (objective, losses.count)
        return objective / jnp.maximum(losses.count, 1.0), (metrics | self._more_metrics(batch), carry)

    def _more_metrics(self, batch: Batch) -> Metrics:
        del batch
        return {}

    @staticmethod
    def exports(trained: Trained) -> Mapping[str, Exportable]:
        return read_and_step(decoder_of(trained.model))

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A decoder of Transformers. Raises: PretrainedError, WeightsError as `read_decoder`."""
        config, params, vocabulary = read_decoder(path, ignore=ignore)
        return pretrained_model(cls(), config, params, vocabulary, str(path))


@dataclasses.dataclass(frozen=True)
class RecurrentLanguageModel(LanguageModel):
    """`LanguageModel` for recurrent models, which continue each row where the previous batch ended.

    objective = cross-entropy + alpha mean_t |d_t|^2 + beta mean_t |h_{t+1} - h_t|^2

    with h_t the last layer's outputs, d_t the same after dropout, and means over scored positions and features.

    Batches are those of `LanguageModel`, perhaps with `reset` [B] bool: rows with False continue from the carried
    states. All other rows start from zeros, and so do all rows without `reset`.

    Source: Merity et al. 2018, section 4.6, for both regularisers; Williams and Peng 1990 for truncated
    back-propagation.
    """

    model_types = ()
    evaluators = {
        "validation": RecurrentValidation,
        "perplexity": Perplexity,
        "dynamic": DynamicPerplexity,
        "next_word": NextWord,
        "continuations": Continuations,
    }

    stateful: ClassVar[bool] = True

    activation_regularization: NonNegative = 0.0
    """Weight of the mean square of the last layer's outputs, after dropout (AR, alpha)."""
    temporal_activation_regularization: NonNegative = 0.0
    """Weight of the mean square of the change of the last layer's outputs between positions, before dropout (TAR,
    beta)."""

    @property
    def _is_regularised(self) -> bool:
        return bool(
            super()._is_regularised or self.activation_regularization or self.temporal_activation_regularization
        )

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        super().check(model, data)
        if not isinstance(model, RecurrentModelConfig):
            raise ValueError(
                f"RecurrentLanguageModel needs a recurrent model, got {type(model).__name__}; use the task "
                "LanguageModel, or the model RecurrentLMConfig"
            )

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        scorer = _LinearLosses(self, model, None if corpus is None else corpus.token_counts)

        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            states = None
            if "reset" in batch:
                dtype = model.config.compute.activation_dtype
                states = jax.tree.map(lambda s: jnp.where(batch["reset"][:, None], 0.0, s).astype(dtype), carry)
            read = forward(model, params, key, batch["tokens"], states, method="read")
            losses = scorer(params, read.hidden, batch, key)
            objective, mask = losses.objective, batch["loss_mask"]
            if key is not None and self.activation_regularization:
                objective += losses.count * self.activation_regularization * _mean_square(read.dropped, mask)
            if key is not None and self.temporal_activation_regularization:
                change = read.outputs[:, 1:] - read.outputs[:, :-1]
                weight = losses.count * self.temporal_activation_regularization
                objective += weight * _mean_square(change, mask[:, 1:])
            carry = jax.lax.stop_gradient(_wide(read.states) if "reset" in batch else carry)
            return self._measured(losses, objective, key, batch, carry)

        return Objective(loss, empty_carry=lambda rows: _wide(model.empty_cache(rows)))


def _wide(states: PyTree) -> PyTree:
    """States in float32, since compute.dtype may change on resume."""
    return jax.tree.map(lambda s: s.astype(jnp.float32), states)


class _LinearLosses:
    """The losses of the output layer's inputs [B, T, D], over the whole vocabulary, or in training over a sample."""

    def __init__(self, task: LanguageModel, model: Any, token_counts: np.ndarray | None):
        self._task, self._model = task, model
        self._sampled, self._frequent, self._rare = task.num_sampled, None, None
        if self._sampled is None or token_counts is None:
            return
        if len(token_counts) <= task.num_frequent:  # all tokens are frequent: the softmax is exact
            self._sampled = None
            return
        by_count = np.argsort(-token_counts, kind="stable")
        self._frequent, self._rare = np.split(by_count.astype(np.int32), [task.num_frequent])

    def __call__(self, params: Params, hidden: Array, batch: Batch, key: PRNGKey | None) -> TokenLosses:
        w, b = self._model.output_layer(params)
        rows, targets = hidden.reshape(-1, hidden.shape[-1]), batch["targets"].reshape(-1)
        scored = (rows, w, b, targets, batch["loss_mask"].reshape(-1))
        matmul_dtype = self._model.config.compute.operand_dtype
        if self._sampled is None or key is None:
            chunk = self._task.chunk_tokens
            return linear_cross_entropy(*scored, chunk=chunk, matmul_dtype=matmul_dtype, **self._task._smoothing(key))
        if self._frequent is None or self._rare is None:
            raise ValueError("task.num_sampled needs the token counts of a corpus in training")
        return sampled_cross_entropy(
            *scored,
            frequent=jnp.asarray(self._frequent),
            rare=jnp.asarray(self._rare),
            samples=self._sampled,
            key=jax.random.fold_in(key, _SAMPLE),
            matmul_dtype=matmul_dtype,
        )


def _mean_square(x: Array, mask: Array) -> Array:
    """The mean square of x [B, T, K] over the positions [B, T] where the mask is True, in float32."""
    squares = jnp.square(x.astype(jnp.float32)).mean(axis=-1)
    return jnp.where(mask, squares, 0.0).sum() / jnp.maximum(mask.sum().astype(jnp.float32), 1.0)
