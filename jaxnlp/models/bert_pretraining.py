"""A BERT with the two heads that it is pretrained by: guess pieces of words, tell whether a text follows another.

Source: Devlin et al. 2019, section 3.1.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.models.bert import AroundBertConfig, Bert, PretrainingHeads
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class BertPretrainingConfig(AroundBertConfig):
    """A BERT to pretrain, or to go on with."""

    def __post_init__(self):
        if not self.encoder.use_pooler:
            raise ValueError(
                "model.encoder.use_pooler must be True, got False: its vector tells whether a text follows another"
            )
        if self.encoder.segments < 2:
            raise ValueError(
                f"model.encoder.segments must be at least 2, of the first text and the second, got "
                f"{self.encoder.segments}"
            )

    def build(self, vocabulary_size: int) -> "BertPretraining":
        return BertPretraining(self, self.encoder.embeddings(vocabulary_size))


class BertPretraining(nn.Module):
    """What pretraining asks of a BERT.

    Parameters are those of `Bert` under `encoder` and of `PretrainingHeads` under `heads`; the output layer's matrix is
    the token embedding's, transposed.

    Attributes:
      config: the encoder.
      vocabulary_size: V.
    """

    config: BertPretrainingConfig
    vocabulary_size: int

    def setup(self):
        """The encoder and the heads."""
        encoder = self.config.encoder
        self.encoder = Bert(encoder, self.vocabulary_size)
        self.heads = PretrainingHeads(self.vocabulary_size, encoder.epsilon, encoder.dtype)

    def __call__(
        self,
        tokens: jax.Array,
        segments: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        positions: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array]:
        """Prepares both answers.

        Args:
          tokens: [B, T] int.
          segments: [B, T] int; None = all 0.
          attention_mask: [B, T] bool, False where a token is padding; None = none is.
          positions: [B, P] int, in [0, T): of the tokens to guess; None = all, P = T.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          The output layer's input at these positions [B, P, D], for `output_layer`; and the logits of the second text
          following the first, or not [B, 2], float32: class 0 is that it does, as in released weights.
        """
        encoding = self.encoder(tokens, segments, attention_mask, deterministic=deterministic)
        hidden, pooled = encoding.hidden, encoding.pooled
        assert pooled is not None  # the config has a pooler
        if positions is not None:
            hidden = jnp.take_along_axis(hidden, positions[:, :, None], axis=1)
        x, _, follows = self.heads(hidden.reshape(-1, hidden.shape[-1]), pooled)
        return x.reshape(hidden.shape), follows.astype(jnp.float32)

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array]:
        """W [D, V] and b [V]: logits = hidden W + b."""
        return params["encoder"]["tokens"]["embedding"].T, params["heads"]["token_bias"]
