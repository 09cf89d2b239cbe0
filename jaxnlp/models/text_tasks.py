"""One encoder, and a small head for each thing that is asked of a text or of two.

Source: Devlin et al. 2019 for classification by a dense layer; Conneau et al. 2017 for the features of a pair; Reimers
and Gurevych 2019 for means over tokens and the cosine.
"""

import dataclasses
import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.bert import Bert, BertModelConfig, BertOutput
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout, first_row_of_shard
from jaxnlp.nn.feed_forward import gelu
from jaxnlp.ops.dropout import keep_mask
from jaxnlp.text.tasks import TASKS, TaskName


@dataclasses.dataclass(frozen=True)
class TextTasksConfig(BertModelConfig):
    """A BERT and the tasks on top of it."""

    tasks: tuple[TaskName, ...] = ("sst",)
    """What is asked; each task has its head."""
    pooling: Literal["cls", "pooler", "mean"] = "pooler"
    """A text's vector: its first token's, the pooler's, or the mean over its tokens."""
    similarity: Literal["cosine", "relation"] = "cosine"
    """How alike two texts are: the cosine of their vectors, or a dense layer's word on what they have in common."""
    relation: Literal["none", "separate", "shared"] = "none"
    """A hidden layer between the features of a pair and its heads: none, one for each task, or one for all."""
    cosine_logit: tuple[float, float] | None = None
    """Slope and threshold: a paraphrase's logit is what the head says and slope (cosine of the texts' vectors -
    threshold), by which an encoder of sentences tells much before it learns this task; None = the head alone."""
    head_dropout_rate: float = 0.1
    """Share of the heads' inputs dropped in training."""
    token_dropout_rate: float = 0.0
    """Share of a text's tokens that training hides, never the first: of few texts, models learn their words by heart
    (Shen et al. 2020, token cutoff). Pairs keep theirs: one word may be all that tells two texts apart."""
    freeze_encoder: bool = False
    """Train the heads alone."""

    def __post_init__(self):
        super().__post_init__()
        unknown = [name for name in self.tasks if name not in TASKS]
        if unknown or not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"model.tasks are some of {', '.join(TASKS)}, each once, got {', '.join(self.tasks)}")
        for name in ("head_dropout_rate", "token_dropout_rate"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"model.{name} must lie in [0, 1), got {getattr(self, name)}")
        kinds = {TASKS[name].kind for name in self.tasks}
        related = "paraphrase" in kinds or ("similarity" in kinds and self.similarity == "relation")
        for name, unset, is_read, what in (
            ("relation", "none", related, "a task with features of a pair"),
            ("cosine_logit", None, "paraphrase" in kinds, "a task of paraphrases"),
            ("token_dropout_rate", 0.0, "classification" in kinds, "a task of single texts"),
        ):
            if getattr(self, name) != unset and not is_read:
                raise ValueError(f"model.{name} is for {what}, got the tasks {', '.join(self.tasks)}; give {unset}")
        if self.cosine_logit is not None and not (
            0.0 < self.cosine_logit[0] < math.inf and math.isfinite(self.cosine_logit[1])
        ):
            raise ValueError(
                "model.cosine_logit must be a slope above 0 and a threshold, both finite, got "
                f"{' '.join(map(str, self.cosine_logit))}"
            )
        if self.pooling == "pooler" and not self.encoder.use_pooler:
            raise ValueError("model.pooling: this encoder has no pooler; choose cls or mean")
        headless = all(TASKS[name].kind == "similarity" for name in self.tasks) and self.similarity == "cosine"
        if self.freeze_encoder and headless:
            raise ValueError(
                f"model.freeze_encoder leaves nothing to train: {', '.join(self.tasks)} by cosine has no head; choose "
                "--model.similarity relation"
            )

    def build(self, vocabulary_size: int) -> "TextTasks":
        return TextTasks(self, self.encoder.embeddings(vocabulary_size))

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[:1] == ("encoder",):
            return self.encoder.parameter(path[1:])
        table: dict[tuple[str, ...], Parameter] = {}
        for name in self.tasks:
            table |= parameter_table.entries(parameter_table.dense((f"heads_{name}",), "DC"), head=True)
        for layer in (*self.tasks, "pairs"):
            table |= parameter_table.entries(parameter_table.dense((f"relations_{layer}",), "FD"))
        return parameter_table.find(table, path)

    def frozen(self, path: tuple[str, ...]) -> bool:
        # A pooler that nothing reads has no gradient, but weight decay would change it.
        unread = self.pooling != "pooler" and path[:2] == ("encoder", "pooler")
        return unread or (self.freeze_encoder and path[0] == "encoder")


