"""Embeddings and attention weights of texts, from the encoder of a trained model."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.inference.arguments import one_or_many
from jaxnlp.inference.batches import Shape, in_batches, packed_rows, padded_length, text_shapes, warm_up
from jaxnlp.inference.exportable import Axes, Exportable
from jaxnlp.input_files.notes import warn_of_truncated
from jaxnlp.models.bert import Bert, BertModelConfig
from jaxnlp.models.text_vectors import Pooling, pool
from jaxnlp.ops.compiler_options import jit
from jaxnlp.ops.devices import target_platform
from jaxnlp.pages.attention_page import AttentionMaps, TextAttention
from jaxnlp.tasks import Trained
from jaxnlp.text.blank_texts import is_blank, refuse_blank
from jaxnlp.text.embedding_settings import PLAIN, EmbeddingSettings
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary, encoder_vocabulary, padded_texts
from jaxnlp.text.raw_texts import require_texts
from jaxnlp.typing import Params


class Embeddings(NamedTuple):
    """The embeddings of texts, in their order.

    Attributes:
      values: [N, D] float32.
      truncated_rows: indices of the texts that were longer than the maximum length.
    """

    values: np.ndarray
    truncated_rows: Sequence[int]


def vocabulary_of(trained: Trained) -> EncoderVocabulary:
    """The tokenizer of a model of texts."""
    return encoder_vocabulary(trained.processor)


def max_length_of(trained: Trained) -> int:
    """Maximum length of texts in tokens: that of training, or of the encoder."""
    return getattr(trained.processor, "max_length", None) or encoder_config(trained).max_positions


def embedding_settings_of(trained: Trained) -> EmbeddingSettings:
    """The prompts of a pretrained encoder, and the truncation of its embeddings."""
    return getattr(trained.processor, "embeddings", PLAIN)


def encoder_config(trained: Trained) -> Any:
    """The config of a model's BERT. Raises: ValueError when the model does not have one."""
    model: Any = trained.model
    if not has_bert(model):
        raise ValueError(f"{trained.name} does not have a BERT: its model is a {type(model).__name__}")
    return model.config.encoder


def has_bert(model: Any) -> bool:
    """Whether a model has a BERT that reads texts."""
    return isinstance(getattr(model, "config", None), BertModelConfig)


def embed_texts(trained: Trained, texts: Sequence[str], *, pooling: Pooling | None = None) -> Embeddings:
    """The embedding of each text [N, D].

    The default prompt of a pretrained encoder is put before each text. Truncation is the last step.

    Args:
      trained: a model with a BERT.
      texts: N of them; the embedding of a blank text is zero.
      pooling: None = as in the model, or the mean.

    Raises: ValueError for another pooling, and for the pooling pooler without a pooler.
    """
    kept = [index for index, text in enumerate(texts) if not is_blank((text,))]
    settings, limit, compute = embedding_settings_of(trained), max_length_of(trained), _computed(trained, pooling)
    tokenized = vocabulary_of(trained).tokenize([settings.prompt + texts[index] for index in kept], max_length=limit)
    lengths = list(map(len, tokenized.tokens))
    vectors = np.zeros((len(kept), encoder_config(trained).width), np.float32)
    packed, alone = _packed(trained, pooling), {*range(len(kept))}
    if packed is not None:
        for row in packed_rows(lengths, max(_packed_lengths(trained)), MOST_TEXTS):
            if len(row) > 1:
                vectors[row] = packed([tokenized.tokens[index] for index in row])
                alone -= {*row}
    rest = sorted(alone)
    rows = [(tokenized.tokens[index],) for index in rest]
    found = in_batches(  # texts of similar length share a batch, so the other texts change a value only by rounding
        [lengths[index] for index in rest],
        _shapes(trained, packed is not None),
        lambda indices, shape: compute(*padded_texts([rows[index] for index in indices], *shape)),
    )
    if rest:
        vectors[rest] = np.stack(found)
    values = np.zeros((len(texts), vectors.shape[1]), np.float32)
    values[kept] = vectors
    if settings.normalize:
        values = l2_normalize(values)
    values = values[:, : settings.truncate_dim]
    return Embeddings(values, [kept[row] for row in tokenized.truncated_rows])


