"""A BERT, pretrained or from scratch, with a head for each part of the data: classes or numbers of texts or of pairs.

Source: Devlin et al. 2019, section 4.1, for a dense layer on the vector of a text; Conneau et al. 2017 for the features
of a pair; Reimers and Gurevych 2019 for the cosine; Shen et al. 2020 for token cutoff.
"""

import dataclasses
import math
from typing import Any, ClassVar, Literal, NamedTuple, Self

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import Rate
from jaxnlp.models import Adopted, Parameter, parameter_table
from jaxnlp.models.bert import Bert, BertConfig, BertModelConfig
from jaxnlp.models.classifier import ClassifierConfig, matching_heads
from jaxnlp.models.text_vectors import Pooling, cosine, pair_features, pool
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout, dropout_key
from jaxnlp.nn.feed_forward import gelu
from jaxnlp.nn.shards import first_row_of_shard
from jaxnlp.ops.dropout_masks import keep_mask
from jaxnlp.targets import Number, OneClass, Targets
from jaxnlp.typing import Params


class TargetHead(NamedTuple):
    """A dense layer on the vector of an input.

    Attributes:
      head: the name of its parameters.
      targets: of its outputs.
      texts: of an example, 1, or 2 that are read together.
    """

    head: str
    targets: Targets
    texts: int


class Head(NamedTuple):
    """The head of a part.

    Attributes:
      outputs: C, the number of classes, or 1 for a number.
      width: of its dense layer: C; 1 for the logit of the second class of pairs that are read apart; 0 for the cosine.
      apart: whether it reads the vectors of both texts of a pair.
    """

    outputs: int
    width: int
    apart: bool


