"""What a word language model has learnt, for people to read: how context helps, and which words are near to which."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from data import NumpyBatch, Split
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.text.words import WordVocabulary
from jaxnlp.typing import Array, Batch, Params

MOST_SCORED = 16_000
"""Words whose likelihood is measured, about."""
MOST_COUNTED = 100_000
"""Words of the training text that are counted to find the frequent ones, about."""
RANKS = (10, 30, 60, 100, 200, 300, 500, 1000)
"""Places, by frequency, of the words whose neighbours are shown."""
SHORTEST = 3
"""Letters of such a word."""
NEIGHBOURS = 6
"""Of each word."""


def describe(
    model: Any, params: Params, vocabulary: WordVocabulary, *, training: Split, validation: Split
) -> dict[str, Any]:
    """What the report says about words, as JSON.

    Args:
      model: a Linen module that scores next tokens and has `embeddings`.
      params: its parameters.
      vocabulary: what its tokens mean.
      training: where frequent words are looked for.
      validation: what is scored.

    Returns:
      `positions`: the mean negative log-likelihood in nats at each position of the batches' rows, each row read with
      nothing before it; `scored`: of how many words; `neighbours`: of some frequent words, the words of the nearest
      embeddings, each with its cosine.
    """
    sums, counts = position_losses(model, params, validation)
    ids = frequent_words(vocabulary, training)
    near, cosines = nearest(np.asarray(model.embeddings(params), np.float32), ids)
    words = vocabulary.words
    neighbours = [
        {"word": words[i], "near": [[words[j], round(float(cosine), 3)] for j, cosine in zip(*row, strict=True)]}
        for i, *row in zip(ids, near, cosines, strict=True)
    ]
    return {"positions": (sums / counts).round(4).tolist(), "scored": int(counts.sum()), "neighbours": neighbours}


def position_losses(model: Any, params: Params, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Sum and number of the losses in nats at each position of a row, [T] each, up to the last that has some."""
    found = [_position_losses(model, params, batch) for batch in some_batches(split, MOST_SCORED)]
    sums, counts = (np.array(part, np.float64).sum(axis=0) for part in zip(*jax.device_get(found), strict=True))
    return sums[counts > 0], counts[counts > 0]


@functools.partial(jax.jit, static_argnums=0)
def _position_losses(model: Any, params: Params, batch: Batch) -> tuple[Array, Array]:
    logits = model.apply({"params": params}, batch["tokens"])
    losses = jax.vmap(cross_entropy, in_axes=1)(logits, batch["targets"], batch["loss_mask"])
    return losses.nll, losses.count


def frequent_words(vocabulary: WordVocabulary, split: Split) -> list[int]:
    """Ids of the words at places RANKS among those of letters alone, most frequent first; of a small text, fewer."""
    counts = np.zeros(vocabulary.size, np.int64)
    for batch in some_batches(split, MOST_COUNTED):
        counts += np.bincount(batch["targets"][batch["loss_mask"]], minlength=vocabulary.size)
    in_order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    fitting = [int(i) for i in in_order if vocabulary.words[i].isalpha() and len(vocabulary.words[i]) >= SHORTEST]
    return [fitting[rank - 1] for rank in RANKS if rank <= len(fitting)]


def nearest(embeddings: np.ndarray, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The NEIGHBOURS nearest to some embeddings by cosine, or all others where there are fewer.

    Args:
      embeddings: [V, D].
      ids: N of them.

    Returns:
      Ids [N, NEIGHBOURS], nearest first, and the cosines [N, NEIGHBOURS].
    """
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    directions = embeddings / np.maximum(lengths, np.finfo(embeddings.dtype).tiny)
    cosines = directions[list(ids)] @ directions.T
    cosines[np.arange(len(ids)), list(ids)] = -np.inf  # none is its own neighbour
    near = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(embeddings) - 1)]
    return near, np.take_along_axis(cosines, near, axis=1)


def some_batches(split: Split, tokens: int) -> Iterator[NumpyBatch]:
    """Batches at even distances, of about so many tokens together, and one at least."""
    total = len(split.batches)
    number = min(total, -(-tokens // split.batches[0]["tokens"].size))
    for i in range(number):
        yield split.batches[i * total // number]
