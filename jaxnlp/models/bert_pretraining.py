"""A BERT with its two pretraining heads: masked language modelling and next-sentence prediction.

Source: Devlin et al. 2019, section 3.1.
"""

import dataclasses
from typing import Any, Self

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import zeros

from jaxnlp.models import Adopted, Parameter, parameter_table
from jaxnlp.models.bert import Bert, BertConfig, BertModelConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.feed_forward import gelu
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.typing import Params


class PretrainingHeads(nn.Module):
    """Predicts masked tokens, and whether the second text follows the first one.

    Attributes:
      vocabulary_size: V.
      epsilon: of the normalisation.
      embedding_width: width of the token embeddings, E; None = D.
      use_bias: whether the transformation before the output layer has biases.
      compute: types.

    Source: Devlin et al. 2019, section 3.1; the transformation before the output layer is google-research/bert's.
    """

    vocabulary_size: int
    epsilon: float = 1e-12
    embedding_width: int | None = None
    use_bias: bool = True
    compute: Compute = Compute()

    @nn.compact
    def __call__(self, hidden: jax.Array, pooled: jax.Array | None = None) -> tuple[jax.Array, jax.Array, Any]:
        """The inputs of the output layer, whose matrix is that of the token embeddings.

        Args:
          hidden: of the tokens to predict [N, D].
          pooled: [B, D]; None = only masked tokens are predicted.

        Returns:
          The output layer's input [N, E], its bias [V], and with `pooled` the logits of next-sentence prediction [B,
            2].
        """
        chex.assert_rank(hidden, 2)
        width = self.embedding_width or hidden.shape[-1]
        x = gelu(Dense(width, self.use_bias, compute=self.compute, name="transform")(hidden))
        x = LayerNorm(self.epsilon, self.use_bias, self.compute, name="norm")(x)
        bias = self.param("token_bias", zeros, (self.vocabulary_size,))
        return x, bias, None if pooled is None else Dense(2, compute=self.compute, name="follows")(pooled)


@dataclasses.dataclass(frozen=True)
class BertPretrainingConfig(BertModelConfig):
    """A BERT to pretrain, or to continue pretraining."""

    def __post_init__(self):
        super().__post_init__()
        if self.encoder.model_type != "bert":
            raise ValueError(
                f"model.encoder.model_type must be bert, got {self.encoder.model_type}: only a BERT has a head of next "
                "sentences; give the weights of a BERT"
            )
        if not self.encoder.use_pooler:
            raise ValueError(
                "model.encoder.use_pooler must be True, got False: next-sentence prediction reads the pooler's output"
            )
        if self.encoder.num_segments < 2:
            raise ValueError(
                f"model.encoder.num_segments must be at least 2, for the first and the second text, got "
                f"{self.encoder.num_segments}"
            )

    def build(self, processor: Any) -> "BertPretraining":
        return BertPretraining(self, self.encoder.embeddings(processor.size))

    def with_encoder(self, encoder: BertConfig) -> Self:
        """This config with a pretrained encoder's config, and always with a pooler."""
        return super().with_encoder(dataclasses.replace(encoder, use_pooler=True))

    def adopt(self, pretrained: Any) -> Adopted:
        """The encoder, and the pooler and the pretraining heads if the weights have them."""
        adopted = super().adopt(pretrained)
        heads = pretrained.params.get("heads", {})
        names = {"token_bias": "the masked-token head", "follows": "the next-sentence head"}
        missing = [] if "pooler" in adopted.params["encoder"] else ["the pooler"]
        missing += [what for name, what in names.items() if name not in heads]
        notes = (f"{pretrained.name} does not have {', '.join(missing)}: initialised at random",) if missing else ()
        return Adopted(adopted.config, adopted.params | {"heads": heads}, adopted.processor, (*adopted.notes, *notes))

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[:1] == ("encoder",):
            return self.encoder.parameter(path[1:])
        transform = parameter_table.dense(("transform",), "DE") | parameter_table.norm(("norm",), "E")
        outputs = parameter_table.dense(("follows",), "DC") | {("token_bias",): "V"}
        table = parameter_table.entries(transform, prefix=("heads",))
        table |= parameter_table.entries(outputs, prefix=("heads",), head=True)
        return parameter_table.find(table, path)


class BertPretraining(nn.Module):
    """The outputs that pretraining scores.

    Parameters are those of `Bert` under `encoder` and of `PretrainingHeads` under `heads`. The output layer's matrix is
    the transposed token embeddings.

    Attributes:
      config: the encoder.
      vocabulary_size: V.
    """

    config: BertPretrainingConfig
    vocabulary_size: int

    def setup(self):
        """The encoder and the heads."""
        encoder = self.config.encoder
        compute = self.config.compute
        self.encoder = Bert(encoder, self.vocabulary_size, compute)
        self.heads = PretrainingHeads(
            self.vocabulary_size, encoder.epsilon, encoder.embedded_width, encoder.use_bias, compute
        )

    def __call__(
        self,
        tokens: jax.Array,
        segments: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        positions: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array]:
        """Prepares both predictions.

        Args:
          tokens: [B, T] int.
          segments: [B, T] int; None = all 0.
          attention_mask: [B, T] bool, False for padding; None = no padding.
          positions: [B, P] int, in [0, T): the tokens to predict; None = all, P = T.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          The output layer's input at these positions [B, P, E], for `output_layer`; and the logits of next-sentence
            prediction [B, 2], float32: class 0 means that the second text follows the first, as in released weights.
        """
        encoding = self.encoder(tokens, segments, attention_mask, deterministic=deterministic)
        hidden, pooled = encoding.hidden, encoding.pooled
        assert pooled is not None  # the config has a pooler
        if positions is not None:
            chex.assert_shape(positions, (tokens.shape[0], None))
            hidden = jnp.take_along_axis(hidden, positions[:, :, None], axis=1)
        x, _, follows = self.heads(hidden.reshape(-1, hidden.shape[-1]), pooled)
        return x.reshape(*hidden.shape[:-1], -1), follows.astype(jnp.float32)

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array]:
        """W [E, V] and b [V]: logits = hidden W + b."""
        return params["encoder"]["tokens"]["embedding"].T, params["heads"]["token_bias"]
