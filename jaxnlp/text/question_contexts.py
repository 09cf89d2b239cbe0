"""Questions about a context, such as an article, and the windows of tokens to search for the answer."""

import dataclasses
import functools
import logging
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from tokenizers import Encoding

from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.padding import padded, row_mask

MAX_QUESTION = 64
"""Maximum number of tokens of a question, or half of a window if that is less; longer ones are truncated."""
CHUNK = 64
"""Number of texts to tokenize at once; the `tokenizers` library needs 100 bytes for each token."""


_logger = logging.getLogger(__name__)


class AnswerSpan(NamedTuple):
    """A span of a context: its first character, the one after its last, and its text."""

    start: int
    stop: int
    text: str


@dataclasses.dataclass(frozen=True)
class ContextQuestion:
    """A question about a context.

    Attributes:
      name: its id in files of predictions.
      answers: right ones; () = the context has no answer; None = not known.
    """

    name: str
    question: str
    context: str
    answers: tuple[AnswerSpan, ...] | None = None


class ContextWindow(NamedTuple):
    """A question with a part of its context: [CLS] question [SEP] part [SEP].

    Attributes:
      question_index: of the question among all.
      tokens: ids [T].
      segments: 0 up to the first [SEP], 1 after it [T].
      offsets: the first character of each token of the context, and the one after its last [T, 2]; 0 for other tokens.
      edges: whether an answer may start and end with a token [T, 2] bool: those at the edges of words, and [CLS] for no
        answer.
    """

    question_index: int
    tokens: np.ndarray
    segments: np.ndarray
    offsets: np.ndarray
    edges: np.ndarray

    def tokens_of(self, answers: Sequence[AnswerSpan]) -> tuple[int, int]:
        """The first and the last token of the first answer, or token 0, [CLS], twice if it is not whole in the
        window."""
        starts, stops = self.offsets.T
        for answer in answers[:1]:
            inside = np.flatnonzero((stops > answer.start) & (starts < answer.stop))
            if inside.size and starts[stops > 0][0] <= answer.start and answer.stop <= stops.max():
                first = np.flatnonzero(self.edges[: inside[0] + 1, 0])[-1]
                lasts = np.flatnonzero(self.edges[inside[-1] :, 1]) + inside[-1]
                if first and lasts.size:
                    return int(first), int(lasts[0])
        return 0, 0


