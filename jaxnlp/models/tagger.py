"""Taggers: a dense layer scores labels from the vectors of words, and a linear-chain CRF or a softmax follows.

    model.bert   model.recurrent_widths   model.crf
    yes          empty                    no           BERT
    yes          empty                    yes          BERT-CRF
    yes          one layer or more        yes          BERT-BiLSTM-CRF
    no           one layer or more        yes          BiLSTM-CRF
    no           one layer or more        no           BiLSTM-softmax

Sources: Huang et al. 2015 and Lample et al. 2016 for BiLSTM-CRF; Ma and Hovy 2016 for characters; Devlin et al. 2019,
section 5.3, for BERT.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.models import Adopted, Parameter, parameter_table
from jaxnlp.models.bert import notes_of_tokens
from jaxnlp.models.classifier import matching_heads
from jaxnlp.models.word_encoder import NAME, WordEncoder, WordEncoderConfig
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.transformer import rows
from jaxnlp.ops.crf import Chain
from jaxnlp.text.tagger_processor import TaggerProcessor

HEAD = "scores"
"""Name of the layer that scores labels."""


class LabelScores(NamedTuple):
    """The outputs of a tagger.

    Attributes:
      scores: the score of each label at each word [B, T, C], float32.
      chain: transitions, start and end of the CRF, float32; all 0 for a softmax.
    """

    scores: jax.Array
    chain: Chain


@dataclasses.dataclass(frozen=True)
class TaggerConfig(WordEncoderConfig):
    """Shape and regularisers of a tagger."""

    crf: bool = True
    """Score whole sequences of labels by a linear-chain CRF; otherwise each label by a softmax."""

    @property
    def only_bert(self) -> bool:
        """Whether it is a BERT and a softmax, as Transformers' class."""
        others = self.crf or self.recurrent_widths or self.word_width or self.bigram_width or self.character_features
        return self.bert and not others

    def build(self, processor: TaggerProcessor) -> "Tagger":
        return Tagger(self, *self.sizes(processor.inputs), len(processor.labels))

    def adopt(self, pretrained: Any) -> Adopted:
        """As for every word encoder; the layers that score labels only if both models have the same labels."""
        adopted = super().adopt(pretrained)
        if self.only_bert:
            config: Any = adopted.config
            config = dataclasses.replace(config, encoder=config.encoder.of_tokens())
            notes = notes_of_tokens(config.encoder, adopted.params[NAME]["bert"], pretrained.name)
            adopted = adopted._replace(config=config, notes=(*adopted.notes, *notes))
        heads = {name: params for name, params in adopted.params.items() if name != NAME}
        if not heads:
            return adopted
        theirs = pretrained.processor
        fitting = functools.partial(matching_heads, pretrained.name, theirs, heads, ("labels",), config=adopted.config)
        return adopted._replace(params={NAME: adopted.params[NAME]}, matching_heads=fitting)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        table = parameter_table.entries(parameter_table.dense((HEAD,), "DC"), head=True)
        if self.crf:
            table |= parameter_table.entries({("transitions",): "CC", ("start",): "C", ("end",): "C"}, head=True)
        parameter: Parameter = self.find_parameter(table, path)
        return parameter


class Tagger(nn.Module):
    """Scores the labels of words.

    Attributes:
      config: encoder, and CRF or softmax.
      vocabulary_size: V, of words.
      num_characters: V, of characters.
      num_pieces: V, of BERT's tokens; 0 = there is no BERT.
      num_labels: C.
    """

    config: TaggerConfig
    vocabulary_size: int
    num_characters: int
    num_pieces: int
    num_labels: int

    def setup(self):
        """The encoder, the output layer and the CRF's parameters."""
        self.encoder = WordEncoder(self.config, self.vocabulary_size, self.num_characters, self.num_pieces)
        self.scores = Dense(self.num_labels, compute=self.config.compute)
        if self.config.crf:
            shapes = {"transitions": (self.num_labels, self.num_labels), "start": (self.num_labels,)}
            shapes["end"] = shapes["start"]
            self.chain = [self.param(name, nn.initializers.zeros, shape) for name, shape in shapes.items()]

    def __call__(self, *inputs: jax.Array, deterministic: bool = True) -> LabelScores:
        """Args: as for `WordEncoder`. Returns: the scores of the labels and the parameters of the CRF."""
        x = self.encoder(*inputs, deterministic=deterministic)
        scores = self.scores(rows(x)).reshape(*x.shape[:2], self.num_labels).astype(jnp.float32)
        chex.assert_shape(scores, (*inputs[0].shape, self.num_labels))
        if self.config.crf:
            return LabelScores(scores, Chain(*(value.astype(jnp.float32) for value in self.chain)))
        zeros = jnp.zeros(self.num_labels)
        return LabelScores(scores, Chain(jnp.zeros((self.num_labels, self.num_labels)), zeros, zeros))
