"""The best spans of a text by the scores of their first and last tokens."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.largest import top_k


class BestSpans(NamedTuple):
    """The best spans of each text, the best first.

    Attributes:
      spans: first and last token [B, k, 2] int32.
      log_probs: of the spans [B, k]; -inf where a text has fewer than k spans.
      no_answer: log-probability that the text has no answer [B].
    """

    spans: jax.Array
    log_probs: jax.Array
    no_answer: jax.Array


def best_spans(scores: jax.Array, answer_mask: jax.Array, *, max_tokens: int, k: int) -> BestSpans:
    """The k spans (i, j) with the largest log p_first(i) + log p_last(j), where i <= j < i + max_tokens.

    p_first and p_last are the softmax of the scores over the tokens of their mask. Token 0 means no answer: its
    log-probability is log p_first(0) + log p_last(0), and it is in no span.

    Args:
      scores: [B, T, 2] float, of each token as the first and as the last one.
      answer_mask: [B, T, 2] bool, True for the tokens that may be the first and the last one, and for token 0.
      max_tokens: W, the longest span.
      k: number of spans.

    Source: Devlin et al. 2019, sections 4.2 and 4.3. Differs: probabilities, so that windows of one text compare.
    """
    fit = scores.ndim == 3 and scores.shape[2] == 2 and answer_mask.shape == scores.shape
    expect(fit, "scores [B, T, 2], answer_mask [B, T, 2]", scores=scores, answer_mask=answer_mask)
    expect_float(scores=scores)
    batch, length, _ = scores.shape
    log_probs = jax.nn.log_softmax(scores, axis=1, where=answer_mask)
    inside = jnp.where(answer_mask, log_probs, -jnp.inf).at[:, 0].set(-jnp.inf)
    first, last = inside[..., 0], jnp.pad(inside[..., 1], [(0, 0), (0, max_tokens - 1)], constant_values=-jnp.inf)
    stops = jnp.arange(length)[:, None] + jnp.arange(max_tokens)[None]
    joint = (first[:, :, None] + last[:, stops]).reshape(batch, -1)
    joint = jnp.pad(joint, [(0, 0), (0, max(0, k - max_tokens))], constant_values=-jnp.inf)
    values, indices = top_k(joint, k)
    starts = indices // max_tokens
    spans = jnp.stack([starts, starts + indices % max_tokens], axis=-1)
    return BestSpans(spans, values, log_probs[:, 0].sum(axis=-1))
