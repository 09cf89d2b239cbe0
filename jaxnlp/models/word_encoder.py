"""The base of models of words: a vector for each word, from its embedding, its characters or a BERT.

The vector of a word concatenates up to four parts:

    the embedding of the word, by its id
    the embedding of the pair of the word and the next one, by a hash of both ids
    features of its characters: a convolution over them, and the maximum of each feature over the word
    the vector of its first token in a BERT that reads the whole sentence

A stack of bidirectional LSTM layers may read the vectors.

E is the width of the vectors, W the number of characters of a word, S the number of BERT's tokens of a sentence.

Sources: Ma and Hovy 2016 for words, characters and BiLSTM; Devlin et al. 2019, section 5.3, for the first token.
Weinberger et al. 2009 for embeddings by a hash. Differs: features of characters have a ReLU.
"""

import dataclasses
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Natural, Rate, UserPath, Window
from jaxnlp.corpus import Corpus
from jaxnlp.models import Adopted, ModelConfig, parameter_table, with_own_fields
from jaxnlp.models.bert import Bert, BertConfig, BertModelConfig
from jaxnlp.models.parameter_table import Table
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.convolution import Convolution
from jaxnlp.nn.dropout import Dropout, dropout_key
from jaxnlp.nn.embedding import Embed
from jaxnlp.nn.recurrent import CellName, Recurrent, RecurrentCompute, parameter_axes
from jaxnlp.nn.shards import first_row_of_shard
from jaxnlp.ops.dropout_masks import keep_mask
from jaxnlp.text.word_inputs import FIRST_ID, PAD_ID, UNKNOWN_ID, WordInputs
from jaxnlp.text.word_vectors import initial_word_vectors
from jaxnlp.typing import Params

NAME = "encoder"
"""Name of the module, and the first part of its parameters' paths."""


@dataclasses.dataclass(frozen=True)
class WordEncoderCompute(TransformerCompute, RecurrentCompute):
    """Options of a BERT and of recurrent layers."""


