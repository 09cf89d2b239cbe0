"""The arrays of sentences that a word encoder reads: words, their characters, and BERT's tokens.

Axes: W characters of a word, S tokens of BERT.
"""

import dataclasses
import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from jaxnlp.text import list_of_strings, most_frequent, require_fields
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.padding import padded, row_mask

PAD_ID, UNKNOWN_ID, FIRST_ID = range(3)
"""Ids of padding, of unknown words and characters, and of the first entry of the vocabulary."""

MOST_CACHED = 500_000
"""Maximum number of words with cached ids and tokens."""

Words = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class WordInputs:
    """Vocabularies of words and characters, and BERT's tokenizer if any. Equal by value.

    Attributes:
      words: the normalised words in the order of their ids, from FIRST_ID.
      characters: the characters in the order of their ids, from FIRST_ID, in the normal form NFC.
      pieces: the tokenizer of a BERT; None = no BERT.
      lowercase: lowercase words before they are looked up; characters keep their case.
      zero_digits: replace every digit of a word by 0 before it is looked up.
      max_characters: W; only the first W characters of a word are read.
      max_length: maximum length of a sentence in words.
      max_pieces: maximum length of a sentence in tokens of BERT, with [CLS] and [SEP].
      minimum_count: minimum number of occurrences of a word in the training sentences.
    """

    words: Words
    characters: Words
    pieces: EncoderVocabulary | None = None
    lowercase: bool = True
    zero_digits: bool = True
    max_characters: int = 20
    max_length: int = 128
    max_pieces: int = 256
    minimum_count: int = 1

    names: ClassVar[tuple[str, ...]] = ("words", "characters", "word_mask")
    """Names of the arrays of a batch, except BERT's."""
    bert_names: ClassVar[tuple[str, ...]] = ("pieces", "piece_mask", "first_pieces")
    """Names of further arrays, with BERT's tokenizer."""

    def __post_init__(self):
        for name in ("words", "characters"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                raise ValueError(f"{name} must be distinct")
        for name, least in (("max_characters", 1), ("max_length", 1), ("max_pieces", 3)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def __repr__(self) -> str:
        parts = [f"{len(self.words):,} words", f"{len(self.characters):,} characters"]
        return f"{type(self).__name__}({', '.join(parts + ([] if self.pieces is None else [repr(self.pieces)]))})"

    @classmethod
    def of_sentences(cls, sentences: Iterable[Sequence[str]], *, minimum_count: int = 1, **rest: Any) -> Self:
        """The vocabularies of training sentences.

        Args:
          sentences: the words of each sentence.
          minimum_count: minimum number of occurrences of a word; rarer words are unknown. Characters need only one.
          rest: other attributes.
        """
        empty = cls((), (), **rest)
        counts = Counter(word for sentence in sentences for word in sentence)
        normalised, characters = Counter[str](), Counter[str]()
        for word, count in counts.items():
            normalised[empty.normalised(word)] += count
            for character in unicodedata.normalize("NFC", word):
                characters[character] += count
        return dataclasses.replace(
            empty,
            words=most_frequent(normalised, minimum_count),
            characters=most_frequent(characters),
            minimum_count=minimum_count,
        )

    def normalised(self, word: str) -> str:
        """A word in the form of the vocabulary; accents are part of their letters (NFC)."""
        word = unicodedata.normalize("NFC", word)
        word = word.lower() if self.lowercase else word
        return re.sub(r"\d", "0", word) if self.zero_digits else word

    @property
    def vocabulary_size(self) -> int:
        """V, the number of word ids."""
        return FIRST_ID + len(self.words)

    @property
    def num_characters(self) -> int:
        """The number of character ids."""
        return FIRST_ID + len(self.characters)

    @functools.cached_property
    def _word_ids(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words, FIRST_ID)}

    @functools.cached_property
    def _character_ids(self) -> dict[str, int]:
        return {character: index for index, character in enumerate(self.characters, FIRST_ID)}

    @functools.cached_property
    def _ids_of_words(self) -> dict[str, np.ndarray]:
        return {}

    def _ids_of(self, word: str) -> np.ndarray:
        """The id of a word, and those of its characters with padding [1 + W] int32."""
        if (ids := self._ids_of_words.get(word)) is None:
            characters = unicodedata.normalize("NFC", word)[: self.max_characters]
            ids = self._ids_of_words[word] = np.zeros(1 + self.max_characters, np.int32)
            ids[0] = self._word_ids.get(self.normalised(word), UNKNOWN_ID)
            ids[1 : 1 + len(characters)] = [self._character_ids.get(one, UNKNOWN_ID) for one in characters]
        return ids

    @functools.cached_property
    def _pieces_of(self) -> dict[str, np.ndarray]:
        return {}

    def unknown(self, words: Sequence[str]) -> int:
        """Number of words that are not in the vocabulary."""
        return sum(self.normalised(word) not in self._word_ids for word in words)

    def word_pieces(self, words: Sequence[str]) -> list[np.ndarray]:
        """The ids of BERT's tokens of each word, at least one: a word without tokens becomes [UNK].

        Raises: ValueError when there is no tokenizer.
        """
        if self.pieces is None:
            raise ValueError("these inputs have no BERT tokenizer")
        new = list(dict.fromkeys(word for word in words if word not in self._pieces_of))
        if new:
            unknown = np.array([self.pieces.id_of(self.pieces.special.unk)], np.int32)
            pairs = zip(new, self.pieces.encode_words(new), strict=True)
            self._pieces_of.update({word: ids if len(ids) else unknown for word, ids in pairs})
        return [self._pieces_of[word] for word in words]

    def encode(
        self, words: Sequence[str], before: Sequence[str] = (), after: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """The arrays of one sentence of T words, such as words [T], for `batch`.

        Args:
          before, after: words that BERT reads before and after the sentence; those next to it, as far as there is room.

        Raises: ValueError when the sentence is empty or too long; the message has its length and the maximum.
        """
        if not words:
            raise ValueError("a sentence needs at least one word, got none")
        if len(words) > self.max_length:
            raise ValueError(f"a sentence of {len(words):,} words exceeds the maximum of {self.max_length:,} words")
        for cache in (self._ids_of_words, self._pieces_of):
            if len(cache) > MOST_CACHED:
                cache.clear()
        ids = np.concatenate([self._ids_of(word) for word in words]).reshape(len(words), 1 + self.max_characters)
        arrays = {"words": ids[:, 0], "characters": ids[:, 1:]}
        if self.pieces is not None:
            parts = self.word_pieces(words)
            special = self.pieces.special
            first, last = (np.array([self.pieces.id_of(name)], np.int32) for name in (special.cls, special.sep))
            length = 2 + sum(map(len, parts))
            if length > self.max_pieces:
                raise ValueError(f"a sentence of {length:,} tokens of BERT exceeds the maximum of {self.max_pieces:,}")
            left, right = self._context(before, after, self.max_pieces - length)
            arrays["pieces"] = np.concatenate([first, left, *parts, right, last])
            starts = np.cumsum([1 + len(left), *map(len, parts[:-1])])
            arrays["first_pieces"] = starts.astype(np.int32)
        return arrays

    def _context(self, before: Sequence[str], after: Sequence[str], room: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids of BERT's tokens on both sides of a sentence, at most `room`."""
        none = np.zeros(0, np.int32)
        left, right = (np.concatenate([none, *self.word_pieces(words)]) for words in (before, after))
        first = max(room // 2, room - len(right))
        left = left[max(len(left) - first, 0) :]
        return left, right[: room - len(left)]

    def batch(self, sentences: Sequence[dict[str, np.ndarray]], size: int, length: int) -> dict[str, np.ndarray]:
        """Encoded sentences as a batch of B rows; the last ones are padding.

        Args:
          sentences: at most B results of `encode`.
          size: B.
          length: T, at least the `length` of each sentence; with a tokenizer T = S, to compile fewer programs.

        Returns:
          `words` [B, T] int32, `characters` [B, T, W] int32, `word_mask` [B, T] bool, False for padding; with a
          tokenizer also `pieces` [B, S] int32, `piece_mask` [B, S] bool, and `first_pieces` [B, T] int32, the position
          of each word's first token. Padding is 0. The first position of the piece mask is always True, since softmax
          needs one token.
        """

        def of(name: str) -> list[np.ndarray]:
            return [one[name] for one in sentences]

        mask = row_mask(of("words"), size, length)
        batch = {
            "words": padded(of("words"), mask),
            "characters": padded(of("characters"), mask, width=self.max_characters),
            "word_mask": mask,
        }
        if self.pieces is not None:
            piece_mask = row_mask(of("pieces"), size, length)
            batch["pieces"] = padded(of("pieces"), piece_mask)
            batch["first_pieces"] = padded(of("first_pieces"), mask)
            batch["piece_mask"] = piece_mask
            piece_mask[:, 0] = True
        return batch

    @property
    def longest(self) -> int:
        """Maximum T of a batch."""
        return self.max_length if self.pieces is None else self.max_pieces

    def encoded_length(self, encoded: dict[str, np.ndarray]) -> int:
        """As `length`, for a result of `encode`."""
        return len(encoded["words" if self.pieces is None else "pieces"])

    def length(self, words: Sequence[str]) -> int:
        """Minimum T of a batch with this sentence: its number of words, or of tokens."""
        return len(words) if self.pieces is None else 2 + sum(map(len, self.word_pieces(words)))

    def problem(self, words: Sequence[str]) -> str | None:
        """Why `parts` cannot split a sentence: a word with more tokens of BERT than a sentence may have."""
        if self.pieces is None or not words:
            return None
        sizes = [len(ids) for ids in self.word_pieces(words)]
        if max(sizes) <= self.max_pieces - 2:
            return None
        word = words[sizes.index(max(sizes))]
        return (
            f"the word {word[:20]!r}... has {max(sizes):,} tokens of BERT, but a sentence may have only "
            f"{self.max_pieces - 2:,}; shorten it"
        )

    def parts(self, words: Sequence[str], inside: Sequence[bool] = ()) -> list[slice]:
        """Splits a sentence into parts that are short enough, in words and in tokens of BERT; a short one has one part.

        Args:
          words: the T words of the sentence.
          inside: [T] whether an entity continues at the word; parts start elsewhere, if the entity fits into one.
            () = no entities.

        Raises: ValueError for a word with more tokens of BERT than a sentence may have.
        """
        problem = self.problem(words)
        if problem is not None:
            raise ValueError(problem)
        sizes = [1] * len(words) if self.pieces is None else [len(ids) for ids in self.word_pieces(words)]
        room = self.max_pieces - 2 if self.pieces is not None else len(words)
        parts, start = [], 0
        while start < len(words):
            stop, tokens = start, 0
            while stop < len(words) and stop - start < self.max_length and tokens + sizes[stop] <= room:
                tokens += sizes[stop]
                stop += 1
            cut = stop
            while inside and start < cut < len(words) and inside[cut]:
                cut -= 1
            parts.append(slice(start, cut if cut > start else stop))
            start = parts[-1].stop
        return parts

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "words": list(self.words),
            "characters": list(self.characters),
            "pieces": None if self.pieces is None else self.pieces.to_json(),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inputs whose `to_json` this is. Raises: ValueError naming the wrong field."""
        words, characters = (tuple(list_of_strings(fields, name)) for name in ("words", "characters"))
        numbers = ("max_characters", "max_length", "max_pieces", "minimum_count")
        kinds = {"lowercase": bool, "zero_digits": bool} | dict.fromkeys(numbers, int)
        require_fields(fields, "word inputs", **kinds)
        pieces = fields.get("pieces")
        vocabulary = None if pieces is None else EncoderVocabulary.from_json(pieces)
        return cls(words, characters, vocabulary, **{name: fields[name] for name in kinds})