@dataclasses.dataclass(frozen=True)
class BertClassifierConfig(BertModelConfig, ClassifierConfig):
    """A BERT that encodes a text, or a pair of texts together, with a dense layer on its vector; or the texts of a pair
    apart, with a dense layer on features of both vectors. Several parts share the encoder."""

    reads: ClassVar[tuple[str, ...]] = ("tokens", "attention_mask", "segments")

    pooling: Pooling = "pooler"
    """A text's vector: its first token's (cls), its last token's (lasttoken), the pooler's; or, over its tokens, the
    mean, the maximum (max), the sum divided by the root of their number (mean_sqrt_len_tokens), or the mean weighted by
    position (weightedmean)."""
    similarity: Literal["learned", "cosine"] = "learned"
    """With data.pairs apart, predict numbers by a learned head, or by the cosine of both vectors."""
    pair_layer: Literal["none", "separate", "shared"] = "none"
    """With data.pairs apart, a hidden layer between the features of both vectors and the heads: none, one for each
    part, or one for all."""
    cosine_logit: tuple[float, float] | None = None
    """With data.pairs apart and two classes: slope and threshold; add slope * (cosine - threshold) to the logit of the
    second class, which helps before the head is trained. None = only the head."""
    head_dropout_rate: Rate = 0.1
    """Share of the heads' inputs dropped in training."""
    token_dropout_rate: Rate = 0.0
    """Share of tokens hidden in training, except the first; without it, small data sets are memorised. With single
    texts among the parts, it does not apply to pairs with data.pairs apart."""

    def __post_init__(self):
        super().__post_init__()
        if self.cosine_logit is not None and not (
            0.0 < self.cosine_logit[0] < math.inf and math.isfinite(self.cosine_logit[1])
        ):
            raise ValueError(
                "model.cosine_logit must be a positive slope and a threshold, both finite, got "
                f"{' '.join(map(str, self.cosine_logit))}"
            )
        if self.pooling == "pooler" and not self.encoder.pools:
            raise ValueError("model.pooling pooler needs an encoder with a pooler; set model.pooling to cls or mean")

    def check(self, processor: Any) -> None:
        parts = processor.by_part.values()
        heads = [head for _, head in self.heads(processor)]
        if any(part.texts == 2 and not part.apart for part in parts):
            self.encoder.check_segments(processor.vocabulary.num_segments)
        numbers = any(part.apart and isinstance(part.targets, Number) for part in parts)
        features, layers = any(head.apart and head.width for head in heads), any(head.width for head in heads)
        logits = any(head.width < head.outputs == 2 for head in heads)
        pairs, what = "pairs that are read apart (data.pairs apart)", "models with a head, not to a cosine alone"
        self.only_if(numbers, f"numbers of {pairs}", "similarity")
        self.only_if(features, f"heads of {pairs}", "pair_layer")
        self.only_if(logits, f"two classes of {pairs}", "cosine_logit")
        self.only_if(layers, what, "head_dropout_rate")

    def compares(self, processor: Any) -> bool:
        return self.similarity == "cosine" and processor.apart and isinstance(processor.targets, Number)

    def heads(self, processor: Any) -> tuple[tuple[str, Head], ...]:
        """The head of each part of a processor, by name."""
        heads = []
        for name, part in processor.by_part.items():
            outputs = part.targets.outputs
            two = part.apart and isinstance(part.targets, OneClass) and outputs == 2
            heads.append((name, Head(outputs, 0 if self.compares(part) else 1 if two else outputs, part.apart)))
        return tuple(heads)

    def build(self, processor: Any) -> "BertClassifier":
        size = self.encoder.embeddings(processor.vocabulary_size)
        return BertClassifier(self, size, self.heads(processor))

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        shape = (1, 2, 1) if processor.apart else (1, 1)
        tokens = jax.ShapeDtypeStruct(shape, jnp.int32)
        return tokens, jax.ShapeDtypeStruct(shape, bool), tokens

    def with_encoder(self, encoder: BertConfig) -> Self:
        """This config with a pretrained encoder's config, and with a pooler if `pooling` needs one."""
        pooler = encoder.use_pooler or self.pooling == "pooler"
        read = encoder.pooler_input if encoder.pooler_input != "each" else "cls"
        return super().with_encoder(dataclasses.replace(encoder, use_pooler=pooler, pooler_input=read))

    def adopt(self, pretrained: Any) -> Adopted:
        """The encoder, and the heads if the pretrained classifier predicts the same from the same kind of vectors."""
        adopted, theirs = super().adopt(pretrained), pretrained.model.config
        if self.pooling == "pooler" and "pooler" not in adopted.params["encoder"]:
            note = f"{pretrained.name} does not have a pooler: initialised at random"
            adopted = adopted._replace(notes=(*adopted.notes, note))
        heads = {name: params for name, params in pretrained.params.items() if name not in ("encoder", "heads")}
        if not isinstance(theirs, BertClassifierConfig) or not heads:
            return adopted
        fields = ("pooling", "similarity", "pair_layer", "cosine_logit")
        changed = [f"model.{name}" for name in fields if getattr(theirs, name) != getattr(self, name)]
        if changed:
            note = f"the heads of {pretrained.name} are not used, since its {', '.join(changed)} differs"
            return adopted._replace(notes=(*adopted.notes, note))

        def fitting(processor: Any) -> Params:
            texts = max(part.texts for _, part in processor.parts)
            read, ours = (one.of_texts(texts) for one in (pretrained.processor, processor))
            single = len(read.parts) == len(ours.parts) == 1
            same = ("name", "targets", "texts", "pairs") if single else ("parts", "pairs")
            return matching_heads(pretrained.name, read, heads, same, ours, self)

        return adopted._replace(matching_heads=fitting)

    def only_head(self, processor: Any) -> TargetHead | None:
        """The only head, if it reads one vector; None for several parts, and for pairs that are read apart."""
        if len(processor.parts) > 1 or processor.apart:
            return None
        name = f"heads_{processor.name}" if processor.name else "head"
        return TargetHead(name, processor.targets, processor.texts)

    def frozen(self, path: tuple[str, ...]) -> bool:
        # An unused pooler has no gradient, but weight decay would change it.
        return self.pooling != "pooler" and path[:1] == ("encoder",) and self.encoder.unread_by_tokens(path[1:])

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[0] == "encoder":
            return self.encoder.parameter(path[1:])
        table = parameter_table.Table()
        if path[0] == "head" or path[0].startswith("heads_"):
            table = parameter_table.entries({("kernel",): "DC", ("bias",): "C"}, head=True, prefix=path[:1])
        if path[0] == "pair_layer" or path[0].startswith("relations_"):
            table = parameter_table.entries({("kernel",): "DD", ("bias",): "D"}, prefix=path[:1])
        return parameter_table.find(table, path)