@dataclasses.dataclass(frozen=True)
class WordEncoderConfig(ModelConfig):
    """The base of configs of models that read sentences of words. Their processor has `inputs`, a `WordInputs`."""

    compute: WordEncoderCompute = dataclasses.field(default_factory=WordEncoderCompute, kw_only=True)

    bert: bool = False
    """Read sentences with the BERT of --init-from. Its vector of a word's first token is part of the word's vector."""
    encoder: BertConfig = dataclasses.field(default_factory=BertConfig)
    word_width: Natural = 100
    """Width of the word embeddings, D; 0 = no word embeddings."""
    vectors_path: UserPath | None = None
    """Text file of initial word embeddings in the format of word2vec or GloVe; None = random."""
    bigram_width: Natural = 0
    """Width of the embeddings of pairs of neighbouring words, for words that are single characters; 0 = none."""
    bigram_buckets: Count = 32_768
    """Number of embeddings of pairs; a hash assigns them."""
    character_width: Count = 30
    """Width of the character embeddings."""
    character_features: Natural = 50
    """Features of a word's characters, F; 0 = characters are not read."""
    character_window: Window = 3
    """Number of characters in a window of the convolution."""
    word_dropout_rate: Rate = 0.0
    """Share of words replaced with the unknown word in training, also in pairs. This trains the unknown word's
    embedding, and the use of characters and context."""
    input_dropout_rate: Rate = 0.5
    """Share of the words' vectors dropped in training."""
    recurrent_widths: tuple[Count, ...] = (128,)
    """Width of each layer of the bidirectional recurrent network in each direction, K; empty = no such network."""
    cell: CellName = "lstm"
    """Type of the recurrent layers: Elman network with tanh or ReLU, GRU, or LSTM."""
    hidden_dropout_rate: Rate = 0.0
    """Share of the features between recurrent layers dropped in training, the same ones at all positions."""
    output_dropout_rate: Rate = 0.5
    """Share of the recurrent network's outputs dropped in training."""

    def __post_init__(self):
        super().__post_init__()
        if not (self.bert or self.word_width or self.bigram_width or self.character_features):
            raise ValueError("the model has no input: set model.bert, model.word_width or model.character_features")
        words, pairs, characters = self.word_width > 0, self.bigram_width > 0, self.character_features > 0
        layers = len(self.recurrent_widths)
        self.only_if(words, "models with word embeddings", "vectors_path")
        self.only_if(words or pairs, "models with embeddings of words or pairs", "word_dropout_rate")
        self.only_if(pairs, "models with model.bigram_width", "bigram_buckets")
        self.only_if(characters, "models that read characters", "character_width", "character_window")
        self.only_if(layers > 0, "models with recurrent layers", "cell")
        self.only_if(layers > 1, "models with several recurrent layers", "hidden_dropout_rate")

    @property
    def attends(self) -> bool:
        return self.bert

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of a batch's arrays that the encoder reads, in the order of its arguments."""
        return WordInputs.names + (WordInputs.bert_names if self.bert else ())

    @property
    def width(self) -> int:
        """E, the width of the encoder's output."""
        if self.recurrent_widths:
            return 2 * self.recurrent_widths[-1]
        bert = self.encoder.width if self.bert else 0
        return bert + self.word_width + self.bigram_width + self.character_features

    @property
    def bert_path(self) -> tuple[str, ...] | None:
        """Path of the BERT's parameters; None = there is no BERT."""
        return (NAME, "bert") if self.bert else None

    @property
    def max_pieces(self) -> int | None:
        """Maximum length of a sentence in BERT's tokens; None = there is no BERT."""
        return self.encoder.max_positions if self.bert else None

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        characters = jax.ShapeDtypeStruct((1, 1, processor.inputs.max_characters), jnp.int32)
        ids, mask = jax.ShapeDtypeStruct((1, 1), jnp.int32), jax.ShapeDtypeStruct((1, 1), jnp.bool_)
        return (ids, characters, mask, *((ids, mask, ids) if self.bert else ()))

    def check(self, processor: Any) -> None:
        super().check(processor)
        if not self.bert:
            return
        inputs: WordInputs = processor.inputs
        if inputs.pieces is None:
            raise ValueError("model.bert needs the tokenizer and the weights of a BERT: give a BERT with --init-from")
        if inputs.max_pieces > self.encoder.max_positions:
            raise ValueError(
                f"data.max_pieces must be at most the BERT's {self.encoder.max_positions} positions, got "
                f"{inputs.max_pieces}"
            )

    def sizes(self, inputs: WordInputs) -> tuple[int, int, int]:
        """The sizes of a `WordEncoder` for these vocabularies: of words, of characters, and of BERT's tokens."""
        pieces = self.encoder.embeddings(inputs.pieces.size) if self.bert and inputs.pieces is not None else 0
        return inputs.vocabulary_size, inputs.num_characters, pieces

    def frozen(self, path: tuple[str, ...]) -> bool:
        # An unused pooler does not have a gradient, but weight decay would change it.
        return path[:2] == (NAME, "bert") and self.encoder.unread_by_tokens(path[2:])

    def encoder_parameters(self) -> Table:
        """Table entries of all parameters of the encoder except BERT's, for `ModelConfig.parameter`."""
        table = parameter_table.Table()
        if self.word_width:
            table |= parameter_table.entries({("words", "embedding"): "VD"})
        if self.bigram_width:
            table |= parameter_table.entries({("bigrams", "embedding"): "VD"})
        if self.character_features:
            table |= parameter_table.entries({("characters", "embedding"): "VD"})
            table |= parameter_table.entries(parameter_table.affine(("convolution",), "DF"))
        for index in range(len(self.recurrent_widths)):
            for direction in ("forward", "backward"):
                prefix = ("recurrent", f"layer_{index}_{direction}")
                table |= parameter_table.entries(parameter_axes(self.cell), prefix=prefix)
        return {(NAME, *path): entry for path, entry in table.items()}

    def find_parameter(self, table: Table, path: tuple[str, ...]) -> Any:
        """The entry of a path in BERT, in the encoder or in the table of the model's other parameters."""
        if self.bert and path[:2] == (NAME, "bert"):
            return self.encoder.parameter(path[2:])
        return parameter_table.find(self.encoder_parameters() | table, path)

    def initial_params(self, corpus: Corpus) -> Params:
        if self.vectors_path is None:
            return {}
        words = corpus.processor.inputs.words
        vectors = initial_word_vectors(self.vectors_path, words, self.word_width, "word_width")
        special = jnp.zeros((FIRST_ID, self.word_width), vectors.dtype)
        return {NAME: {"words": {"embedding": jnp.concatenate([special, vectors])}}}

    def architecture(self) -> dict[str, Any]:
        fields = super().architecture()
        del fields["vectors_path"]  # it decides only the initial parameters
        return fields | {"encoder": self.encoder.architecture() if self.bert else None}

    def adopt(self, pretrained: Any) -> Adopted:
        """All parameters of a model of the same class, with its shape, or only the BERT of any other model."""
        theirs = pretrained.model.config
        if type(theirs) is type(self):
            if self.bert and theirs.bert:
                mine = dataclasses.replace(self, encoder=with_own_fields(theirs.encoder, self.encoder))
                return super(WordEncoderConfig, mine).adopt(pretrained)
            return super().adopt(pretrained)
        if not self.bert:
            raise ValueError(f"set --model.bert to read sentences with the BERT of {pretrained.name}")
        adopted = BertModelConfig(encoder=self.encoder).adopt(pretrained)
        assert isinstance(adopted.config, BertModelConfig)
        config = dataclasses.replace(self, encoder=adopted.config.encoder)
        return adopted._replace(config=config, params={NAME: {"bert": adopted.params["encoder"]}})


