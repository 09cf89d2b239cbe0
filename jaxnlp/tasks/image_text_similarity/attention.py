"""Attention of a text encoder."""

from typing import Any

import numpy as np

from jaxnlp.models.gpt import GPT
from jaxnlp.ops.compiler_options import jit
from jaxnlp.pages.attention_page import AttentionMaps, TextAttention
from jaxnlp.tasks import Trained
from jaxnlp.tasks.image_text_similarity.embeddings import text_encoder
from jaxnlp.text.blank_texts import refuse_blank
from jaxnlp.text.raw_texts import require_texts


def attend(trained: Trained, text: str, *, max_length: int | None = None) -> TextAttention:
    """The attention weights of the text encoder on a text. No token sees later ones.

    Args:
      text: the text to read.
      max_length: maximum length in tokens, special tokens included; None = that of the model.

    Raises: ValueError for a blank text, and when `max_length` is too short.
    """
    (text,) = require_texts((text,), "a text")
    refuse_blank((text,))
    (model, params), vocabulary = text_encoder(trained.model, trained.params), trained.processor.vocabulary
    most = trained.processor.max_length
    tokenized = vocabulary.tokenize([text], max_length=most if max_length is None else min(max_length, most))
    (tokens,) = tokenized.tokens
    decoder: Any = GPT(model.config, model.vocabulary_size)
    weights = np.asarray(jit(decoder.attention_maps)(params["decoder"], tokens[None])["blocks"])[:, 0]
    names, (rows, columns) = vocabulary.tokens(tokens), decoder.attention_axes(len(tokens))["blocks"]
    maps = AttentionMaps(names, names, weights, visible=rows.see(columns))
    return TextAttention(text, (maps,), bool(tokenized.truncated))
