"""Attention of a translator: `jaxnlp attention RUN SOURCE [TARGET]`."""

import dataclasses
from typing import Any

import numpy as np
import tyro

from jaxnlp.ops.compiler_options import jit
from jaxnlp.pages.attention_page import AttentionMaps, TextAttention
from jaxnlp.tasks import Trained
from jaxnlp.tasks.attention import Attention
from jaxnlp.tasks.translation.commands import max_source_length, search, sources_of
from jaxnlp.tasks.translation.search import SearchOptions
from jaxnlp.text.blank_texts import refuse_blank
from jaxnlp.text.translation import TranslationProcessor


@dataclasses.dataclass(frozen=True)
class TranslationAttention(Attention):
    """Draws the attention weights of encoder and decoder on a text and its translation, as a page.

    `jaxnlp translate --alignment` shows many translations at once, with the mean over the heads of the last layer.
    """

    target: tyro.conf.Positional[str | None] = None
    """The translation; None = the model's own, by greedy search."""

    def second(self) -> str | None:
        return self.target


def attend(trained: Trained, text: str, target: str | None = None, *, max_length: int | None = None) -> TextAttention:
    """The attention weights on a source and a target.

    Args:
      text: the source.
      target: its translation; None = the model's own, by greedy search.
      max_length: of each in tokens, at most the model's; None = the model's.

    Returns:
      Maps of the encoder on itself, of the decoder on itself, and `cross`, of the decoder on the source. A row of
      `cross` is named after its predicted token, and a row of the decoder after its input. A recurrent model has only
      `cross`.

    Raises: ValueError for a blank text.
    """
    model: Any = trained.model
    processor: TranslationProcessor = trained.processor
    limit = max_source_length(trained)
    limit = limit if max_length is None else min(max_length, limit)
    if limit < 1:
        raise ValueError(f"max_length must be at least 1, got {limit}")
    refuse_blank((text,))
    kept, too_long = sources_of(processor, [text], limit)
    if target is None:
        written = search(trained, [kept[0]], SearchOptions(num_beams=1))[0][0].tokens
        end = processor.target.end
        written = written[: written.index(end) + 1 if end in written else len(written)]
        target = processor.target.decode(written)
    else:
        written = processor.encode_target(target)
    truncated = bool(too_long) or len(written) > limit
    written = written[:limit]
    inputs = [processor.target.start, *written[:-1]]
    weights = jit(model.attention_maps)(trained.params, np.array([kept[0]]), np.array([inputs]))
    read, predicted = processor.source.tokens(kept[0]), processor.target.tokens(written)
    given = processor.target.tokens(inputs)
    names = {"encoder": (read, read), "decoder": (given, given), "cross": (predicted, read)}
    maps = tuple(
        AttentionMaps(
            *names[name],
            np.asarray(weights[name], np.float32)[:, 0],
            "cross-attention" if name == "cross" else name,
            np.tri(len(inputs), dtype=bool) if name == "decoder" else None,
        )
        for name in names
        if name in weights
    )
    title = f"{text} | {target}" if target.strip() else f"{text} (empty translation)"
    return TextAttention(title, maps, truncated)
