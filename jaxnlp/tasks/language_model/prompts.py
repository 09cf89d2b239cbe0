"""Prompts of samples, and continuations of texts."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from jaxnlp.corpus import DataError
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.byte_pairs import BytePairs
from jaxnlp.text.encoder_texts import EncoderTexts
from jaxnlp.text.words import WordVocabulary

_logger = logging.getLogger(__name__)
PART_OF_CHARACTER = "\ufffd"
"""The character for incomplete ones in decoded bytes."""


def known_prompt(prompt: str, vocabulary: Any) -> str:
    """The prompt, or the vocabulary's first token if the prompt has unknown tokens."""
    try:
        tokens = vocabulary.encode(prompt)
    except UnknownTokenError:
        return vocabulary.decode([0])
    # A vocabulary of words without a line end reads a line break as white space.
    return prompt if len(tokens) or not prompt else vocabulary.decode([0])


def count_unknown(vocabulary: Any, text: str) -> int:
    """Number of a text's unknown words, for a vocabulary with an unknown word; 0 for others."""
    return vocabulary.count_unknown(text) if isinstance(vocabulary, WordVocabulary) else 0


def encode_continuation(vocabulary: Any, text: str) -> Any:
    """The ids of a text that continues another one: without the start token, if any."""
    if isinstance(vocabulary, BytePairs | EncoderTexts):
        return vocabulary.encode(text, starts=False)
    return vocabulary.encode(text)


def decode_continuation(vocabulary: Any, ids: Iterable[int]) -> str:
    """The text of ids that continue another text: a start token among them is part of it."""
    return vocabulary.decode(ids, starts=False) if isinstance(vocabulary, BytePairs) else vocabulary.decode(ids)


def is_complete(vocabulary: Any, ids: Sequence[int], text: str) -> bool:
    """Whether later tokens cannot change the text of these ids: it does not end with an incomplete character."""
    in_bytes = isinstance(vocabulary, BytePairs) and vocabulary.is_byte(ids[-1])
    return not (in_bytes or text.endswith(PART_OF_CHARACTER))


def check_prompt(prompt: str, max_length: int | None, vocabulary: Any) -> None:
    """Checks `task.sample_prompt` before training, with a note when samples start with another prompt; see
    `known_prompt`.

    Args:
      prompt: as given.
      max_length: of the model; None = any length.
      vocabulary: of the data.

    Raises: DataError for an empty prompt, and for one that is longer than the context.
    """
    known = known_prompt(prompt, vocabulary)
    if known != prompt:
        _logger.warning(
            "--task.sample-prompt %r is not in the vocabulary of this data; samples start with %r", prompt, known
        )
    prompt = known
    length = len(vocabulary.encode(prompt))
    if not length or (max_length is not None and length > max_length):
        expected = "at least one token" if max_length is None else f"1 to {max_length} tokens"
        raise DataError(
            f"--task.sample-prompt {prompt!r}: expected {expected}, got {length}. Give another prompt, or None for no "
            "samples"
        )
