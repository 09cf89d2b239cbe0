"""The tokens of an encoder's texts: any tokenizer of the `tokenizers` library with an encoder's special tokens."""

import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from tokenizers import Encoding, Tokenizer, normalizers

from jaxnlp.corpus import errors_as
from jaxnlp.text import list_of_strings
from jaxnlp.text.new_tokens import with_added_tokens
from jaxnlp.text.padding import padded, row_mask
from jaxnlp.text.raw_texts import as_texts
from jaxnlp.text.tokenizer_classes import SpecialTokens
from jaxnlp.text.tokenizer_classes.bert import SPECIAL
from jaxnlp.text.tokenizer_files import num_segments, read_tokenizer, remove_segments, write_tokenizer
from jaxnlp.text.vocabulary import Vocabulary


class TokenizedTexts(NamedTuple):
    """The tokens of texts or pairs of texts: [CLS] text [SEP], or [CLS] first [SEP] second [SEP].

    Attributes:
      tokens: ids of each text or pair, without padding.
      segments: as `tokens`: 0 up to the first [SEP], 1 after it.
      truncated_rows: indices of the texts or pairs that were too long.
    """

    tokens: list[np.ndarray]
    segments: list[np.ndarray]
    truncated_rows: list[int]

    @property
    def truncated(self) -> int:
        """Number of texts or pairs that were too long."""
        return len(self.truncated_rows)


