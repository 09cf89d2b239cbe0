"""What a trained encoder says about texts: answers to tasks, vectors, and what attends to what.

`jaxnlp.encoders` reads a `TextModel` from a folder, and makes one of a BERT that has no tasks.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxnlp.models.bert import Bert
from jaxnlp.models.text_tasks import TextTasks
from jaxnlp.text.tasks import TASKS, TaskName
from jaxnlp.text.wordpiece import WordPieceVocabulary, padded_texts
from jaxnlp.typing import Params

BATCH_TOKENS = 4096
"""Positions in a batch, padding among them: more would be no faster on a CPU."""
SHORTEST = 16
"""Texts are padded to this length, or to 2, 4, 8, ... times it: each length is a program to compile."""


class TextModel(NamedTuple):
    """A trained encoder and what it says of texts.

    Attributes:
      model: encoder and heads.
      params: of the model, on a device.
      vocabulary: how texts are cut.
      longest: tokens of a text that are read, special ones among them.
      unit_vectors: whether its vectors of texts are 1 long, as those of sentence-transformers' Normalize.
    """

    model: TextTasks
    params: Params
    vocabulary: WordPieceVocabulary
    longest: int
    unit_vectors: bool = False


class Outcome(NamedTuple):
    """A value for each text, in their order.

    Attributes:
      values: [N, ...] float32.
      truncated: how many texts were longer than the model reads, and were cut.
    """

    values: np.ndarray
    truncated: int


def predict_texts(
    text_model: TextModel,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    task: TaskName,
    batch_tokens: int = BATCH_TOKENS,
) -> Outcome:
    """Answers to a task.

    Texts of like length are read together, so that a value depends on what else is asked by rounding alone.

    Args:
      text_model: the model.
      texts: N of them, at least one.
      pairs: the second text of each, where the task is about two.
      task: one of the model's.
      batch_tokens: positions read at once, of each text of a pair.

    Returns:
      Of a classification the probabilities of its classes [N, C]. Of a paraphrase the probability of the texts meaning
      the same [N]. Of a similarity a score on the scale of its labels, such as 0 to 5 [N].

    Raises:
      ValueError: when the model has no such task; when there is no text, or not a pair for each one where there should
        be, or pairs where there should be none.
    """
    tasks = text_model.model.config.tasks
    if task not in tasks:
        raise ValueError(f"the model has no task {task}; it has {', '.join(tasks)}")
    if (pairs is None) != (TASKS[task].texts == 1):
        about = "one text: leave out pairs" if TASKS[task].texts == 1 else "two texts: give pairs"
        raise ValueError(f"{task} is about {about}")
    if pairs is not None and len(pairs) != len(texts):
        raise ValueError(f"each text needs its pair, got {len(texts)} texts and {len(pairs)} pairs")
    columns = [texts] if pairs is None else [texts, pairs]
    return _read(
        text_model, columns, functools.partial(answers, text_model.model, text_model.params, task), batch_tokens
    )


def embed_texts(text_model: TextModel, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS) -> Outcome:
    """The vector of each text, pooled as the model's config has it, and 1 long where it has `unit_vectors` [N, D].

    Args: as `predict_texts`.

    Raises:
      ValueError: when there is no text.
    """
    found = _read(text_model, [texts], functools.partial(_vectors, text_model.model, text_model.params), batch_tokens)
    return found._replace(values=units(found.values)) if text_model.unit_vectors else found


def units(vectors: np.ndarray) -> np.ndarray:
    """[N, D] as long as 1; a zero vector stays one."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class AttentionMaps(NamedTuple):
    """What attends to what.

    Attributes:
      pieces: of the text, T of them.
      weights: of all layers and heads [L, H, T, T] float32; row t is what piece t attends to, and sums to 1.
      truncated: whether the text was longer than allowed, and was cut.
    """

    pieces: list[str]
    weights: np.ndarray
    truncated: bool