class WordEncoder(nn.Module):
    """Computes a vector for each word of a sentence.

    Attributes:
      config: the parts of a word's vector, and the recurrent layers.
      vocabulary_size: V, of words.
      num_characters: V, of characters.
      num_pieces: V, of BERT's tokens; 0 = there is no BERT.
    """

    config: WordEncoderConfig
    vocabulary_size: int
    num_characters: int
    num_pieces: int = 0

    def setup(self):
        """The parts of the encoder that the config has."""
        config, compute = self.config, self.config.compute
        if config.word_width:
            initial = nn.initializers.normal(config.word_width**-0.5)
            self.words = Embed(
                self.vocabulary_size, config.word_width, compute.activation_dtype, embedding_init=initial
            )
        if config.bigram_width:
            # Initially zeros, so that a pair outside the training data adds nothing, unless another pair has its hash.
            zeros = nn.initializers.zeros
            self.bigrams = Embed(
                config.bigram_buckets, config.bigram_width, compute.activation_dtype, embedding_init=zeros
            )
        if config.character_features:
            initial = nn.initializers.normal(config.character_width**-0.5)
            self.characters = Embed(
                self.num_characters, config.character_width, compute.activation_dtype, embedding_init=initial
            )
            self.convolution = Convolution(config.character_window, config.character_features, compute)
        if config.bert:
            self.bert = Bert(config.encoder, self.num_pieces, compute)
        self.input_dropout = Dropout(config.input_dropout_rate)
        if config.recurrent_widths:
            self.recurrent = Recurrent(
                config.cell,
                config.recurrent_widths,
                bidirectional=True,
                hidden_dropout_rate=config.hidden_dropout_rate,
                compute=compute,
            )
            self.output_dropout = Dropout(config.output_dropout_rate)

    def __call__(
        self,
        words: jax.Array,
        characters: jax.Array,
        word_mask: jax.Array,
        pieces: jax.Array | None = None,
        piece_mask: jax.Array | None = None,
        first_pieces: jax.Array | None = None,
        *,
        further: jax.Array | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """The vectors of words, from the arrays of `WordInputs.batch`.

        Args:
          words: [B, T] int.
          characters: [B, T, W] int, 0 for padding.
          word_mask: [B, T] bool, False for padding, which must be at the end and never changes a result.
          pieces: [B, S] int, BERT's tokens; this and the next two only with a BERT.
          piece_mask: [B, S] bool, False for padding.
          first_pieces: [B, T] int, the position in S of each word's first token.
          further: [B, T, A], another part of the words' vectors, such as vectors of tags.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          [B, T, E], 0 at padding. E is `config.width`, plus A without recurrent layers.
        """
        config = self.config
        width = config.width + (0 if further is None or config.recurrent_widths else further.shape[-1])
        batch, length = word_mask.shape
        chex.assert_shape(words, (batch, length))
        chex.assert_shape(characters, (batch, length, None))
        words = self._with_unknown(jnp.where(word_mask, words, PAD_ID), deterministic=deterministic)
        parts = []
        if config.bert:
            parts.append(self._first_vectors(pieces, piece_mask, first_pieces, deterministic=deterministic))
        if config.word_width:
            parts.append(self.words(words))
        if config.bigram_width:
            parts.append(self.bigrams(_bigram_ids(words, config.bigram_buckets)))
        if config.character_features:
            parts.append(self._of_characters(characters))
        if further is not None:
            parts.append(further)
        x = jnp.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]
        x = self.input_dropout(x, deterministic=deterministic)
        if config.recurrent_widths:
            x, _ = self.recurrent(x, deterministic=deterministic, lengths=word_mask.sum(axis=1))
            x = self.output_dropout(x, deterministic=deterministic)
        chex.assert_shape(x, (batch, length, width))
        return jnp.where(word_mask[:, :, None], x, jnp.zeros_like(x))

    def _first_vectors(self, pieces, piece_mask, first_pieces, *, deterministic: bool) -> jax.Array:
        """BERT's vector of each word's first token [B, T, D]."""
        if pieces is None or piece_mask is None or first_pieces is None:
            raise ValueError("a model with a BERT needs pieces, piece_mask and first_pieces")
        hidden = self.bert(pieces, None, piece_mask, deterministic=deterministic).hidden
        chex.assert_shape(hidden, (*pieces.shape, self.config.encoder.width))
        return jnp.take_along_axis(hidden, first_pieces[:, :, None], axis=1)

    def _with_unknown(self, words: jax.Array, *, deterministic: bool) -> jax.Array:
        """The ids of words; training replaces some of them with the id of the unknown word."""
        rate = self.config.word_dropout_rate
        if deterministic or not rate:
            return words
        kept = keep_mask(dropout_key(self), words.shape, rate, first_row=first_row_of_shard(len(words)))
        return jnp.where(kept, words, UNKNOWN_ID)

    def _of_characters(self, characters: jax.Array) -> jax.Array:
        """The features of words [B, T, F], from their characters [B, T, W]."""
        batch, length, most = characters.shape
        ids = characters.reshape(batch * length, most)
        mask = ids > 0
        x = self.characters(ids)
        features = self.convolution(jnp.where(mask[:, :, None], x, jnp.zeros_like(x)), mask)
        chex.assert_shape(features, (batch * length, self.config.character_features))
        return features.reshape(batch, length, -1)


def _bigram_ids(words: jax.Array, buckets: int) -> jax.Array:
    """The bucket of each word and the next word [B, T] int32. The last word is paired with padding, 0."""
    following = jnp.pad(words[:, 1:], ((0, 0), (0, 1))).astype(jnp.uint32)
    mixed = words.astype(jnp.uint32) * jnp.uint32(2_654_435_761) ^ following * jnp.uint32(2_246_822_519)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(3_266_489_917)
    return ((mixed ^ (mixed >> 16)) % jnp.uint32(buckets)).astype(jnp.int32)
