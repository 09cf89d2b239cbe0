"""A GPT or a Llama that reads a text, or a pair of texts together, with a dense layer on the vector of its last token.

Source: Radford et al. 2018 (GPT), section 3.2, for the last token; Transformers' `...ForSequenceClassification` of
decoders for the output layer, without bias and without dropout before it.
"""

import dataclasses
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import Natural
from jaxnlp.models import Adopted, Parameter, parameter_table, transformer_note, with_own_fields
from jaxnlp.models.classifier import HEAD, ClassifierConfig, TokenClassifierConfig
from jaxnlp.models.gpt import GPT, GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import Dense
from jaxnlp.text.byte_pairs import BytePairs

DECODER = "decoder"
"""Name of the module that reads the texts."""


@dataclasses.dataclass(frozen=True)
class DecoderClassifierConfig(TokenClassifierConfig):
    """The base of classifiers with a decoder, which also derive from the decoder's config."""

    compute: TransformerCompute = dataclasses.field(default_factory=TransformerCompute, kw_only=True)
    tie_embeddings: bool = True
    """Must be True: a classifier has no output layer for tokens."""
    padding_id: Natural | None = None
    """Id of the padding token. A text's vector is that of its last other token. None = no padding."""

    def __post_init__(self):
        super().__post_init__()
        if not self.tie_embeddings:
            raise ValueError("model.tie_embeddings must be True for a classifier, got False")
        if isinstance(self, LlamaConfig) and self.logit_cap is not None:
            raise ValueError(f"model.logit_cap must be None for a classifier, got {self.logit_cap}")

    @property
    def usual(self) -> tuple[str, ...]:
        return ()  # pretrained weights give the shape

    @property
    def decoder(self) -> Any:
        """The config of the decoder only."""
        kind = next(kind for kind, own in _CLASSIFIERS.items() if own is type(self))
        return kind(**{field.name: getattr(self, field.name) for field in dataclasses.fields(kind)})

    def build(self, processor: Any) -> Any:
        return DecoderClassifier(self, self.decoder.build(processor.vocabulary), processor.outputs)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[0] == DECODER:
            entry: Parameter = self.decoder.parameter(path[1:])
            return entry
        return parameter_table.find(parameter_table.entries({(HEAD, "kernel"): "DC"}, head=True), path)

    def adopt(self, pretrained: Any) -> Adopted:
        """The decoder of a GPT or a Llama with its shape, or of a classifier with one, with the head if it fits;
        dropout rates stay those of this config."""
        theirs, processor = pretrained.model.config, pretrained.processor
        if type(theirs) in _CLASSIFIERS.values():
            kind: Any = type(theirs)
            ours = self if type(self) is kind else with_own_fields(kind(), self)
            return ClassifierConfig.adopt(ours, pretrained)
        if type(theirs) not in _CLASSIFIERS or not isinstance(processor, BytePairs):
            raise ValueError(
                f"its model is a {type(theirs).__name__}, expected a GPT-2, Llama, Mistral or Qwen, or a classifier "
                "with one"
            )
        padding = processor.named.get("pad_token", processor.named.get("eos_token"))
        config = classifier_of(
            with_own_fields(theirs, self),
            padding_id=None if padding is None else processor.id_of(padding),
        )
        params = {name: x for name, x in pretrained.params.items() if name != HEAD}
        notes = (transformer_note("decoder", config, pretrained.name),)
        return Adopted(config, {DECODER: params}, processor.of_whole_texts(), notes)


@dataclasses.dataclass(frozen=True)
class GPTClassifierConfig(DecoderClassifierConfig, GPTConfig):
    """Shape of a classifier with a GPT."""


@dataclasses.dataclass(frozen=True)
class LlamaClassifierConfig(DecoderClassifierConfig, LlamaConfig):
    """Shape of a classifier with a Llama."""


_CLASSIFIERS: dict[type, type[Any]] = {GPTConfig: GPTClassifierConfig, LlamaConfig: LlamaClassifierConfig}


def classifier_of(decoder: GPTConfig, *, padding_id: int | None) -> Any:
    """The config of the classifier with this decoder, a GPT or a Llama. Args: padding_id: see the config."""
    unread = {"tie_embeddings": True} | ({"logit_cap": None} if isinstance(decoder, LlamaConfig) else {})
    return _CLASSIFIERS[type(decoder)](**(vars(decoder) | unread | {"padding_id": padding_id}))


class DecoderClassifier(nn.Module):
    """Scores the classes of texts, or predicts numbers.

    Attributes:
      config: shape.
      decoder: reads the texts.
      outputs: number of logits, C.
    """

    config: DecoderClassifierConfig
    decoder: GPT
    outputs: int

    @nn.compact
    def __call__(self, tokens: jax.Array, attention_mask: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """The scores of the classes, or the numbers.

        Args:
          tokens: [B, T] int, in [0, V).
          attention_mask: [B, T] bool, False for padding, which is at the end.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns: logits [B, C], float32.
        """
        chex.assert_rank(tokens, 2)
        chex.assert_equal_shape([tokens, attention_mask])
        hidden = self.decoder(tokens, deterministic=deterministic, return_hidden=True)
        counted = (
            attention_mask if self.config.padding_id is None else attention_mask & (tokens != self.config.padding_id)
        )
        last = jnp.where(counted, jnp.arange(tokens.shape[1]), 0).argmax(axis=1)
        vectors = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
        logits = Dense(self.outputs, use_bias=False, compute=self.config.compute, name=HEAD)(vectors)
        chex.assert_shape(logits, (tokens.shape[0], self.outputs))
        return logits.astype(jnp.float32)
