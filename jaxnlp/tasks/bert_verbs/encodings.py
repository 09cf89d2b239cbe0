"""Embeddings and attention weights of texts, from the encoder of a trained model."""

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.commands.attention_page import AttentionMaps, TextAttention
from jaxnlp.inference import one_or_many, refuse_blank, require_texts
from jaxnlp.models.bert import Bert, BertModelConfig
from jaxnlp.models.text_vectors import Pooling, pool
from jaxnlp.tasks import Trained
from jaxnlp.text.embedding_settings import PLAIN, EmbeddingSettings
from jaxnlp.text.wordpiece import WordPieceVocabulary, padded_texts
from jaxnlp.typing import Params

BATCH_TOKENS = 4096
"""Number of positions in a batch, padding included; larger batches are not faster on a CPU."""
MIN_LENGTH = 16
"""Texts are padded to this length, or to 2, 4, 8, ... times it, so that few programs are compiled."""


class TextOutputs(NamedTuple):
    """A value for each text, in their order.

    Attributes:
      values: [N, ...] float32.
      truncated_rows: indices of the texts, or pairs, that were longer than the maximum length.
    """

    values: np.ndarray
    truncated_rows: list[int]

    @property
    def truncated(self) -> int:
        """Number of texts that were longer than the maximum length."""
        return len(self.truncated_rows)


def vocabulary_of(trained: Trained) -> WordPieceVocabulary:
    """The tokenizer of a model of texts."""
    return getattr(trained.processor, "vocabulary", trained.processor)


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


def embed_texts(
    trained: Trained,
    texts: Sequence[str],
    *,
    pooling: Pooling | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> TextOutputs:
    """The embedding of each text [N, D]; L2-normalised where the task has `normalize_embeddings`.

    The default prompt of a pretrained encoder goes before each text, and its embeddings are truncated at last.

    Args:
      trained: a model with a BERT.
      texts: N of them, at least one.
      pooling: how a text's vector is computed; None = as in the model, or the mean.
      batch_tokens: number of positions in a batch.

    Raises: ValueError when there is no text, or for the pooling pooler without a pooler.
    """
    encoder = encoder_config(trained)
    pooling = pooling or getattr(trained.model.config, "pooling", "mean")
    if pooling == "pooler" and not encoder.use_pooler:
        raise ValueError("this encoder has no pooler; set pooling to cls or mean")
    bert = Bert(encoder, trained.model.vocabulary_size, trained.model.config.compute)
    settings, limit = embedding_settings_of(trained), max_length_of(trained)
    prompt = vocabulary_of(trained).tokenize([settings.prompt], max_length=limit).tokens[0]
    skip = 0 if settings.include_prompt or not settings.prompt else len(prompt) - 1
    compute = functools.partial(_embed, bert, pooling, skip, trained.params["encoder"])
    found = in_batches(trained, [texts], compute, batch_tokens)
    values = l2_normalize(found.values) if getattr(trained.task, "normalize_embeddings", False) else found.values
    return found._replace(values=values[:, : settings.truncate_dim])


@one_or_many
def embed(trained: Trained, texts: Sequence[str], *, pooling: Pooling | None = None) -> np.ndarray:
    """The embedding of each text [N, D] float32, or of one text [D].

    Embeddings are L2-normalised where the task has `normalize_embeddings`.

    Args:
      texts: one text, or a list of N.
      pooling: how a text's vector is computed; None = as in the model, or the mean.

    Raises: ValueError for a blank text, and for the pooling pooler without a pooler.
    """
    return embed_texts(trained, require_texts(texts), pooling=pooling).values


def l2_normalize(vectors: np.ndarray) -> np.ndarray:
    """[N, D] with norm 1; a zero vector stays zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def attend(trained: Trained, text: str, pair: str | None = None, *, max_length: int | None = None) -> TextAttention:
    """The attention weights of the encoder on a text: one map, of its tokens on themselves.

    Args:
      text: the text to read.
      pair: a second text, encoded together with the first even if the task encodes pairs separately: [CLS] text [SEP]
        pair [SEP].
      max_length: maximum length in tokens, special tokens included, at most that of the model; None = that of the
        model.

    Raises: ValueError for a blank text; for a pair if the encoder has no segment embeddings; when `max_length` is too
      short.
    """
    encoder = encoder_config(trained)
    refuse_blank((text,) if pair is None else (text, pair), 1)
    if pair is not None and encoder.num_segments < 2:
        raise ValueError("this encoder has no segment embeddings, so text pairs are not supported; remove the pair")
    limit = max_length_of(trained) if max_length is None else min(max_length, max_length_of(trained))
    vocabulary = vocabulary_of(trained)
    found = vocabulary.tokenize([text], None if pair is None else [pair], max_length=limit)
    (tokens,), (segments,) = found.tokens, found.segments
    bert = Bert(encoder, trained.model.vocabulary_size, trained.model.config.compute)
    weights = _attention(bert, trained.params["encoder"], tokens[None], segments[None])[:, 0]
    names = vocabulary.tokens(tokens)
    maps = AttentionMaps(names, names, np.asarray(weights, np.float32))
    return TextAttention(" | ".join([text, pair] if pair is not None else [text]), (maps,), bool(found.truncated))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _embed(bert: Bert, pooling: Pooling, skip: int, params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    output: Any = bert.apply({"params": params}, tokens[:, 0], None, mask[:, 0])
    return pool(output, mask[:, 0], pooling, skip=skip).astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def _attention(bert: Bert, params: Params, tokens: jax.Array, segments: jax.Array) -> jax.Array:
    return bert.attention_maps(params, tokens, segments)[1]


def in_batches(
    trained: Trained,
    columns: Sequence[Sequence[str]],
    compute: Callable[[np.ndarray, np.ndarray], jax.Array],
    batch_tokens: int,
) -> TextOutputs:
    """The results of `compute` for all rows of S texts, in batches of one shape for each length.

    Args:
      trained: a model with a tokenizer.
      columns: the first text of each row, and for S = 2 the second texts.
      compute: from tokens and mask [B, S, T] to values [B, ...].
      batch_tokens: number of positions in a batch, for each of the S texts.

    Raises: ValueError when there is no text.
    """
    if not columns[0]:
        raise ValueError("there is no text")
    limit, vocabulary = max_length_of(trained), vocabulary_of(trained)
    prompt = embedding_settings_of(trained).prompt
    prompted = [[prompt + text for text in column] for column in columns]
    tokenized = [vocabulary.tokenize(column, max_length=limit) for column in prompted]
    rows = list(zip(*(part.tokens for part in tokenized), strict=True))
    by_length = defaultdict(list)
    for number, row in enumerate(rows):
        length = MIN_LENGTH * _power_of_two(-(-max(map(len, row)) // MIN_LENGTH))
        by_length[min(length, limit)].append(number)
    values: dict[int, np.ndarray] = {}
    for length, numbers in by_length.items():
        size = min(_power_of_two(len(numbers)), max(1, batch_tokens // length))
        for start in range(0, len(numbers), size):
            part = numbers[start : start + size]
            computed = np.asarray(compute(*padded_texts([rows[number] for number in part], size, length)))
            values |= zip(part, computed, strict=False)
    truncated = [number for part in tokenized for number in part.truncated_rows]
    return TextOutputs(np.stack([values[number] for number in range(len(rows))]), truncated)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least the number."""
    return 1 << (number - 1).bit_length()
