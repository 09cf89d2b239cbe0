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
import logging
from collections.abc import Mapping
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
from jaxnlp.typing import Params

HEAD = "scores"
"""Name of the layer that scores labels; with several parts, `scores_upos` and so on."""
_logger = logging.getLogger(__name__)


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
        parts = tuple((name, len(one.labels)) for name, one in processor.by_part.items())
        return Tagger(self, *self.sizes(processor.inputs), parts)

    def adopt(self, pretrained: Any) -> Adopted:
        """As for every word encoder; layers that score labels only for parts with the same labels in both."""
        adopted = super().adopt(pretrained)
        if self.only_bert:
            config: Any = adopted.config
            config = dataclasses.replace(config, encoder=config.encoder.of_tokens())
            notes = notes_of_tokens(config.encoder, adopted.params[NAME]["bert"], pretrained.name)
            adopted = adopted._replace(config=config, notes=(*adopted.notes, *notes))
        heads = {name: params for name, params in adopted.params.items() if name != NAME}
        if not heads:
            return adopted

        def fitting(processor: TaggerProcessor) -> Params:
            theirs, found = pretrained.processor.by_part, dict[str, Any]()
            for name, one in processor.by_part.items():
                own = {key: x for key, x in heads.items() if key.partition("_")[2] == name}
                if name in theirs:
                    found |= matching_heads(pretrained.name, theirs[name], own, ("labels",), one, adopted.config)
                else:
                    others = ", ".join(filter(None, theirs)) or "one kind of label"
                    what = name or "one kind of label"
                    _logger.warning("no head of %s is used for %s: it predicts %s", pretrained.name, what, others)
            return found

        return adopted._replace(params={NAME: adopted.params[NAME]}, matching_heads=fitting)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        axes = parameter_table.dense((HEAD,), "DC")
        if self.crf:
            axes |= {("transitions",): "CC", ("start",): "C", ("end",): "C"}
        part = "".join("".join(path[:1]).partition("_")[1:])  # _upos of scores_upos
        named = {(f"{name}{part}", *rest): letters for (name, *rest), letters in axes.items()}
        table = parameter_table.entries(named, head=True)
        parameter: Parameter = self.find_parameter(table, path)
        return parameter


class Tagger(nn.Module):
    """Scores the labels of words.

    Attributes:
      config: encoder, and CRF or softmax.
      vocabulary_size: V, of words.
      num_characters: V, of characters.
      num_pieces: V, of BERT's tokens; 0 = there is no BERT.
      parts: C of each part, by name; the name of a single part is empty.
    """

    config: TaggerConfig
    vocabulary_size: int
    num_characters: int
    num_pieces: int
    parts: tuple[tuple[str, int], ...]

    def setup(self):
        """The encoder, the output layers and the CRFs' parameters."""
        self.encoder = WordEncoder(self.config, self.vocabulary_size, self.num_characters, self.num_pieces)
        layers = {name: Dense(size, compute=self.config.compute) for name, size in self.parts}
        self.scores = only_or_all(layers)
        if self.config.crf:
            self.chains = {
                part: [
                    self.param(f"{name}_{part}" if part else name, nn.initializers.zeros, shape)
                    for name, shape in {"transitions": (size, size), "start": (size,), "end": (size,)}.items()
                ]
                for part, size in self.parts
            }

    def __call__(self, *inputs: jax.Array, deterministic: bool = True) -> Any:
        """Args: as for `WordEncoder`. Returns: the scores of the labels and the parameters of the CRF, a `LabelScores`;
        or those of each part, by name."""
        x = self.encoder(*inputs, deterministic=deterministic)
        layers, found = by_part(self.scores), dict[str, LabelScores]()
        for name, size in self.parts:
            scores = layers[name](rows(x)).reshape(*x.shape[:2], size).astype(jnp.float32)
            chex.assert_shape(scores, (*inputs[0].shape, size))
            if self.config.crf:
                found[name] = LabelScores(scores, Chain(*(value.astype(jnp.float32) for value in self.chains[name])))
            else:
                zeros = jnp.zeros(size)
                found[name] = LabelScores(scores, Chain(jnp.zeros((size, size)), zeros, zeros))
        return only_or_all(found)


def only_or_all(found: Mapping[str, Any]) -> Any:
    """The result for the only part, whose name is empty; or the results of several parts, by name."""
    return found.get("", found)


def by_part(found: Any) -> Mapping[str, Any]:
    """The results of parts by name, from those of `only_or_all`."""
    return found if isinstance(found, Mapping) else {"": found}


def only_part(tagger: Any, name: str) -> Any:
    """A tagger of one part of a tagger of several; its part has no name.

    Args:
      tagger: a `jaxnlp.tasks.Trained`.
      name: of the part.

    Raises: ValueError, with the names of its parts, for another name.
    """
    parts = getattr(tagger.processor, "by_part", {"": None})
    if name not in parts or not name:
        names = ", ".join(filter(None, parts)) or "no parts"
        raise ValueError(f"{tagger.name} does not have the part {name!r}; it has: {names}")
    processor, suffix = parts[name], f"_{name}"
    own = {key.removesuffix(suffix): x for key, x in tagger.params.items() if key == NAME or key.endswith(suffix)}
    return dataclasses.replace(tagger, model=tagger.model.config.build(processor), params=own, processor=processor)
