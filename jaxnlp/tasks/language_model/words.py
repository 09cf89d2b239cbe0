"""Sections of the report on word language models: perplexity by position, and nearest neighbours of words."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.corpus import NumpyBatch, Split
from jaxnlp.ops.compiler_options import jit
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.pages.content import Line, Lines, Table
from jaxnlp.tasks import Scoring, Section
from jaxnlp.text.words import WordVocabulary
from jaxnlp.typing import Array, Batch, Params

MAX_SCORED = 16_000
"""Approximate number of words for the curve by position."""
MAX_COUNTED = 100_000
"""Approximate number of training words for the counts of frequent words."""
RANKS = (10, 30, 60, 100, 200, 300, 500, 1000)
"""Ranks, by frequency, of the words whose neighbours are shown."""
MIN_LETTERS = 3
"""Minimum length of such a word."""
NEIGHBOURS = 6
"""Number of neighbours shown for each word."""
MAX_PERPLEXITY = 50.0
"""Maximum loss in nats with a perplexity; larger ones would be meaningless."""


def word_sections(scoring: Scoring) -> list[Section]:
    """Perplexity by position in a row, without context before the row; and nearest embeddings."""
    vocabulary, params = scoring.trained.processor, scoring.whole_params()
    losses, neighbours, ids = _programs(scoring)
    measured = [losses(params, batch) for batch in some_batches(scoring.split, MAX_SCORED)]
    sums, counts = (np.array(part, np.float64).sum(axis=0) for part in zip(*jax.device_get(measured), strict=True))
    sums, counts = sums[counts > 0], counts[counts > 0]
    perplexities = np.exp(np.minimum(sums / counts, MAX_PERPLEXITY))
    curve = Line("perplexity", tuple(range(1, 1 + len(counts))), tuple(perplexities.round(2).tolist()))
    note = (
        "At position 1 a word is predicted from one earlier word, at position 2 from two. "
        f"Means over {int(counts.sum()):,} validation words; rows have no context before their start."
    )
    words, rows = vocabulary.words, []
    if ids:
        for index, near, cosines in zip(ids, *map(np.asarray, neighbours(params)), strict=True):
            listed = ", ".join(f"{words[j]} {cosine:.2f}" for j, cosine in zip(near, cosines, strict=True))
            rows.append((words[index], listed))
    return [
        Section("Perplexity by position", Lines((curve,), "position", "perplexity", note)),
        Section("Nearest embeddings", Table(("word", "nearest words, with their cosine"), tuple(rows))),
    ]


def compile_word_sections(scoring: Scoring) -> None:
    """Starts to compile the programs of `word_sections`."""
    params, (losses, neighbours, ids) = scoring.whole_params(), _programs(scoring)
    for batch in scoring.split.shapes:
        scoring.compile(losses, params, batch)
    if ids:
        scoring.compile(neighbours, params)


def _programs(scoring: Scoring) -> tuple[Any, Any, tuple[int, ...]]:
    """The losses by position; the nearest words of frequent ones, and the ids of these."""
    assert scoring.training is not None
    model = scoring.trained.model
    ids = scoring.once(frequent_words, scoring.trained.processor, scoring.training)
    return scoring.once(_jitted, position_losses, model), scoring.once(_jitted, _neighbours, model, ids), ids


def _jitted(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    return jit(functools.partial(function, *arguments))


def _neighbours(model: Any, ids: tuple[int, ...], params: Params) -> tuple[Array, Array]:
    return nearest(model.embeddings(params), jnp.array(ids))


def position_losses(model: Any, params: Params, batch: Batch) -> tuple[Array, Array]:
    """Sums of the losses in nats, and their counts, at each position of a batch's rows, [T] each."""
    logits = model.apply({"params": params}, batch["tokens"])
    losses = jax.vmap(cross_entropy, in_axes=1)(logits, batch["targets"], batch["loss_mask"])
    return losses.nll, losses.count


def frequent_words(vocabulary: WordVocabulary, split: Split) -> tuple[int, ...]:
    """Ids of the words of only letters at RANKS, most frequent first; fewer in a small text."""
    counts = np.zeros(vocabulary.size, np.int64)
    for batch in some_batches(split, MAX_COUNTED):
        counts += np.bincount(batch["targets"][batch["loss_mask"]], minlength=vocabulary.size)
    in_order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    words = ((int(index), vocabulary.words[index]) for index in in_order)
    fitting = [index for index, word in words if word.isalpha() and len(word) >= MIN_LETTERS]
    return tuple(fitting[rank - 1] for rank in RANKS if rank <= len(fitting))


def nearest(embeddings: Array, ids: Array) -> tuple[Array, Array]:
    """The nearest other words by cosine, and their cosines, nearest first [N, NEIGHBOURS] each.

    Args:
      embeddings: [V, D]; with fewer than NEIGHBOURS + 1 words, the result has all others.
      ids: [N] int.
    """
    embeddings = embeddings.astype(jnp.float32)
    lengths = jnp.linalg.norm(embeddings, axis=1, keepdims=True)
    directions = embeddings / jnp.maximum(lengths, jnp.finfo(jnp.float32).tiny)
    cosines = directions[ids] @ directions.T
    cosines = cosines.at[jnp.arange(len(ids)), ids].set(-jnp.inf)
    values, near = jax.lax.top_k(cosines, min(NEIGHBOURS, len(embeddings) - 1))
    return near, values


def some_batches(split: Split, tokens: int) -> Iterator[NumpyBatch]:
    """Evenly spaced batches, of about this many tokens in total, at least one."""
    total = len(split.batches)
    chosen = min(total, -(-tokens // split.batches[0]["tokens"].size))
    for index in range(chosen):
        yield split.batches[index * total // chosen]