@one_or_many
def embed(trained: Trained, texts: Sequence[str], *, pooling: Pooling | None = None) -> np.ndarray:
    """The embedding of each text [N, D] float32, or of one text [D]; that of a blank text is zero.

    Prompts, L2 normalisation and dimension are a pretrained encoder's. A warning in the log counts truncated texts.

    Args:
      texts: one text, or a list of N.
      pooling: None = as in the model, or the mean.

    Raises: ValueError for another pooling, and for the pooling pooler without a pooler.
    """
    embeddings = embed_texts(trained, require_texts(texts), pooling=pooling)
    warn_of_truncated(embeddings.truncated_rows, len(texts), max_length_of(trained))
    return embeddings.values


def warm_up_embed(trained: Trained, *, pooling: Pooling | None = None) -> None:
    """Compiles the programs of `embed` ahead."""
    padding, compute, packed = [(np.zeros(0, np.int32),)], _computed(trained, pooling), _packed(trained, pooling)
    warm_up(_shapes(trained, packed is not None), lambda _, shape: compute(*padded_texts(padding, *shape)))
    if packed is not None:
        for length in _packed_lengths(trained):
            packed([np.zeros(length, np.int32)])


def _shapes(trained: Trained, packs: bool) -> list[Shape]:
    """The shapes of batches of texts. Args: packs: whether texts share rows, so that few batches remain."""
    return [shape for shape in text_shapes(max_length_of(trained)) if shape.rows == 1 or not packs]


def _computed(trained: Trained, pooling: Pooling | None) -> Callable[[np.ndarray, np.ndarray], jax.Array]:
    return functools.partial(_embedder(trained, pooling), trained.inference_params["encoder"])


def _embedder(trained: Trained, pooling: Pooling | None) -> Callable[..., jax.Array]:
    """A function of the encoder's parameters, tokens [B, 1, T] and their mask."""
    return functools.partial(_embed, *_encoding(trained, pooling))


def _encoding(trained: Trained, pooling: Pooling | None) -> tuple[Bert, Pooling, int]:
    """The encoder, the pooling, and the number of first tokens that the pooling leaves out."""
    encoder = encoder_config(trained)
    own: Any = getattr(trained.model.config, "pooling", "mean") if pooling is None else pooling
    if own == "pooler" and not encoder.pools:
        raise ValueError("this encoder has no pooler; set pooling to cls or mean")
    return Bert(encoder, trained.model.vocabulary_size, trained.model.config.compute), own, _prompt_tokens(trained)


PACKED, MOST_TEXTS = 256, 32
"""Tokens and texts of a packed row. Attention is quadratic in its length, so a longer row is slower."""