def attend_text(
    text_model: TextModel, text: str, pair: str | None = None, *, longest: int | None = None
) -> AttentionMaps:
    """The attention weights of the encoder on a text.

    Args:
      text_model: the model.
      text: what is read.
      pair: a second text, read together with the first: [CLS] text [SEP] pair [SEP]. Tasks read theirs apart.
      longest: tokens at most, special ones among them, of those that the model reads; None = all of these.

    Raises:
      ValueError: for a pair where the encoder tells no second texts apart; when `longest` is too short.
    """
    config = text_model.model.config.encoder
    if pair is not None and config.num_segments < 2:
        raise ValueError("this encoder has one kind of segment, and tells no second text apart: leave out the pair")
    longest = text_model.longest if longest is None else min(longest, text_model.longest)
    found = text_model.vocabulary.tokenize([text], None if pair is None else [pair], longest=longest)
    (tokens,), (segments,) = found.tokens, found.segments
    weights = _attention(text_model.model, text_model.params["encoder"], tokens[None], segments[None])[:, 0]
    return AttentionMaps(text_model.vocabulary.pieces(tokens), np.asarray(weights, np.float32), bool(found.truncated))


@functools.partial(jax.jit, static_argnums=(0, 2))
def answers(model: Any, params: Params, name: str, tokens: ArrayLike, attention_mask: ArrayLike) -> jax.Array:
    """What `predict_texts` returns, of texts that are tokens already.

    Args:
      model: a `TextTasks`.
      params: of the model.
      name: of one of its tasks.
      tokens: [B, S, T] int, S texts a row as the task has them.
      attention_mask: where they are no padding [B, S, T] bool.
    """
    task = TASKS[name]
    answer = model.apply({"params": params}, tokens, attention_mask, name)
    if task.kind == "classification":
        return jax.nn.softmax(answer, axis=-1)
    if task.kind == "paraphrase":
        return jax.nn.sigmoid(answer)
    return jnp.clip(answer, 0.0, 1.0) * float(task.labels)


def labels_of(name: str, answers: np.ndarray) -> np.ndarray:
    """The labels [N] float32 that answers to a task mean: the likeliest class, the likelier of two, or the score."""
    kind = TASKS[name].kind
    if kind == "classification":
        answers = answers.argmax(axis=-1)
    elif kind == "paraphrase":
        answers = answers > 0.5
    return answers.astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def _vectors(model: Any, params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return model.apply({"params": params}, tokens, mask, method="embed")[:, 0].astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def _attention(model: Any, params: Params, tokens: jax.Array, segments: jax.Array) -> jax.Array:
    return Bert(model.config.encoder, model.vocabulary_size, model.config.compute).attention_maps(
        params, tokens, segments
    )[1]


def _read(
    text_model: TextModel,
    columns: Sequence[Sequence[str]],
    compute: Callable[[np.ndarray, np.ndarray], jax.Array],
    batch_tokens: int,
) -> Outcome:
    """`compute` of all rows, each a text or two, in batches of one shape for each length."""
    if not columns[0]:
        raise ValueError("there is no text")
    longest = text_model.longest
    tokenized = [text_model.vocabulary.tokenize(column, longest=longest) for column in columns]
    rows = list(zip(*(part.tokens for part in tokenized), strict=True))
    by_length = defaultdict(list)
    for number, row in enumerate(rows):
        length = SHORTEST * _power_of_two(-(-max(map(len, row)) // SHORTEST))
        by_length[min(length, longest)].append(number)
    values: dict[int, np.ndarray] = {}
    for length, numbers in by_length.items():
        size = min(_power_of_two(len(numbers)), max(1, batch_tokens // length))
        for start in range(0, len(numbers), size):
            part = numbers[start : start + size]
            computed = np.asarray(compute(*padded_texts([rows[number] for number in part], size, length)))
            values |= zip(part, computed, strict=False)
    return Outcome(np.stack([values[number] for number in range(len(rows))]), sum(p.truncated for p in tokenized))


def _power_of_two(number: int) -> int:
    """The least that is not below."""
    return 1 << (number - 1).bit_length()
