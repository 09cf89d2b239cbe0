"""Subword tokenizers: from texts to ids and back."""

import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import Any, Literal, Self, get_args

from jaxnlp.text import list_of_strings, require_fields
from jaxnlp.text.normalization import UNCHANGED, Normalization
from jaxnlp.text.segmentation import UNKNOWN_PENALTY, merged, most_probable

SubwordKind = Literal["bpe", "unigram", "characters", "words"]

PADDING, UNKNOWN, START, END = 0, 1, 2, 3
"""Ids of the special tokens in every vocabulary."""
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN_TEXT = " \u2047 "
"""The text of an unknown token, as in SentencePiece."""
BLANK = "\u2581"
"""The character for a blank in tokens."""

_SWAP = str.maketrans(f" {BLANK}", f"{BLANK} ")
_SPACED = re.compile(f"{BLANK}[^{BLANK}]*|[^{BLANK}]+")
_WORDS = re.compile(rf"{BLANK}?\w+|{BLANK}?[^\w{BLANK}]|{BLANK}")
_ESCAPED = re.compile("[\udc80-\udcff]")
_MOST_KEPT = 100_000


@dataclasses.dataclass(frozen=True)
class Subwords:
    """A tokenizer and its vocabulary of V tokens. Equal by value.

    Tokens swap ▁ and blanks, so that no text is lost. Each text is tokenized as if a blank preceded it, so that the
    first word has the same tokens as elsewhere, except by the kind `characters`.

    The ids are, in order: padding 0, unknown 1, start 2, end 3; with `byte_fallback` the 256 bytes; the vocabulary; the
    extra symbols. A name such as `</s>` in a text never becomes a symbol.

    Attributes:
      kind: byte-pair merges (`bpe`), the most probable tokens (`unigram`), `characters`, or `words` and punctuation.
      vocabulary: the tokens without symbols and bytes, in the order of their ids.
      scores: the score of each token of the vocabulary: its log probability for `unigram`; for `bpe` the order of
        merges, highest first; () for `characters` and `words`.
      byte_fallback: whether characters outside the vocabulary become UTF-8 bytes; otherwise they are unknown.
      extra: number of extra symbols, such as the sentinels of span corruption.
      normalization: how texts are normalized before tokenization; by default unchanged, so that `decode` returns every
        text without unknown tokens.
    """

    kind: SubwordKind
    vocabulary: tuple[str, ...]
    scores: tuple[float, ...] = ()
    byte_fallback: bool = False
    extra: int = 0
    normalization: Normalization = UNCHANGED

    padding, unknown, start, end = PADDING, UNKNOWN, START, END
    """Ids of the special tokens."""
    unit = "tokens"
    """The plural noun for tokens in metrics."""

    def __post_init__(self):
        if self.kind not in get_args(SubwordKind):
            raise ValueError(f"subwords: kind must be one of {', '.join(get_args(SubwordKind))}, got {self.kind!r}")
        if self.extra < 0:
            raise ValueError(f"subwords: extra must be at least 0, got {self.extra}")
        if "" in self.vocabulary or len(set(self.vocabulary)) != len(self.vocabulary):
            raise ValueError("subwords: the tokens of a vocabulary must be distinct and not empty")
        expected = len(self.vocabulary) if self.kind in ("bpe", "unigram") else 0
        if len(self.scores) != expected:
            raise ValueError(
                f"subwords: expected {expected} scores for {len(self.vocabulary)} tokens of kind {self.kind}, got "
                f"{len(self.scores)}"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind}, {self.size:,} {self.unit})"

    @property
    def size(self) -> int:
        """The number of tokens, V."""
        return len(self._names)

    def extra_id(self, index: int) -> int:
        """The id of an extra symbol. As in T5, symbol 0 has the last id, symbol 1 the id before it, and so on.

        Raises: ValueError when it does not exist.
        """
        if not 0 <= index < self.extra:
            raise ValueError(f"extra symbol {index} does not exist: this vocabulary has {self.extra}")
        return self.size - 1 - index

    def encode(self, text: str) -> list[int]:
        """The ids of a text's tokens, without start and end; with BPE dropout see `jaxnlp.text.bpe_dropout`."""
        return self.joined([one for ids, _, _ in self._words_of(text) for one in ids])

    encode_target = encode
    """Targets have the same tokens as other texts."""

    def pieces(self, text: str) -> list[str]:
        """The tokens of a text, as strings: unknown characters next to each other are one, as in SentencePiece."""
        pieces: list[str] = []
        unknown = False  # whether the last piece is
        for ids, _, tokens in self._words_of(text):
            for token in self.tokens(ids) if self.byte_fallback else tokens:
                before, unknown = unknown, not (self.byte_fallback or token in self._ids)
                pieces.append(pieces.pop() + token if before and unknown else token)
        return pieces

    def _words_of(self, text: str) -> list[tuple[list[int], bool, list[str]]]:
        text = blanks_swapped(self._normalization.apply(text))
        words, kept = self._split(text), self._kept
        if len(kept) > _MOST_KEPT:
            kept.clear()
        found = []
        for word in words:
            if word not in kept:
                kept[word] = self._ids_of(word)
            if kept[word][1] and len(words) > 1 and self.normalization.sign_is_blank:
                # SentencePiece rounds the sums of the whole text.
                return [self._ids_of(text)]
            found.append(kept[word])
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, up to the first end symbol; padding and start have no text.

        Each byte that is not UTF-8 becomes U+FFFD.
        """
        runs = [bytearray()]
        at_start = self._normalization.prefix or self.normalization.strip
        for token_id in ids:
            if token_id == END:
                break
            text = self._bytes[int(token_id)]
            if text and at_start:
                # In SentencePiece, a byte is never the blank before a text.
                kept = token_id == UNKNOWN or (token_id < self._first and self.normalization.sign_is_blank)
                text = text if kept else text.removeprefix(b" ")
                at_start = self.normalization.strip and not text
            if not text:  # bytes before and after a symbol are not one character
                runs.append(bytearray())
            runs[-1] += text
        return "".join(_ESCAPED.sub("\ufffd", run.decode(errors="surrogateescape")) for run in runs)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The tokens of a sequence of ids, as strings: `▁house`, `</s>`, `<0xE2>`, `<extra_id_0>`."""
        return [self._names[int(token_id)] for token_id in ids]

    def id_of(self, token: str) -> int | None:
        """The id of a token, as `tokens` writes it; None = not in the vocabulary."""
        return self._ids_of_names.get(token)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON."""
        return {
            "kind": self.kind,
            "vocabulary": list(self.vocabulary),
            "scores": list(self.scores),
            "byte_fallback": self.byte_fallback,
            "extra": self.extra,
            "normalization": self.normalization.to_json(),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The tokenizer whose `to_json` this is. Raises: ValueError naming a field that is missing or wrong."""
        vocabulary = list_of_strings(fields, "vocabulary")
        require_fields(fields, "subwords", kind=str, scores=list, byte_fallback=bool, extra=int)
        for index, score in enumerate(fields["scores"]):
            if isinstance(score, bool) or not isinstance(score, int | float):
                raise ValueError(f"subwords: scores[{index}]: expected a number, got {score!r}")
        return cls(
            fields["kind"],
            tuple(vocabulary),
            tuple(map(float, fields["scores"])),
            fields["byte_fallback"],
            fields["extra"],
            Normalization.from_json(fields.get("normalization")),
        )

    @functools.cached_property
    def _normalization(self) -> Normalization:
        prefix = self.normalization.prefix and self.kind != "characters"
        return dataclasses.replace(self.normalization, prefix=prefix)

    def words(self, text: str) -> list[str]:
        """The words of a text, with ▁ for blanks, which are tokenized one by one."""
        return self._split(blanks_swapped(self._normalization.apply(text)))

    def _split(self, text: str) -> list[str]:
        """Splits a text, with ▁ for blanks, where no token crosses the split."""
        if self.kind == "characters":
            return list(text)
        if self.kind == "words":
            return pretokenize(text)
        return [text] if self._crosses_blanks else _SPACED.findall(text)

    def _ids_of(self, word: str) -> tuple[list[int], bool, list[str]]:
        """The ids of a word's tokens; whether rounding of sums of scores decides between segmentations; and the tokens,
        also those outside the vocabulary."""
        tokens, rounded = [word], False
        if self.kind == "bpe":
            tokens = merged(word, self.merges)
        elif self.kind == "unigram":
            tokens, rounded = most_probable(word, self.merges, longest=self._longest, unknown=self._unknown_score)
        return self.ids_of(tokens), rounded, tokens

    def ids_of(self, tokens: Iterable[str]) -> list[int]:
        """The ids of a word's tokens; those outside the vocabulary become bytes or unknown."""
        ids: list[int] = []
        for token in tokens:
            token_id = self._ids.get(token)
            if token_id is not None:
                ids.append(token_id)
            elif self.byte_fallback:
                # SentencePiece stores the bytes of the sign for a blank.
                text = token if self.normalization.sign_is_blank else blanks_swapped(token)
                ids += [len(SPECIAL) + byte for byte in text.encode()]
            else:
                ids.append(UNKNOWN)
        return ids

    def joined(self, ids: list[int]) -> list[int]:
        """The ids of a text's words with one unknown token for consecutive ones, as in SentencePiece."""
        if self.byte_fallback:
            return ids
        return [one for index, one in enumerate(ids) if one != UNKNOWN or ids[index - 1 : index] != [UNKNOWN]]

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        """The token of each id."""
        raw = [f"<0x{byte:02X}>" for byte in range(256)] if self.byte_fallback else []
        extra = [f"<extra_id_{index}>" for index in reversed(range(self.extra))]
        return (*SPECIAL, *raw, *self.vocabulary, *extra)

    @functools.cached_property
    def _ids_of_names(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self._names)}

    @functools.cached_property
    def _bytes(self) -> list[bytes]:
        """The text of each id, in UTF-8."""
        special = [b"", UNKNOWN_TEXT.encode(), b"", b""]
        raw = [bytes([byte]) for byte in range(256)] if self.byte_fallback else []
        vocabulary = [blanks_swapped(token).encode() for token in self.vocabulary]
        return [*special, *raw, *vocabulary, *(name.encode() for name in self._names[self.size - self.extra :])]

    @functools.cached_property
    def _first(self) -> int:
        """The id of the first token of the vocabulary."""
        return len(SPECIAL) + (256 if self.byte_fallback else 0)

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {token: self._first + index for index, token in enumerate(self.vocabulary)}

    @functools.cached_property
    def merges(self) -> dict[str, float]:
        """The score of each token of the vocabulary."""
        return dict(zip(self.vocabulary, self.scores, strict=True))

    @functools.cached_property
    def _longest(self) -> int:
        return max(map(len, self.vocabulary), default=1)

    @functools.cached_property
    def _unknown_score(self) -> float:
        return min(self.scores, default=0.0) - UNKNOWN_PENALTY

    @functools.cached_property
    def _crosses_blanks(self) -> bool:
        return any(BLANK in token[1:] for token in self.vocabulary)

    @functools.cached_property
    def _kept(self) -> dict[str, tuple[list[int], bool, list[str]]]:
        """A cache of the results of `_ids_of`."""
        return {}


def blanks_swapped(text: str) -> str:
    """A text as tokens write it, or a token's text: blanks become ▁, and ▁ becomes a blank."""
    return text.translate(_SWAP)


def pretokenize(text: str) -> list[str]:
    """The words and punctuation marks of a text with ▁ for blanks; each has the blank before it."""
    return _WORDS.findall(text)
