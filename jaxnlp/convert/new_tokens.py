"""Embeddings of new tokens of a pretrained model, as Transformers' `resize_token_embeddings` initialises them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxnlp.models import Adopted, ModelConfig
from jaxnlp.models.bert import BertModelConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.word_encoder import NAME, WordEncoderConfig
from jaxnlp.text.byte_pairs import BytePairs
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary, encoder_vocabulary
from jaxnlp.text.translation import TranslationProcessor

_VARIANCE = 1e-9
"""Variance of new rows, relative to that of the others."""


def with_new_tokens(
    adopted: Adopted,
    tokens: Sequence[str],
    *,
    seed: int,
    frozen: Callable[[tuple[str, ...]], bool] = lambda path: False,
) -> Adopted:
    """A pretrained model whose tokenizer has further tokens, with rows for them in its embeddings and its output layer.

    A new row is drawn from a normal distribution with the mean of the other rows and 1e-9 times their covariance; it is
    the mean if that is not positive definite. A new bias of an output layer is 0. Rows without a token are used first,
    unchanged.

    Args:
      adopted: the parts of the pretrained weights that a model uses.
      tokens: distinct texts.
      seed: of the new rows: equal seeds, tokens and weights give equal rows.
      frozen: whether the parameter at a path is not trained.

    Raises: ValueError for models without a pretrained tokenizer, for existing tokens, and for frozen embeddings.

    Source: `resize_token_embeddings(mean_resizing=True)` of Transformers; Hewitt 2021, "Initializing new word
    embeddings for pretrained language models".
    """
    config, processor = adopted.config, adopted.processor
    if not isinstance(processor, EncoderVocabulary | BytePairs | TranslationProcessor):
        raise ValueError(
            f"new tokens need weights with a pretrained tokenizer, got the processor {type(processor).__name__}"
        )
    more = processor.with_tokens(tokens)
    size = more.source.size if isinstance(more, TranslationProcessor) else more.size
    rows = 0

    def extended(path: Any, x: Any) -> Any:
        nonlocal rows
        names = tuple(key.key for key in path)
        axis = config.parameter(names).axes.find("V")
        if axis < 0:
            return x
        if frozen(names):
            raise ValueError(f"new tokens need trained embeddings, but optimizer.frozen keeps {'/'.join(names)}")
        rows = max(size, x.shape[axis])
        draw = np.random.default_rng([seed, *"/".join(names).encode()])
        matrix = np.moveaxis(np.asarray(x, np.float32), axis, 0)
        new = _new_rows(matrix, rows - len(matrix), draw)
        return np.moveaxis(np.concatenate([matrix, new]), 0, axis)

    params = jax.tree_util.tree_map_with_path(extended, adopted.params)
    note = f"{len(tokens)} new token{'s'[: len(tokens) != 1]}: {rows} embeddings"
    padded = _padded(config, rows if size < rows else None)
    return adopted._replace(config=padded, params=params, processor=more, notes=(*adopted.notes, note))


def rows_of_last_tokens(
    config: ModelConfig, processor: Any, count: int
) -> Callable[[tuple[str, ...]], tuple[slice, ...] | None]:
    """The index of the last tokens of a pretrained tokenizer in each parameter that has a row for each token.

    Args:
      config: of the model.
      processor: of its run, with the tokenizer.
      count: number of tokens.

    Returns: path -> an index of the parameter's array; None = no rows of these tokens.
    """
    size = _tokenizer(processor).size

    def rows(path: tuple[str, ...]) -> tuple[slice, ...] | None:
        axis = config.parameter(path).axes.find("V")
        of_words = isinstance(config, WordEncoderConfig) and path[:2] != (NAME, "bert")
        return None if of_words or axis < 0 else (*(slice(None),) * axis, slice(size - count, size))

    return rows


def _tokenizer(processor: Any) -> Any:
    return processor.source if isinstance(processor, TranslationProcessor) else encoder_vocabulary(processor)


def _new_rows(rows: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """New rows [count, ...], drawn from others [V, ...], biases or vectors."""
    if rows.ndim == 1 or not count:
        return np.zeros((count, *rows.shape[1:]), np.float32)
    mean = rows.mean(0, dtype=np.float64)
    centred = rows - np.float32(mean)
    try:
        root = np.linalg.cholesky(_VARIANCE * np.float64(centred.T @ centred / np.float32(len(rows))))
    except np.linalg.LinAlgError:  # not positive definite, as with fewer tokens than dimensions
        root = np.zeros((rows.shape[1],) * 2)
    return (mean + draw.standard_normal((count, rows.shape[1])) @ root.T).astype(np.float32)


def _padded(config: ModelConfig, rows: int | None) -> ModelConfig:
    """A config with this many embeddings; None = as many as its tokenizer has tokens."""
    if isinstance(config, BertModelConfig | WordEncoderConfig):
        encoder = dataclasses.replace(config.encoder, padded_vocabulary_size=rows)
        return dataclasses.replace(config, encoder=encoder)
    if isinstance(config, GPTConfig | EncoderDecoderConfig):
        return dataclasses.replace(config, padded_vocabulary_size=rows)
    raise ValueError(f"a {type(config).__name__} takes no new tokens")
