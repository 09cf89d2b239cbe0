"""Attention of a classifier to a text."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxnlp.images.processor import ImageProcessor
from jaxnlp.inference.batches import Shape, in_batches
from jaxnlp.ops.compiler_options import jit
from jaxnlp.pages.attention_page import AttentionMaps, TextAttention
from jaxnlp.tasks import Trained
from jaxnlp.tasks.attention import require_attention
from jaxnlp.tasks.bert_verbs import encodings
from jaxnlp.tasks.classification.inputs import Chunk, batch_shapes, read_chunk
from jaxnlp.text.blank_texts import refuse_blank
from jaxnlp.typing import Params

POOLED = "the text"
"""Name of the row with the weights of a text's pooling."""


def attend(trained: Trained, text: str, pair: str | None = None, *, max_length: int | None = None) -> TextAttention:
    """The attention weights on a text: of a BERT all layers and heads, of a recurrent network those of its pooling.

    Args:
      text: the text to read.
      pair: a second text; only a BERT reads it, together with the first: [CLS] text [SEP] pair [SEP].
      max_length: of a BERT, in tokens, special tokens included; None = that of the model.

    Raises: ValueError for a blank text, and for a model that does not attend to texts.
    """
    if isinstance(trained.processor, ImageProcessor):
        raise ValueError(f"attend reads texts, but {trained.name} reads images; draw their maps with: jaxnlp attention")
    if encodings.has_bert(trained.model):
        return encodings.attend(trained, text, pair, max_length=max_length)
    require_attention(trained)
    if pair is not None or max_length is not None:
        raise ValueError("pair and max_length apply only to a BERT; remove them")
    refuse_blank((text,))
    chunk = read_chunk(trained.processor, [(text,)])
    ((names, weights),) = word_weights(trained, chunk)
    maps = AttentionMaps([POOLED], names, weights[None, None, None], row_positions=(None,))
    return TextAttention(text, (maps,), bool(chunk.truncated))


def word_weights(trained: Trained, chunk: Chunk) -> list[tuple[list[str], np.ndarray]]:
    """The tokens of each answered text of a chunk, and their weights in the pooling [T] float32."""

    def compute(indices: Sequence[int], shape: Shape) -> Any:
        batch = chunk.batch(indices, shape)
        tokens, mask = batch["tokens"], batch["attention_mask"]
        return _attention_weights(trained.model, trained.params, tokens, mask), tokens, mask

    results = in_batches(chunk.lengths, batch_shapes(trained.processor), compute)
    read = trained.processor.vocabulary.tokens
    return [(read(tokens[seen]), np.asarray(shares[seen], np.float32)) for shares, tokens, seen in results]


@functools.partial(jit, static_argnums=0)
def _attention_weights(model: Any, params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return model.attention_weights(params, tokens, mask)
