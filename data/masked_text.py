"""Data for BERT's pretraining: masked language modelling and next-sentence prediction.

Source: Devlin et al. 2019, section 3.1 and appendix A.2; google-research/bert for whole word masking; Liu et al. 2019
(RoBERTa), section 4.1, for dynamic masking.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import grain
import numpy as np

from data import Corpus, DataError, NumpyBatch, Split, errors_as, require_processor
from data.pipelines.endless import batched, iterable
from data.pipelines.fingerprints import fingerprint, vocabulary_text
from data.pipelines.orders import random_numbers, shuffled_order
from data.readers.documents import DocumentSource, file_documents, read_documents
from data.readers.file_options import TextFiles
from jaxnlp.config import BatchSize, ProperFraction, UserPath, Within
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.wordpiece import CLS, MASK, SEP, SPECIAL, WordPieceVocabulary

MASKED_SHARE = 0.8
"""Share of the predicted tokens to replace by [MASK]."""
RANDOM_SHARE = 0.1
"""Share of the predicted tokens to replace by a random token; the others stay unchanged."""
FOLLOWING_SHARE = 0.5
"""Share of the examples whose second text follows the first in the document."""
_Arrays = tuple[np.ndarray, np.ndarray]
_PAIR_DRAWS = 4
"""Number of random numbers that decide the texts of an example."""


@dataclasses.dataclass(frozen=True)
class MaskedText(TextFiles):
    """Pairs of texts from documents, [CLS] A [SEP] B [SEP], with masked tokens.

    Each training sentence with a following sentence starts A of an example. Each epoch draws the numbers of sentences
    in A and B, the truncation of B, whether B follows A, and the masks.
    """

    length_field: ClassVar[str] = "sequence_length"
    processor_fields = ("vocabulary_size",)

    source: DocumentSource = "python_docs"
    """Documents: Python's embedded language reference, your file (set path), or AFQMC's training pairs."""
    path: UserPath | None = None
    """For text_file, the file of the documents: one sentence a line, blank lines between documents. For afqmc, its
    folder; None = in $JAXNLP_DATA."""
    vocabulary: UserPath | None = None
    """Folder of a WordPiece vocabulary, with tokenizer.json or vocab.txt; None = the pretrained model's vocabulary, or
    one trained on the training text."""
    vocabulary_size: Annotated[int, Within(f"[{len(SPECIAL) + 1}, 10000001)")] = 4_000
    """Maximum number of tokens in a vocabulary trained on the training text."""
    sequence_length: Annotated[int, Within("[5, 2147483648)")] = 128
    """Length of an example in tokens, T, special tokens and padding included; longer texts are truncated."""
    mask_rate: ProperFraction = 0.15
    """Share of the tokens that are predicted."""
    whole_word_masking: bool = False
    """Predict all tokens of a word or none; otherwise each token is drawn independently."""
    evaluation_batch_size: BatchSize = 64
    """Number of examples in an evaluation step."""
    validation_fraction: ProperFraction = 0.1
    """Share of the documents that is held out, at least two documents; they and their masks do not depend on the
    seed."""

    def __post_init__(self):
        super().__post_init__()
        self.format_only_if(self.source == "text_file", "data.source text_file")
        self.only_if(self.vocabulary is None, "a vocabulary trained on the training text", "vocabulary_size")

    @property
    def max_length(self) -> int:
        return self.sequence_length

    @property
    def predictions(self) -> int:
        """Maximum number of predicted tokens in an example, P."""
        return math.ceil(self.mask_rate * self.sequence_length)

    @property
    def needs(self) -> str:
        return {"python_docs": "", "text_file": "your text", "afqmc": "afqmc"}[self.source]

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the documents; the vocabulary is the processor's, that in `vocabulary`, or trained on the documents.

        Raises: FileNotFoundError, DataError when the file or the vocabulary cannot be read, there are too few
        documents, or `vocabulary` differs from the processor's.
        """
        train, held_out = self._train_and_held_out()
        if processor is None:
            return self._corpus(seed, train, held_out, self._own_vocabulary(train))
        vocabulary = _wordpiece(require_processor(processor, EncoderVocabulary))
        if self.vocabulary is not None and self._own_vocabulary(train) != vocabulary:
            raise DataError(
                f"the vocabulary in {self.vocabulary} differs from the model's of {vocabulary.size:,} tokens; remove "
                "--data.vocabulary"
            )
        return self._corpus(seed, train, held_out, vocabulary)

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a file in the format of `data.readers.documents.file_documents`, with fixed masks."""
        vocabulary = _wordpiece(require_processor(processor, EncoderVocabulary))
        tokens = TokenizedDocuments.of(file_documents(path, self.encoding), vocabulary)
        if tokens.count < 2:
            raise DataError(f"{path}: expected at least two documents of two sentences or more, got {tokens.count}")
        return self._split(tokens, vocabulary)

    def _train_and_held_out(self) -> tuple[list[list[str]], list[list[str]]]:
        where = self.path or self.source
        documents = [
            document for document in read_documents(self.source, self.path, self.encoding) if len(document) > 1
        ]
        if len(documents) < 4:
            raise DataError(
                f"{where}: expected at least four documents of two sentences or more, two for training and two for "
                f"validation, got {len(documents)}; write a blank line between documents and one sentence a line"
            )
        held_out = max(2, round(self.validation_fraction * len(documents)))
        if len(documents) - held_out < 2:
            raise DataError(
                f"--data.validation-fraction {self.validation_fraction} leaves {len(documents) - held_out} of "
                f"{len(documents)} documents of {where} for training; expected at least two"
            )
        order = np.random.default_rng(0).permutation(len(documents))
        return [documents[i] for i in np.sort(order[held_out:])], [documents[i] for i in np.sort(order[:held_out])]

    def _own_vocabulary(self, documents: Sequence[Sequence[str]]) -> EncoderVocabulary:
        if self.vocabulary is not None:
            with errors_as(DataError, "data.vocabulary"):
                return _wordpiece(WordPieceVocabulary.of_folder(Path(self.vocabulary)))
        with errors_as(DataError, "data.vocabulary_size"):
            sentences = [sentence for document in documents for sentence in document]
            return WordPieceVocabulary.of_texts(sentences, self.vocabulary_size)

    def _corpus(
        self, seed: int, train: list[list[str]], held_out: list[list[str]], vocabulary: EncoderVocabulary
    ) -> Corpus:
        parts = [TokenizedDocuments.of(documents, vocabulary) for documents in (train, held_out)]
        if min(part.count for part in parts) < 2:
            raise DataError(
                f"{self.path or self.source} has fewer than two documents for training, or for validation, whose "
                "sentences have any tokens"
            )
        order, examples = shuffled_order(parts[0].starts, seed), _Examples(self, parts[0], vocabulary)
        chance = random_numbers(seed, examples.draws)
        described = " and ".join(f"{part.count:,} ({len(part.tokens):,} tokens)" for part in parts)
        return Corpus(
            train=iterable(batched(lambda indices: examples(order(indices), chance(indices)), self.batch_size)),
            splits={"validation": self._split(parts[1], vocabulary)},
            processor=vocabulary,
            description=(
                f"{self.path or self.source}: {described} documents for training and validation; "
                f"{vocabulary.size:,} tokens in the vocabulary"
            ),
            fingerprint=fingerprint(vocabulary_text(vocabulary), *parts[0].arrays, *parts[1].arrays),
        )

    def _split(self, documents: "TokenizedDocuments", vocabulary: EncoderVocabulary) -> Split:
        """One pass over documents. Each sentence is in one chunk, with lengths and masks that depend only on its
        index."""
        examples, size = _Examples(self, documents, vocabulary), self.evaluation_batch_size
        starts, chance = documents.tiles(examples.room), random_numbers(0, examples.draws)

        def batch_of(index: int) -> NumpyBatch:
            indices = np.arange(index * size, min((index + 1) * size, len(starts)))
            batch = examples(starts[indices], chance(indices))
            missing = size - len(indices)
            return {
                name: np.concatenate([value, np.zeros((missing, *value.shape[1:]), value.dtype)])
                for name, value in batch.items()
            }

        batches = grain.MapDataset.range(-(-len(starts) // size)).map(batch_of)
        return Split(batches, of_each_shape=[batches[0]])


def _wordpiece(vocabulary: EncoderVocabulary) -> EncoderVocabulary:
    """The vocabulary. Raises: DataError unless it has BERT's special tokens."""
    if vocabulary.special != SPECIAL:
        raise DataError(
            f"pairs of texts with masked tokens need BERT's special tokens, {', '.join(SPECIAL)}, got "
            f"{', '.join(vocabulary.special)}; pretrain with a vocabulary of BERT"
        )
    return vocabulary


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizedDocuments:
    """Documents of at least two sentences, concatenated.

    A start is a sentence before another one: all except the last of each document. Start k, in document d, is sentence
    k + d.

    Attributes:
      tokens: of all sentences [N] int32.
      ends: 0, then the end of each sentence in `tokens` [S + 1] int.
      bounds: the first sentence of each document, then S [D + 1] int.
    """

    tokens: np.ndarray
    ends: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, documents: Sequence[Sequence[str]], vocabulary: EncoderVocabulary) -> "TokenizedDocuments":
        """Tokenizes documents; removes sentences without tokens, and then documents of fewer than two sentences."""
        encoded = iter(vocabulary.encode_all([sentence for document in documents for sentence in document]))
        tokenized = [[tokens for tokens in (next(encoded) for _ in document) if len(tokens)] for document in documents]
        tokenized = [document for document in tokenized if len(document) > 1]
        sentences = [sentence for document in tokenized for sentence in document]
        return cls(
            tokens=np.concatenate([np.zeros(0, np.int32), *sentences]),
            ends=np.cumsum([0, *map(len, sentences)]),
            bounds=np.cumsum([0, *map(len, tokenized)]),
        )

    @property
    def count(self) -> int:
        """D."""
        return len(self.bounds) - 1

    @property
    def starts(self) -> int:
        """Number of starts, S - D."""
        return int(self.bounds[-1]) - self.count

    def documents_of(self, starts: np.ndarray) -> np.ndarray:
        """The document that contains each start [B] int."""
        return np.searchsorted(self._ends_of_starts, starts, side="right")

    @functools.cached_property
    def _ends_of_starts(self) -> np.ndarray:
        """The end of each document's starts [D] int."""
        return self.bounds[1:] - np.arange(1, self.count + 1)

    def chunks(self, sentences: np.ndarray, documents: np.ndarray, room: int | np.ndarray) -> np.ndarray:
        """The end of the sentences from each of `sentences` that fill `room` tokens: at least two, all of the
        sentence's document [B] int."""
        full = np.searchsorted(self.ends, self.ends[sentences] + room)
        return np.minimum(np.maximum(full, sentences + 2), self.bounds[documents + 1])

    def tiles(self, room: int) -> np.ndarray:
        """Starts of chunks that do not overlap, without a single last sentence."""
        starts = np.arange(self.starts)
        documents = self.documents_of(starts)
        ends = self.chunks(starts + documents, documents, room).tolist()
        tiles, sentence = [], 0
        for start, (document, end) in enumerate(zip(documents.tolist(), ends, strict=True)):
            if start + document >= sentence:
                tiles.append(start)
                sentence = end
        return np.array(tiles)

    @property
    def arrays(self) -> list[np.ndarray]:
        """All arrays, for the fingerprint."""
        return [array.astype("<i8") for array in (self.tokens, self.ends, self.bounds)]