@dataclasses.dataclass(frozen=True)
class QuestionProcessor:
    """Reads questions and contexts as windows. Equal by value.

    Attributes:
      vocabulary: the tokenizer.
      max_length: maximum length of a window in tokens, special tokens included.
      overlap: number of tokens of the context that two consecutive windows share.
    """

    vocabulary: EncoderVocabulary
    max_length: int
    overlap: int

    def __post_init__(self):
        special = self.vocabulary.min_length(2) - 2
        if self.max_length < 5 + special:
            raise ValueError(f"max_length must be at least {5 + special}, got {self.max_length}")
        most = self.max_overlap(self.max_length, special)
        if not 0 <= self.overlap <= most:
            raise ValueError(
                f"overlap must be from 0 to {most} for windows of {self.max_length} tokens, got {self.overlap}"
            )

    @staticmethod
    def max_overlap(max_length: int, special: int = 3) -> int:
        """The largest overlap that leaves each window a new token of the context, even with the longest question.

        Args: special: the number of special tokens of a window.
        """
        return max_length - min(MAX_QUESTION, max_length // 2) - special - 1

    def windows(self, questions: Sequence[ContextQuestion]) -> list[ContextWindow]:
        """The windows of all questions, in order; a short context is one window."""
        longest = min(MAX_QUESTION, self.max_length // 2)
        template, found = self.vocabulary.tokenizer.encode("", ""), list[ContextWindow]()
        distinct = list(dict.fromkeys(text for one in questions for text in (one.question, one.context)))
        encoded = dict[str, _Tokens]()
        for begin in range(0, len(distinct), CHUNK):
            texts = distinct[begin : begin + CHUNK]
            encoded |= zip(texts, map(_tokens, texts, self.vocabulary.encodings(texts)), strict=True)
        long = [one.question for one in questions if len(encoded[one.question].ids) > longest]
        if long:
            _logger.warning(
                "questions that are longer than %s tokens and truncated: %d of %d, such as %.60s",
                *(longest, len(long), len(questions), long[0]),
            )
        for index, one in enumerate(questions):
            question, context = encoded[one.question].ids[:longest], encoded[one.context]
            room = self.max_length - len(question) - len(template.ids)
            for start in range(0, max(1, len(context.ids) - self.overlap), room - self.overlap):
                part = _Tokens(*(array[start : start + room] for array in context))
                found.append(_window(index, question, part, template))
        return found

    def batch(self, windows: Sequence[ContextWindow], size: int, length: int) -> dict[str, np.ndarray]:
        """Windows as a batch of B rows; the last ones are padding.

        Args:
          windows: at most B, each of at most T tokens.
          size: B.
          length: T.

        Returns:
          `tokens`, `segments` [B, T] int32; `attention_mask` [B, T] bool, False for padding; `answer_mask` [B, T, 2]
          bool, the windows' `edges`; `loss_mask` [B] bool, False for rows of padding. Token 0, [CLS], is True in both
          masks.
        """
        mask = row_mask([window.tokens for window in windows], size, length)
        tokens, segments = (
            padded([getattr(window, name) for window in windows], mask) for name in ("tokens", "segments")
        )
        edges = padded([window.edges for window in windows], mask, dtype=bool, width=2)
        mask[:, 0] = edges[:, 0] = True
        return {
            "tokens": tokens,
            "segments": segments,
            "attention_mask": mask,
            "answer_mask": edges,
            "loss_mask": np.arange(size) < len(windows),
        }

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {"vocabulary": self.vocabulary.to_json(), "max_length": self.max_length, "overlap": self.overlap}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError, KeyError or TypeError for wrong fields."""
        vocabulary = EncoderVocabulary.from_json(fields["vocabulary"])
        return cls(vocabulary, int(fields["max_length"]), int(fields["overlap"]))


class _Tokens(NamedTuple):
    """The tokens of a text, and their rows of a window's `offsets` and `edges`."""

    ids: np.ndarray
    offsets: np.ndarray
    edges: np.ndarray


def _tokens(text: str, encoding: Encoding) -> _Tokens:
    offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
    blank = np.array([*map(str.isspace, text), False])
    while (begins := blank[offsets[:, 0]] & (offsets[:, 0] < offsets[:, 1])).any():
        offsets[:, 0] += begins  # some tokenizers count the blank before a word
    if not text.isascii():  # tokens do not have the accents that the tokenizer removes; answers do
        bases = np.flatnonzero([unicodedata.category(character) != "Mn" for character in f"{text} "])
        offsets[:, 1] = bases[np.searchsorted(bases, offsets[:, 1])]
    words = np.array([-1, *encoding.word_ids, -1])
    changes = words[1:] != words[:-1]
    starts = offsets[:, 0]
    changes[:-1] |= _word_starts(text)[starts] & (starts != np.append(-1, starts[:-1]))
    return _Tokens(np.array(encoding.ids, np.int32), offsets, np.stack([changes[:-1], changes[1:]], axis=1))


def _word_starts(text: str) -> np.ndarray:
    """Whether a character, or the end of the text, is next to a punctuation mark or a Chinese character [N + 1] bool.

    Only BERT's tokenizer starts a word there.
    """
    starts = np.zeros(len(text) + 1, bool)
    for match in _single_characters().finditer(text):
        starts[[match.start(), match.end()]] = True
    return starts


@functools.cache
def _single_characters() -> re.Pattern[str]:
    marks = "".join(chr(code) for code in range(0x20000) if unicodedata.category(chr(code)).startswith("P"))
    return re.compile(f"[{re.escape(marks)}$+<=>^`|~\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")


def _window(index: int, question: np.ndarray, part: _Tokens, template: Encoding) -> ContextWindow:
    """Args: template: the special tokens of a pair: [CLS] [SEP] [SEP], or with more of them in the middle."""
    (cls, *middle, sep), segment = template.ids, template.type_ids[-1]
    before = 1 + len(question) + len(middle)
    tokens = np.array([cls, *question, *middle, *part.ids, sep], np.int32)
    offsets, edges = (np.pad(array, [(before, 1), (0, 0)]) for array in part[1:])
    edges[0] = True
    segments = np.where(np.arange(len(tokens)) < before, 0, segment).astype(np.int32)
    return ContextWindow(index, tokens, segments, offsets, edges)