class BertClassifier(nn.Module):
    """Scores the classes of texts or of pairs of texts, or predicts numbers.

    Attributes:
      config: encoder and heads.
      vocabulary_size: V.
      parts: the head of each part, by name; the name of a single part may be empty.
    """

    config: BertClassifierConfig
    vocabulary_size: int
    parts: tuple[tuple[str, Head], ...]

    def setup(self):
        """The encoder and the layers of the heads."""
        config = self.config
        self.encoder = Bert(config.encoder, self.vocabulary_size, config.compute)
        self.dropout = Dropout(config.head_dropout_rate)
        heads = {name: Dense(head.width, compute=config.compute) for name, head in self.parts if head.width}
        names = [self._pair_layer(name) for name, head in self.parts if head.width and head.apart]
        names = [] if config.pair_layer == "none" else list(dict.fromkeys(names))
        layers = {name: Dense(config.encoder.width, compute=config.compute) for name in names}
        if self.parts[0][0]:
            self.heads, self.relations = heads, layers
        else:
            self.head, self.pair_layer = heads.get(""), layers.get("")

    def _pair_layer(self, name: str) -> str:
        return "pairs" if name and self.config.pair_layer == "shared" else name

    def __call__(
        self,
        tokens: jax.Array,
        attention_mask: jax.Array,
        segments: jax.Array,
        *,
        part: str | None = None,
        deterministic: bool = True,
    ) -> Any:
        """The scores of the classes, or the numbers.

        Args:
          tokens: [B, T] int; [B, 2, T] for pairs with texts encoded apart.
          attention_mask: bool, shaped as `tokens`, False for padding.
          segments: int, shaped as `tokens`, 0 in the first text and 1 in the second; 0 in both if encoded apart.
          part: its name; None = all parts, where a single text is the first of a pair.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns: logits [B, C], float32, or numbers or the cosine [B, 1]; without `part` those of each part, by name.
        """
        arrays = tokens, attention_mask, segments
        if part is None and len(self.parts) > 1:
            return {
                name: self(
                    *(x if head.apart or x.ndim == 2 else x[:, 0] for x in arrays),
                    part=name,
                    deterministic=deterministic,
                )
                for name, head in self.parts
            }
        name = self.parts[0][0] if part is None else part
        head, batch = dict(self.parts)[name], tokens.shape[0]
        chex.assert_equal_shape(arrays)
        chex.assert_shape(tokens, (batch, 2, None) if head.apart else (batch, None))
        hides = not head.apart or all(each.apart for _, each in self.parts)
        vectors = self._vectors(*(x.reshape(-1, x.shape[-1]) for x in arrays), hides=hides, fixed=deterministic)
        if head.apart:
            logits = self._compare(name, head, *vectors.reshape(batch, 2, -1).swapaxes(0, 1), fixed=deterministic)
        else:
            logits = self._head(name)(self.dropout(vectors, deterministic=deterministic))
        chex.assert_shape(logits, (batch, head.outputs))
        return logits.astype(jnp.float32)

    def _vectors(
        self, tokens: jax.Array, attention_mask: jax.Array, segments: jax.Array, *, hides: bool, fixed: bool
    ) -> jax.Array:
        """The vectors of inputs [B, D], all arguments [B, T]. Args: hides: apply token dropout in training."""
        config, seen = self.config, attention_mask
        if config.token_dropout_rate and hides and not fixed:
            first = first_row_of_shard(tokens.shape[0])
            kept = keep_mask(dropout_key(self), tokens.shape, config.token_dropout_rate, first_row=first)
            seen &= kept.at[:, 0].set(True)  # a text has at least one token
        output = self.encoder(tokens, segments, seen, deterministic=fixed)
        vectors = pool(output, seen, config.pooling)
        chex.assert_shape(vectors, (tokens.shape[0], config.encoder.width))
        return vectors

    def _compare(self, name: str, head: Head, u: jax.Array, v: jax.Array, *, fixed: bool) -> jax.Array:
        """The scores [B, C] of pairs, from the vectors [B, D] of their texts."""
        config = self.config
        if not head.width:
            return cosine(u, v)[:, None]
        x = self.dropout(pair_features(u, v), deterministic=fixed)
        if config.pair_layer != "none":
            layer: Any = self.relations[self._pair_layer(name)] if name else self.pair_layer
            x = self.dropout(gelu(layer(x)), deterministic=fixed)
        logits = self._head(name)(x).astype(jnp.float32)
        if head.width == head.outputs:
            return logits
        if config.cosine_logit is not None:
            slope, threshold = config.cosine_logit
            logits += slope * (cosine(u, v) - threshold)[:, None]
        return jnp.concatenate([jnp.zeros_like(logits), logits], axis=1)

    def _head(self, name: str) -> Any:
        return self.heads[name] if name else self.head
