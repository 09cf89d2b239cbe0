"""Attention of a language model to a text."""

from typing import Any

import numpy as np

from jaxnlp.input_files.text_files import line_feeds
from jaxnlp.models.gpt import AttentionAxis
from jaxnlp.ops.compiler_options import jit
from jaxnlp.pages.attention_page import AttentionMaps, TextAttention
from jaxnlp.tasks import Trained
from jaxnlp.tasks.attention import require_attention
from jaxnlp.tasks.language_model.prompts import decode_continuation
from jaxnlp.text.raw_texts import require_texts

WHITESPACE_SIGNS = str.maketrans({" ": "\u2423", "\n": "\u23ce", "\t": "\u21e5"})
"""Signs for white space, which is invisible in a token."""


def attend(trained: Trained, text: str, *, max_length: int | None = None) -> TextAttention:
    """The attention weights of a decoder on a text. No position sees later ones.

    A Perceiver has maps of its latents on the tokens, of the latents on themselves, and of the tokens on the latents.

    Args:
      text: the text to read.
      max_length: in tokens, at most the model's context; None = the context.

    Raises: ValueError for a model without attention, and a text that is empty or not in the vocabulary.
    """
    model: Any = trained.model
    require_attention(trained)
    limit = model.capacity if max_length is None else min(max_length, model.capacity)
    if limit < 1:
        raise ValueError(f"max_length must be at least 1, got {limit}")
    (text,) = require_texts((text,), "a text")
    text = line_feeds(text)
    ids = trained.processor.encode(text)
    if not len(ids):
        raise ValueError("the text has no tokens")
    read = ids[:limit]
    weights = jit(model.attention_maps)(trained.params, read[None])
    names = [_name(trained.processor, token) for token in read]
    maps = []
    for name, (rows, columns) in model.attention_axes(len(read)).items():
        if name in weights:  # a Perceiver may have no blocks
            maps.append(
                AttentionMaps(
                    _named(rows, names),
                    _named(columns, names),
                    np.asarray(weights[name])[:, 0],
                    name.replace("_", " "),
                    rows.see(columns),
                    _positions(rows),
                    _positions(columns),
                )
            )
    if len(maps) == 1:
        maps = [maps[0]._replace(name="")]
    return TextAttention(text, tuple(maps), len(ids) > len(read))


def _name(vocabulary: Any, token: int) -> str:
    """The text of a token, with signs for white space."""
    return decode_continuation(vocabulary, [token]).translate(WHITESPACE_SIGNS)


def _named(axis: AttentionAxis, tokens: list[str]) -> list[str]:
    latents = [f"latent {number}" for number in range(1, axis.latents + 1)]
    return [*latents, *(tokens[position] for position in axis.positions[axis.latents :])]


def _positions(axis: AttentionAxis) -> tuple[int | None, ...]:
    """Positions in the text, from 1; None for latents."""
    return (*[None] * axis.latents, *(position + 1 for position in axis.positions[axis.latents :]))