class TextTasks(nn.Module):
    """Answers to tasks.

    Attributes:
      config: encoder and heads.
      vocabulary_size: V.
    """

    config: TextTasksConfig
    vocabulary_size: int

    def setup(self):
        """The encoder, the heads, and the relation layers that there are."""
        config = self.config
        encoder = config.encoder
        compute = config.compute
        self.encoder = Bert(encoder, self.vocabulary_size, compute)
        self.dropout = Dropout(config.head_dropout_rate)
        tasks = [TASKS[name] for name in config.tasks]
        pairs = [task.name for task in tasks if task.kind == "paraphrase" or self._relates(task.name)]
        self.heads = {
            task.name: Dense(task.labels if task.kind == "classification" else 1, compute=compute)
            for task in tasks
            if task.kind == "classification" or task.name in pairs
        }
        layers = {"none": [], "separate": pairs, "shared": ["pairs"] if pairs else []}[config.relation]
        self.relations = {name: Dense(encoder.width, compute=compute) for name in layers}

    def _relates(self, name: str) -> bool:
        return TASKS[name].kind == "similarity" and self.config.similarity == "relation"

    def __call__(
        self,
        tokens: jax.Array,
        attention_mask: jax.Array | None = None,
        task: TaskName | None = None,
        *,
        deterministic: bool = True,
    ) -> dict[str, jax.Array] | jax.Array:
        """Answers.

        Args:
          tokens: [B, S, T] int, S texts a row: two for tasks about pairs; or [B, T], one.
          attention_mask: bool, as tokens, False where a token is padding; None = none is.
          task: which; None = all whose number of texts this is.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          Of a classification the logits of its classes [B, C]. Of a paraphrase the logit of the texts meaning the same
          [B]. Of a similarity a score from 0 to 1 [B], which the cosine leaves for opposite texts. All float32; with
          `task=None` by the names of tasks.
        """
        if tokens.ndim == 2:
            tokens, attention_mask = tokens[:, None], None if attention_mask is None else attention_mask[:, None]
        if attention_mask is None:
            attention_mask = jnp.ones(tokens.shape, bool)
        vectors = self.embed(tokens, attention_mask, deterministic=deterministic)
        if task is not None:
            return self._answer(vectors, task, deterministic)
        names = self.config.tasks
        if self.is_initializing():  # all heads, whatever there is to read
            pairs = jnp.broadcast_to(vectors[:, :1], (len(vectors), 2, vectors.shape[2]))
            return {name: self._answer(pairs[:, : TASKS[name].texts], name, deterministic) for name in names}
        fitting = [name for name in names if TASKS[name].texts == tokens.shape[1]]
        return {name: self._answer(vectors, name, deterministic) for name in fitting}

    def embed(self, tokens: jax.Array, attention_mask: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Each text's vector: [B, S, T] tokens and mask to [B, S, D]."""
        batch, texts, positions = tokens.shape
        rows, seen = tokens.reshape(-1, positions), attention_mask.reshape(-1, positions)
        rate = self.config.token_dropout_rate
        if rate and texts == 1 and not deterministic:
            first_row = first_row_of_shard(len(rows))
            kept = keep_mask(self.make_rng("dropout"), rows.shape, rate, first_row=first_row)
            seen &= kept.at[:, 0].set(True)  # a text has at least one token
        encoding = self.encoder(rows, None, seen, deterministic=deterministic or self.config.freeze_encoder)
        if self.config.freeze_encoder:
            encoding = jax.lax.stop_gradient(encoding)
        return pool(encoding, seen, self.config.pooling).reshape(batch, texts, -1)

    def _answer(self, vectors: jax.Array, name: str, deterministic: bool) -> jax.Array:
        task = TASKS[name]
        if vectors.shape[1] != task.texts:
            raise ValueError(f"{name} is about {task.texts} text(s), got {vectors.shape[1]}")
        if task.kind == "classification":
            x = self.dropout(vectors[:, 0], deterministic=deterministic)
            return self.heads[name](x).astype(jnp.float32)
        if task.kind == "similarity" and not self._relates(name):
            return cosine(vectors[:, 0], vectors[:, 1])
        x = self.dropout(pair_features(vectors[:, 0], vectors[:, 1]), deterministic=deterministic)
        layer = self.relations.get("pairs" if self.config.relation == "shared" else name)
        if layer is not None:
            x = self.dropout(gelu(layer(x)), deterministic=deterministic)
        logit = self.heads[name](x)[:, 0].astype(jnp.float32)
        if task.kind == "paraphrase" and self.config.cosine_logit is not None:
            slope, threshold = self.config.cosine_logit
            logit += slope * (cosine(vectors[:, 0], vectors[:, 1]) - threshold)
        return jax.nn.sigmoid(logit) if task.kind == "similarity" else logit


def pool(encoding: BertOutput, attention_mask: jax.Array, pooling: Literal["cls", "pooler", "mean"]) -> jax.Array:
    """One vector of each text [B, D]: its first token's, the pooler's, or the mean over tokens that are no padding."""
    if pooling == "cls":
        return encoding.hidden[:, 0]
    if pooling == "pooler":
        if encoding.pooled is None:
            raise ValueError("this encoder has no pooler; choose cls or mean")
        return encoding.pooled
    weights = attention_mask[:, :, None].astype(jnp.float32)
    total = (encoding.hidden.astype(jnp.float32) * weights).sum(axis=1)
    return (total / jnp.maximum(weights.sum(axis=1), 1.0)).astype(encoding.hidden.dtype)


def pair_features(u: jax.Array, v: jax.Array) -> jax.Array:
    """What two vectors [B, D] have in common and what not: u, v, u - v, |u - v| and u v, side by side [B, 5 D]."""
    return jnp.concatenate([u, v, u - v, jnp.abs(u - v), u * v], axis=-1)


def cosine(u: jax.Array, v: jax.Array) -> jax.Array:
    """Of the angle between vectors [B, D] and [B, D]: [B], float32. A zero vector's is 0, with finite gradients."""
    u, v = (x.astype(jnp.float32) for x in (u, v))
    squares = (u * u).sum(axis=-1) * (v * v).sum(axis=-1)
    return (u * v).sum(axis=-1) * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))