def _packed_lengths(trained: Trained) -> tuple[int, ...]:
    """The lengths of packed rows."""
    return tuple(sorted({min(length, encoder_config(trained).max_positions) for length in (PACKED // 2, PACKED)}))


def _packed(trained: Trained, pooling: Pooling | None) -> Callable[[Sequence[np.ndarray]], np.ndarray] | None:
    """The vectors [N, D] of texts packed into a row, from the tokens of each. None for a pooler, which has one vector a
    row; and where padding is faster: on devices other than a CPU, eight texts take as long as one."""
    bert, own, skip = _encoding(trained, pooling)
    if target_platform() != "cpu" or own == "pooler":
        return None
    params, lengths = trained.inference_params["encoder"], _packed_lengths(trained)

    def compute(texts: Sequence[np.ndarray]) -> np.ndarray:
        counts = np.zeros(MOST_TEXTS, np.int32)
        counts[: len(texts)] = [len(text) for text in texts]
        total = int(counts.sum())
        tokens, numbers = np.zeros((2, 1, next(length for length in lengths if length >= total)), np.int32)
        tokens[0, :total], numbers[0, :total] = np.concatenate(texts), np.repeat(np.arange(MOST_TEXTS), counts) + 1
        return np.asarray(_embed_packed(bert, own, skip, params, tokens, numbers, counts))[: len(texts)]

    return compute


def _prompt_tokens(trained: Trained) -> int:
    """Number of first tokens that embeddings leave out: those of a prompt that is not pooled."""
    settings = embedding_settings_of(trained)
    if settings.include_prompt or not settings.prompt:
        return 0
    prompt = vocabulary_of(trained).tokenize([settings.prompt], max_length=max_length_of(trained)).tokens[0]
    return len(prompt) - 1


def exported_embed(trained: Trained) -> Exportable:
    """`embed` as a program: the vectors of tokens."""
    embed, settings = _embedder(trained, None), embedding_settings_of(trained)
    skip = _prompt_tokens(trained)

    def apply(params: Params, inputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        vectors = embed(params["encoder"], inputs["tokens"][:, None], inputs["attention_mask"][:, None])
        if settings.normalize:
            vectors /= jnp.maximum(jnp.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return {"vectors": vectors[:, : settings.truncate_dim]}

    axes = Axes(T=(skip + 1, max_length_of(trained)))
    inputs = {"tokens": axes("B, T"), "attention_mask": axes("B, T", bool)}
    prompted = f" that begin with the prompt {settings.prompt!r}" if settings.prompt else ""
    return Exportable(f"vectors [B, D] of texts{prompted}", apply, axes, inputs)


def l2_normalize(vectors: np.ndarray) -> np.ndarray:
    """[N, D] with norm 1; a zero vector stays zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def cosines(trained: Trained, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """The cosine of the embeddings of N texts and of N others [N, 1] float32."""
    one, other = (l2_normalize(embed_texts(trained, texts).values) for texts in (first, second))
    return (one * other).sum(axis=1, keepdims=True)


def attend(trained: Trained, text: str, pair: str | None = None, *, max_length: int | None = None) -> TextAttention:
    """The attention weights of the encoder on a text: one map, of its tokens on themselves.

    Args:
      text: the text to read.
      pair: a second text, always encoded with the first: [CLS] text [SEP] pair [SEP].
      max_length: maximum length in tokens, special tokens included; None = that of the model.

    Raises: ValueError for a blank text, for a pair if the encoder has no segment embeddings, and for a `max_length`
    that is too short or above the model's.
    """
    encoder = encoder_config(trained)
    refuse_blank((text,) if pair is None else (text, pair))
    if pair is not None:
        encoder.check_segments(vocabulary_of(trained).num_segments)
    limit = max_length_of(trained) if max_length is None else min(max_length, max_length_of(trained))
    vocabulary = vocabulary_of(trained)
    tokenized = vocabulary.tokenize([text], None if pair is None else [pair], max_length=limit)
    (tokens,), (segments,) = tokenized.tokens, tokenized.segments
    bert = Bert(encoder, trained.model.vocabulary_size, trained.model.config.compute)
    weights = attention_of(bert, trained.params["encoder"], tokens, segments, max_length_of(trained))
    names = vocabulary.tokens(tokens)
    maps = AttentionMaps(names, names, weights)
    return TextAttention(" | ".join([text, pair] if pair is not None else [text]), (maps,), bool(tokenized.truncated))


@functools.partial(jit, static_argnums=(0, 1, 2))
def _embed(bert: Bert, pooling: Pooling, skip: int, params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    output: Any = bert.apply({"params": params}, tokens[:, 0], None, mask[:, 0])
    return pool(output, mask[:, 0], pooling, skip=skip).astype(jnp.float32)


@functools.partial(jit, static_argnums=(0, 1, 2))
def _embed_packed(
    bert: Bert,
    pooling: Pooling,
    skip: int,
    params: Params,
    tokens: jax.Array,
    numbers: jax.Array,
    counts: jax.Array,
) -> jax.Array:
    """The vectors [N, D] of the texts in a row. Args: tokens, numbers: [1, T], as `Bert` reads them; counts: [N]."""
    output: Any = bert.apply({"params": params}, tokens, texts=numbers)
    here = jnp.arange(tokens.shape[1])[None]
    places = jnp.minimum((jnp.cumsum(counts) - counts)[:, None] + here, here.size - 1)
    texts = output._replace(hidden=output.hidden[0][places])
    return pool(texts, here < counts[:, None], pooling, skip=skip).astype(jnp.float32)


def attention_of(
    bert: Bert, params: Params, tokens: np.ndarray, segments: np.ndarray | None, longest: int
) -> np.ndarray:
    """The attention weights [L, H, T, T] float32 of a BERT on a text: tokens and segments [T], T at most `longest`."""
    length = len(tokens)
    room = padded_length(length, text_shapes(longest)) - length
    kinds = np.zeros_like(tokens) if segments is None else segments
    padded = (np.pad(row, (0, room))[None] for row in (tokens, kinds, np.ones(length, bool)))
    return np.asarray(_attention(bert, params, *padded), np.float32)[:, 0, :, :length, :length]


@functools.partial(jit, static_argnums=0)
def _attention(bert: Bert, params: Params, tokens: jax.Array, segments: jax.Array, mask: jax.Array) -> jax.Array:
    return bert.attention_maps(params, tokens, segments, mask)["blocks"]