def padded_texts(rows: Sequence[Sequence[np.ndarray]], size: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """A batch of tokens: rows of texts, padded with 0 and with empty rows.

    Args:
      rows: at most B, each of S texts of at most T tokens.
      size: B.
      length: T.

    Returns:
      tokens [B, S, T] int32, and a mask [B, S, T] bool, False for padding, but True for the first token of every text,
      also in empty rows: softmax and mean need one.
    """
    columns, texts = len(rows[0]), [text for row in rows for text in row]
    mask = row_mask(texts, size * columns, length)
    tokens = padded(texts, mask)
    mask[:, 0] = True
    return tokens.reshape(size, columns, length), mask.reshape(size, columns, length)


class EncoderVocabulary(Vocabulary):
    """The tokens of an encoder, their ids, and the tokenizer of texts.

    Attributes:
      tokenizer: of the `tokenizers` library; do not change it.
      special: the names of its special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens = SPECIAL):
        """A copy of a tokenizer, without its truncation and padding.

        Raises: ValueError unless it has the special tokens, and its V tokens have the ids 0..V - 1.
        """
        ids = tokenizer.get_vocab()  # before the copy, which loses one of two tokens with the same id
        refuse_lacking(ids, special)
        _refuse_gaps(ids)
        self.special = special
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """Reads the tokenizer files of a folder: as `jaxnlp.text.tokenizer_files.read_tokenizer`.

        Raises:
          FileNotFoundError: when the folder has no tokenizer.
          ValueError: naming the file or the folder, when it is not a tokenizer that this library supports.
        """
        tokenizer, special = read_tokenizer(folder)
        with errors_as(ValueError, folder):
            return cls(tokenizer, special)

    @property
    def size(self) -> int:
        return self.tokenizer.get_vocab_size()

    @property
    def lowercase(self) -> bool:
        """Whether texts are lowercased."""
        return bool(getattr(self.tokenizer.normalizer, "lowercase", False))

    @functools.cached_property
    def num_segments(self) -> int:
        """Number of segments that it distinguishes in pairs: 2, as in BERT, or 1, as in RoBERTa."""
        return num_segments(self.tokenizer)

    def min_length(self, texts: int = 1) -> int:
        """The minimum length of an input of one or two texts, special tokens included: a token of each text."""
        return texts + self.tokenizer.num_special_tokens_to_add(texts == 2)

    def lowercased(self) -> "EncoderVocabulary":
        """The same tokens, for texts that are lowercased first."""
        if self.lowercase:
            return self
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
        return EncoderVocabulary(tokenizer, self.special)

    def without_segments(self) -> "EncoderVocabulary":
        """The same tokens, for an encoder without segments: those of all tokens are 0."""
        if self.num_segments == 1:
            return self
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        remove_segments(tokenizer, self.special)
        return EncoderVocabulary(tokenizer, self.special)

    def with_tokens(self, tokens: Sequence[str]) -> "EncoderVocabulary":
        """This vocabulary and these tokens, see `jaxnlp.text.new_tokens`. Raises: ValueError as there."""
        return EncoderVocabulary(with_added_tokens(self.tokenizer, tokens), self.special)

    def id_of(self, piece: str) -> int:
        """The id of a token. Raises: KeyError for an unknown one."""
        token_id = self.tokenizer.token_to_id(piece)
        if token_id is None:
            raise KeyError(piece)
        return token_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncoderVocabulary):
            return False
        return self.special == other.special and self.tokenizer.to_str() == other.tokenizer.to_str()

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Cached: it takes milliseconds, and looks up a program at each call."""
        return hash(self.tokenizer.to_str())

    def __call__(
        self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None, *, max_length: int = 512
    ) -> dict[str, np.ndarray]:
        """An encoder's inputs: `tokens`, `segments` [B, T] int32, `attention_mask` [B, T] bool; one text is one row.

        Raises: ValueError for arguments that are not texts.
        """
        seconds = None if pairs is None else as_texts(pairs)
        tokens, segments, _ = self.tokenize(as_texts(texts), seconds, max_length=max_length)
        return {"tokens": padded(tokens), "segments": padded(segments), "attention_mask": row_mask(tokens)}

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text's tokens, [N] int32, without [CLS] and [SEP]."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[np.ndarray]:
        """`encode` of each text, [N] int32, on all cores."""
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def encodings(self, texts: Sequence[str]) -> list[Encoding]:
        """The tokens of each text with their positions in it, without [CLS] and [SEP]."""
        return self.tokenizer.encode_batch(list(texts), add_special_tokens=False)

    def encode_words(self, words: Sequence[str]) -> list[np.ndarray]:
        """The ids of the tokens of each word, [N] int32, as after a blank in a text."""
        return self.of_words.encode_all(words)

    @functools.cached_property
    def of_words(self) -> "EncoderVocabulary":
        """The same tokens, for texts that start with a word after a blank: byte-level BPE puts one before them."""
        parts = json.loads(self.tokenizer.to_str())
        changed = _with_blanks(parts["pre_tokenizer"])
        if changed == parts["pre_tokenizer"]:
            return self
        tokenizer = Tokenizer.from_str(json.dumps(parts | {"pre_tokenizer": changed}))
        return EncoderVocabulary(tokenizer, self.special)

    def tokenize(self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, max_length: int) -> TokenizedTexts:
        """The tokens of texts, or of pairs of texts, with special tokens.

        In a pair that is too long, the longer text is truncated until both are equally long; then both are truncated.
          pairs: the second text of each; None = single texts.
          max_length: maximum length in tokens, special tokens included.

        Raises:
          ValueError: when the numbers of texts and pairs differ, or `max_length` has no room for a token of each text.
        """
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(
                f"expected a second text for each text; got {len(texts)} texts and {len(pairs)} second texts"
            )
        columns = [texts] if pairs is None else [texts, pairs]
        least = self.min_length(len(columns))
        if max_length < least:
            raise ValueError(f"max_length must be at least {least}, got {max_length}")
        room = max_length - least + len(columns)
        template = self._template(len(columns))
        segments = np.array([part.segment for part in template], np.int32)
        found = TokenizedTexts([], [], [])
        for index, row in enumerate(zip(*map(self.encode_all, columns), strict=True)):
            lengths = _lengths_kept([len(text) for text in row], room)
            kept = [text[:length] for text, length in zip(row, lengths, strict=True)]
            parts = [part.ids if part.text is None else kept[part.text] for part in template]
            found.tokens.append(np.concatenate(parts))
            found.segments.append(np.repeat(segments, [*map(len, parts)]))
            if sum(lengths) < sum(map(len, row)):
                found.truncated_rows.append(index)
        return found

    def _template(self, texts: int) -> list["_Part"]:
        """The parts of an input of one or two texts."""
        mask = self.special.mask
        example = self.tokenizer.encode(mask, mask if texts == 2 else None)
        tokens = zip(example.sequence_ids, example.type_ids, example.ids, strict=True)
        groups = itertools.groupby(tokens, lambda token: token[:2])
        return [
            _Part(text, segment, np.array([token for *_, token in group], np.int32))
            for (text, segment), group in groups
        ]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The tokens of a sequence of ids, as strings."""
        return [str(self.tokenizer.id_to_token(int(token_id))) for token_id in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids, a blank between words, without special tokens."""
        return self.tokenizer.decode([int(token_id) for token_id in ids])

    def to_json(self) -> dict[str, Any]:
        return {"tokenizer": json.loads(self.tokenizer.to_str()), "special": list(self.special)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        value = fields.get("tokenizer") if isinstance(fields, dict) else None
        if not isinstance(value, dict):
            raise ValueError(f"tokenizer: expected a tokenizer as an object, got {type(value).__name__}")
        try:
            return cls(Tokenizer.from_str(json.dumps(value)), SpecialTokens(*list_of_strings(fields, "special")))
        # The library raises plain Exceptions for objects that are not tokenizers.
        except Exception as error:
            raise ValueError(f"tokenizer: not a tokenizer of an encoder: {error}") from error

    def save(self, folder: Path, *, max_length: int | None = None) -> None:
        """Writes tokenizer files, which Transformers and `of_folder` read.

        Args:
          folder: an existing folder.
          max_length: maximum input length in tokens, for truncation by Transformers; None = not known.
        """
        write_tokenizer(self.tokenizer, self.special, folder, max_length=max_length)


def encoder_vocabulary(processor: Any) -> Any:
    """The tokenizer of a processor; a tokenizer is the processor of some models, and is returned as it is."""
    return getattr(processor, "vocabulary", processor)


class _Part(NamedTuple):
    """A part of an encoder's input.

    Attributes:
      text: the index of its text; None = special tokens.
      segment: the segment of its tokens.
      ids: of the special tokens.
    """

    text: int | None
    segment: int
    ids: np.ndarray


def _lengths_kept(lengths: Sequence[int], room: int) -> Sequence[int]:
    """The numbers of tokens to keep of one or two texts, at most `room` together.

    The rule is that of the `tokenizers` library, which also returns all combinations of the truncated parts: its memory
    for two long texts grows with the product of their lengths.
    """
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    shorter = min(*lengths, room // 2)
    return [shorter, room - shorter] if lengths[0] <= lengths[1] else [room - shorter, shorter]


def refuse_lacking(pieces: Iterable[str], special: SpecialTokens) -> None:
    """Raises: ValueError unless the special tokens are among the tokens."""
    missing = [token for token in dict.fromkeys(special) if token not in pieces]
    if missing:
        raise ValueError(f"the vocabulary needs {', '.join(special)}; missing: {', '.join(missing)}")


def _with_blanks(part: Any) -> Any:
    """A pre-tokenizer as JSON; a byte-level one puts a blank before the first word of a text."""
    if isinstance(part, list):
        return [_with_blanks(one) for one in part]
    if not isinstance(part, dict):
        return part
    part = {name: _with_blanks(value) for name, value in part.items()}
    return part | ({"add_prefix_space": True} if part.get("type") == "ByteLevel" else {})


def _refuse_gaps(pieces: Mapping[str, int]) -> None:
    """Raises ValueError unless the ids are 0 to V - 1: an id outside the embeddings gives NaN, and of two tokens with
    one id the second is lost."""
    for expected, (piece, token_id) in enumerate(sorted(pieces.items(), key=lambda item: item[1])):
        if token_id != expected:
            raise ValueError(
                f"the ids of {len(pieces)} tokens must be 0 to {len(pieces) - 1}, each once, but {piece!r} has "
                f"{token_id}; expected {expected}"
            )
