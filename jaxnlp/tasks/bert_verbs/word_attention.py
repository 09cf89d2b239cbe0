"""Attention weights of the BERT of a tagger or a parser."""

import dataclasses
from typing import Any

from jaxnlp.models.bert import Bert
from jaxnlp.models.word_encoder import NAME
from jaxnlp.pages.attention_page import AttentionMaps, TextAttention
from jaxnlp.tasks import Trained
from jaxnlp.tasks.attention import require_attention
from jaxnlp.tasks.bert_verbs.encodings import attention_of
from jaxnlp.text.raw_texts import require_texts
from jaxnlp.text.word_inputs import WordInputs
from jaxnlp.text.word_split import split_words


def attend(trained: Trained, text: str, *, max_length: int | None = None) -> TextAttention:
    """The attention weights of a BERT on the words of a text: one map, of its tokens on themselves.

    Args:
      text: one sentence; a longer one than the model reads is truncated after a word.
      max_length: maximum length in tokens, special tokens included; None = that of the model.

    Raises: ValueError for a model without a BERT, and for a text without words.
    """
    config: Any = trained.model.config
    require_attention(trained)
    inputs: WordInputs = trained.processor.inputs
    if max_length is not None:
        inputs = dataclasses.replace(inputs, max_pieces=min(max_length, inputs.max_pieces))
    require_texts((text,), "a text")
    words = [word.word for word in split_words(text, getattr(trained.processor, "unit", "words"))]
    if not words:
        raise ValueError("the text has no words")
    read = words[inputs.parts(words)[0]]
    tokens = inputs.encode(read)["pieces"]
    *_, num_pieces = config.sizes(inputs)
    bert = Bert(config.encoder, num_pieces, config.compute)
    params = trained.params[NAME]["bert"]
    weights = attention_of(bert, params, tokens, None, trained.processor.inputs.longest)
    assert inputs.pieces is not None
    names = inputs.pieces.tokens(tokens)
    maps = AttentionMaps(names, names, weights)
    return TextAttention(text, (maps,), len(read) < len(words))