class _Examples:
    """Batches of examples, as a function of their starts and of random numbers."""

    def __init__(self, config: MaskedText, documents: TokenizedDocuments, vocabulary: EncoderVocabulary):
        self._config = config
        self._draws = (_PAIR_DRAWS, 1, config.sequence_length, config.predictions, config.predictions)
        self._documents = documents
        self._cls, self._sep, self._mask = (vocabulary.id_of(piece) for piece in (CLS, SEP, MASK))
        pieces = vocabulary.tokens(range(vocabulary.size))
        self._continues = np.array([piece.startswith("##") for piece in pieces])
        self._places = np.arange(config.sequence_length)
        self._ordinary = np.array([index for index, piece in enumerate(pieces) if piece not in SPECIAL], np.int32)

    @property
    def room(self) -> int:
        """Maximum number of tokens of both texts together."""
        return self._config.sequence_length - 3

    @property
    def draws(self) -> int:
        """Number of random numbers of an example."""
        return sum(self._draws)

    def __call__(self, starts: np.ndarray, chance: np.ndarray) -> NumpyBatch:
        """A batch of B examples.

        Args:
          starts: [B] int.
          chance: random numbers in [0, 1) [B, draws].

        Returns:
          `tokens`, `segments` [B, T] int32, `attention_mask` [B, T] bool, `positions`, `targets` [B, P] int32,
          `predicted` [B, P] bool, `follows` [B] int32 and `loss_mask` [B] bool.
        """
        of_pair, rounding, of_place, kind, other = np.split(chance, np.cumsum(self._draws)[:-1], axis=1)
        (first, second), (first_size, second_size), follows = self._pairs(starts, of_pair)
        middle = first_size[:, None] + 1
        end = middle + 1 + second_size[:, None]
        places = self._places[None]
        words = (places > 0) & (places < end) & (places != middle)
        source = np.where(places < middle, first[:, None] + places - 1, second[:, None] + places - middle - 1)
        tokens = np.zeros(words.shape, np.int32)
        tokens[:, 0] = self._cls
        tokens[(places == middle) | (places == end)] = self._sep
        tokens[words] = self._documents.tokens[source[words]]
        counts = (self._config.mask_rate * words.sum(axis=1) + rounding[:, 0]).astype(int)
        if self._config.whole_word_masking:
            chosen = self._whole_words(tokens, words, of_place, counts)
        else:
            chosen = _least(words, of_place, counts)
        row, place = np.nonzero(chosen)
        found = np.bincount(row, minlength=len(tokens))
        rank = np.arange(len(row)) - (np.cumsum(found) - found)[row]
        batch = {name: np.zeros((len(tokens), self._config.predictions), np.int32) for name in ("positions", "targets")}
        batch["positions"][row, rank], batch["targets"][row, rank] = place, tokens[row, place]
        tokens[row, place] = self._corrupted(tokens[row, place], kind[row, rank], other[row, rank])
        return batch | {
            "tokens": tokens,
            "segments": ((middle < places) & (places <= end)).astype(np.int32),
            "attention_mask": places <= end,
            "predicted": self._places[None, : self._config.predictions] < found[:, None],
            "follows": follows.astype(np.int32),
            "loss_mask": np.ones(len(tokens), bool),
        }

    def _pairs(self, starts: np.ndarray, chance: np.ndarray) -> tuple[_Arrays, _Arrays, np.ndarray]:
        """The first token of A and of B, their numbers of tokens, each [B] int, and whether B follows A [B] bool."""
        documents = self._documents
        of_middle, of_following, of_end, of_other = chance.T
        document = documents.documents_of(starts)
        begin = starts + document
        end = documents.chunks(begin, document, self.room)
        middle = _integers(of_middle, begin + 1, end)
        first, second, after = documents.ends[begin], documents.ends[middle], documents.ends[end]
        follows = of_following < FOLLOWING_SHARE
        # Truncation removes the start of A and the end of B. Lengths are drawn before B is replaced. Otherwise a B of
        # another document would have more whole sentences, and the lengths would reveal it. And B ends at any token:
        # otherwise a B that follows would mostly end with a sentence, a truncated one rarely.
        kept, longest = _shortened(second - first, after - second, self.room)
        kept_second = _integers(of_end, (longest + 1) // 2, longest + 1)
        other = self._elsewhere(document, after - second, of_other)
        begins, ends = (np.where(follows, *both) for both in zip((second, after), other, strict=True))
        return (second - kept, begins), (kept, np.minimum(kept_second, ends - begins)), follows

    def _elsewhere(self, document: np.ndarray, tokens: np.ndarray, chance: np.ndarray) -> _Arrays:
        """Start and end of sentences of another document, with `tokens` tokens, or fewer at its end, without its first
        sentence.

        A text that follows another never starts a document, and mostly fills the room. This text must do the same:
        otherwise titles and lengths would reveal the answer.
        """
        documents = self._documents
        own_first = documents.bounds[document] - document
        own_starts = documents.bounds[document + 1] - documents.bounds[document] - 1
        start = _integers(chance, 0, documents.starts - own_starts)
        start += np.where(start >= own_first, own_starts, 0)
        other = documents.documents_of(start)
        begin = start + other + 1
        return documents.ends[begin], documents.ends[documents.chunks(begin, other, tokens)]

    def _whole_words(self, tokens: np.ndarray, words: np.ndarray, chance: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The predicted positions, as `_least`: all tokens of a word or none, words in a random order."""
        # A word starts with a token without ##, and after a special token.
        begins = words & (~self._continues[tokens] | ~np.roll(words, 1, axis=1))
        chosen = np.zeros(words.shape, bool)
        for row, left in enumerate(counts.tolist()):
            ordinary, starts = np.flatnonzero(words[row]), np.flatnonzero(begins[row])
            of_words = np.split(ordinary, np.searchsorted(ordinary, starts[1:]))
            for index in np.argsort(chance[row, starts]).tolist():
                if len(of_words[index]) <= left:
                    chosen[row, of_words[index]] = True
                    left -= len(of_words[index])
                if not left:
                    break
        return chosen

    def _corrupted(self, ids: np.ndarray, kind: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The tokens that replace the predicted tokens [n]. Args: kind, other: random numbers [n]."""
        random = self._ordinary[_integers(other, 0, len(self._ordinary))]
        replacements = np.where(kind < MASKED_SHARE + RANDOM_SHARE, random, ids)
        return np.where(kind < MASKED_SHARE, np.int32(self._mask), replacements)


def _least(words: np.ndarray, chance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The predicted positions [B, T] bool: in each row, the `counts` [B] of `words` [B, T] with the least numbers."""
    ordered = np.sort(np.where(words, chance, np.inf), axis=1)
    return words & (chance < np.take_along_axis(ordered, counts[:, None], axis=1))


def _integers(chance: np.ndarray, low: np.ndarray | int, high: np.ndarray | int) -> np.ndarray:
    """Uniform integers in [low, high). Args: chance: random numbers in [0, 1)."""
    return low + (chance * (high - low)).astype(int)


def _shortened(first: np.ndarray, second: np.ndarray, room: int) -> _Arrays:
    """Lengths of two texts that fit: the longer one is truncated until both are equally long, then both are
    truncated."""
    half = room // 2
    return np.minimum(first, np.maximum(room - second, room - half)), np.minimum(second, np.maximum(room - first, half))
