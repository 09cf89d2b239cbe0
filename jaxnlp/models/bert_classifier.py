"""A BERT, pretrained or from scratch, with a head for the classes of texts or of pairs of texts.

Source: Devlin et al. 2019, section 4.1; Shen et al. 2020 for token cutoff.
"""

import dataclasses
from typing import Any, ClassVar

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.models import Adopted, Parameter, parameter_table
from jaxnlp.models.bert import Bert, BertModelConfig
from jaxnlp.models.classifier import ClassifierConfig
from jaxnlp.models.text_tasks import Pooling, pool
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout, first_row_of_shard
from jaxnlp.ops.dropout import keep_mask
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class BertClassifierConfig(BertModelConfig, ClassifierConfig):
    """A BERT that reads a text, or both texts of a pair together, and a dense layer on its vector."""

    inputs: ClassVar[tuple[str, ...]] = ("tokens", "attention_mask", "segments")

    pooling: Pooling = "pooler"
    """The vector of the input: its first token's, the pooler's, or the mean over its tokens."""
    head_dropout_rate: float = 0.1
    """Share of the vector dropped in training."""
    token_dropout_rate: float = 0.0
    """Share of the tokens hidden in training, never the first; small data sets are memorised without it."""
    freeze_encoder: bool = False
    """Train only the head."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("head_dropout_rate", "token_dropout_rate"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"model.{name} must lie in [0, 1), got {getattr(self, name)}")
        if self.pooling == "pooler" and not self.encoder.use_pooler:
            raise ValueError("model.pooling pooler needs an encoder with a pooler; set model.pooling to cls or mean")
        what = "an encoder that is trained, and model.freeze_encoder is set"
        rates = ("dropout_rate", "attention_dropout_rate")
        refuse_unread(self.encoder, [ReadWhen(name, 0.1, not self.freeze_encoder, what) for name in rates])
        refuse_unread(self, [ReadWhen("token_dropout_rate", 0.0, not self.freeze_encoder, what)])

    def build_classifier(self, processor: Any) -> "BertClassifier":
        return BertClassifier(self, self.encoder.embeddings(processor.vocabulary_size), processor.outputs)

    def shapes(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        del processor
        tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return tokens, jax.ShapeDtypeStruct((1, 1), bool), tokens

    def check_processor(self, processor: Any) -> None:
        if processor.texts == 2 and self.encoder.num_segments < 2:
            raise ValueError("model.encoder.num_segments must be at least 2 for pairs of texts, got 1")

    def adopt(self, pretrained: Any) -> Adopted:
        """The encoder; and the head of a classifier that predicts the same from the same kind of vector."""
        found, theirs = super().adopt(pretrained), pretrained.model.config
        if not isinstance(theirs, BertClassifierConfig):
            return found
        if theirs.pooling != self.pooling:
            note = f"the head of {pretrained.name} is not used, since its model.pooling is {theirs.pooling}"
            return found._replace(notes=(*found.notes, note))

        def head_for(processor: Any) -> Params:
            same = (processor.targets, processor.texts) == (pretrained.processor.targets, pretrained.processor.texts)
            return {"head": pretrained.params["head"]} if same else {}

        return found._replace(params_for=head_for)

    def frozen(self, path: tuple[str, ...]) -> bool:
        # A pooler that nothing reads has no gradient, but weight decay would change it.
        unread = self.pooling != "pooler" and path[:2] == ("encoder", "pooler")
        return unread or (self.freeze_encoder and path[0] == "encoder")

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[0] == "encoder":
            return self.encoder.parameter(path[1:])
        table = parameter_table.entries({("kernel",): "DC", ("bias",): "C"}, head=True, prefix=("head",))
        return parameter_table.find(table, path)


class BertClassifier(nn.Module):
    """Gives scores to the classes of texts, or of pairs of texts.

    Attributes:
      config: encoder and head.
      vocabulary_size: V.
      outputs: C, the number of classes, or 1 for a number.
    """

    config: BertClassifierConfig
    vocabulary_size: int
    outputs: int

    @nn.compact
    def __call__(
        self, tokens: jax.Array, attention_mask: jax.Array, segments: jax.Array, *, deterministic: bool = True
    ) -> jax.Array:
        """The scores of the classes.

        Args:
          tokens: [B, T] int.
          attention_mask: [B, T] bool, False where a token is padding.
          segments: [B, T] int, 0 in the first text and 1 in the second.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns: logits [B, C], float32.
        """
        config = self.config
        chex.assert_rank(tokens, 2)
        chex.assert_equal_shape([tokens, attention_mask, segments])
        seen = attention_mask
        if config.token_dropout_rate and not deterministic:
            first = first_row_of_shard(len(tokens))
            kept = keep_mask(self.make_rng("dropout"), tokens.shape, config.token_dropout_rate, first_row=first)
            seen &= kept.at[:, 0].set(True)  # a text has at least one token
        encoder = Bert(config.encoder, self.vocabulary_size, config.compute, name="encoder")
        output = encoder(tokens, segments, seen, deterministic=deterministic or config.freeze_encoder)
        if config.freeze_encoder:
            output = jax.lax.stop_gradient(output)
        x = Dropout(config.head_dropout_rate)(pool(output, seen, config.pooling), deterministic=deterministic)
        logits = Dense(self.outputs, compute=config.compute, name="head")(x).astype(jnp.float32)
        chex.assert_shape(logits, (len(tokens), self.outputs))
        return logits
