"""Data of BERT's pretraining: masked language modelling and next-sentence prediction.

Source: Devlin et al. 2019, section 3.1 and appendix A.2; google-research/bert for whole word masking; Liu et al.
2019 (RoBERTa), section 4.1, for masks that are drawn again in each epoch.
"""

import bisect
import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import grain
import numpy as np

from data import Corpus, DataError, NumpyBatch, Split, require_processor
from data.pipelines.endless import batched, iterable, shuffled, stacked
from data.pipelines.fingerprints import fingerprint, vocabulary_text
from data.readers.documents import DocumentSource, file_documents, read_documents
from data.readers.file_options import TextFiles
from jaxnlp.config import BatchSize, ProperFraction, UserPath, Within
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.text.wordpiece import CLS, MASK, SEP, SPECIAL, WordPieceVocabulary

MASKED_SHARE = 0.8
"""Share of the predicted tokens that is replaced by [MASK]."""
RANDOM_SHARE = 0.1
"""Share of the predicted tokens that is replaced by a random token; the others stay unchanged."""
FOLLOWING_SHARE = 0.5
"""Share of the examples whose second text follows the first in the document."""


@dataclasses.dataclass(frozen=True)
class MaskedText(TextFiles):
    """Pairs of texts from documents, [CLS] A [SEP] B [SEP], with masked tokens.

    Each training sentence with a following sentence has an example, whose A starts with it. Each epoch draws anew how
    many sentences A and B have, the truncation of B, whether B follows A, and the masks.
    """

    length_field: ClassVar[str] = "sequence_length"
    processor_fields = ("vocabulary_size",)

    source: DocumentSource = "python_docs"
    """Documents: Python's embedded language reference, your file (set path), or AFQMC's training pairs."""
    path: UserPath | None = None
    """For text_file, the file of the documents: one sentence a line, blank lines between documents. For afqmc, its
    folder; None = in $JAXNLP_DATA."""
    vocabulary: UserPath | None = None
    """Folder of a WordPiece vocabulary, with tokenizer.json or vocab.txt; None = the vocabulary of the pretrained
    model, or one trained on the training text."""
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
        """T."""
        return self.sequence_length

    @property
    def predictions(self) -> int:
        """Maximum number of predicted tokens in an example, P."""
        return math.ceil(self.mask_rate * self.sequence_length)

    @property
    def needs(self) -> str:
        """The name of the source's documents."""
        return {"python_docs": "", "text_file": "your text", "afqmc": "afqmc"}[self.source]

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the documents; the vocabulary is that of the processor, that in `vocabulary`, or trained on the
        documents.

        Raises:
          FileNotFoundError, DataError: when the file or the vocabulary cannot be read, there are too few documents, or
            `vocabulary` differs from that of the processor.
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
        """The training documents and the held-out documents."""
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
        try:
            if self.vocabulary is not None:
                return _wordpiece(WordPieceVocabulary.of_folder(Path(self.vocabulary)))
            sentences = [sentence for document in documents for sentence in document]
            return WordPieceVocabulary.of_texts(sentences, self.vocabulary_size)
        except ValueError as error:
            name = "vocabulary" if self.vocabulary is not None else "vocabulary_size"
            raise DataError(f"data.{name}: {error}") from error

    def _corpus(
        self, seed: int, train: list[list[str]], held_out: list[list[str]], vocabulary: EncoderVocabulary
    ) -> Corpus:
        parts = [TokenizedDocuments.of(documents, vocabulary) for documents in (train, held_out)]
        if min(part.count for part in parts) < 2:
            raise DataError(
                f"{self.path or self.source} has fewer than two documents for training, or for validation, whose "
                "sentences have any tokens"
            )
        examples = shuffled(range(parts[0].starts), seed, _Examples(self, parts[0], vocabulary))
        described = " and ".join(f"{part.count:,} ({len(part.tokens):,} tokens)" for part in parts)
        return Corpus(
            train=iterable(batched(lambda indices: stacked(examples(indices)), self.batch_size)),
            splits={"validation": self._split(parts[1], vocabulary)},
            processor=vocabulary,
            description=(
                f"{self.path or self.source}: {described} documents for training and validation; "
                f"{vocabulary.size:,} tokens in the vocabulary"
            ),
            fingerprint=fingerprint(vocabulary_text(vocabulary), *parts[0].arrays, *parts[1].arrays),
        )

    def _split(self, documents: "TokenizedDocuments", vocabulary: EncoderVocabulary) -> Split:
        """One pass over documents. Each sentence is in one chunk, whose lengths and masks depend only on its index."""
        examples = _Examples(self, documents, vocabulary)
        starts, size = documents.tiles(examples.room), self.evaluation_batch_size

        def batch_of(index: int) -> NumpyBatch:
            indices = range(index * size, min((index + 1) * size, len(starts)))
            rows = [examples(starts[i], np.random.default_rng((0, i))) for i in indices]
            rows += [{name: np.zeros_like(value) for name, value in rows[0].items()}] * (size - len(rows))
            return stacked(rows)

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

    A start is a sentence that another one follows: all except the last of each document. Start k, in document d, is
    sentence k + d, and the following sentence is k + d + 1.

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

    def document_of(self, start: int) -> int:
        """The document that contains a start."""
        return bisect.bisect_right(self._ends_of_starts, start)

    @functools.cached_property
    def _ends_of_starts(self) -> list[int]:
        """After the last start of each document [D]; a list, since `bisect` takes less time than NumPy."""
        return (self.bounds[1:] - np.arange(1, self.count + 1)).tolist()

    def chunk(self, sentence: int, document: int, room: int) -> int:
        """The end of the sentences from `sentence` that fill `room` tokens: at least two, all of its document."""
        full = int(self.ends.searchsorted(self.ends[sentence] + room))
        return min(max(full, sentence + 2), int(self.bounds[document + 1]))

    def tiles(self, room: int) -> list[int]:
        """Starts of chunks that do not overlap. They leave out a single last sentence."""
        starts = []
        for document, sentence in enumerate(self.bounds[:-1].tolist()):
            while sentence + 1 < self.bounds[document + 1]:
                starts.append(sentence - document)
                sentence = self.chunk(sentence, document, room)
        return starts

    def text(self, first: int, end: int) -> np.ndarray:
        """Tokens of sentences first..end - 1."""
        return self.tokens[self.ends[first] : self.ends[end]]

    @property
    def arrays(self) -> list[np.ndarray]:
        """All arrays, for the fingerprint."""
        return [array.astype("<i8") for array in (self.tokens, self.ends, self.bounds)]


class _Examples:
    """Examples, as a function of a start's index and a random generator."""

    def __init__(self, config: MaskedText, documents: TokenizedDocuments, vocabulary: EncoderVocabulary):
        self._config = config
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

    def __call__(self, start: int, rng: np.random.Generator) -> NumpyBatch:
        """`tokens`, `segments` [T] int32, `attention_mask` [T] bool, `positions`, `targets` [P] int32, `predicted` [P]
        bool, `follows` [] int32 and `loss_mask` [] bool."""
        first, second, follows = self._pair(int(start), rng)
        middle = len(first) + 1
        end = middle + 1 + len(second)
        batch = {name: np.zeros(self._config.sequence_length, np.int32) for name in ("tokens", "segments")}
        batch |= {name: np.zeros(self._config.predictions, np.int32) for name in ("positions", "targets")}
        tokens = batch["tokens"]
        tokens[0], tokens[1:middle], tokens[middle] = self._cls, first, self._sep
        tokens[middle + 1 : end], tokens[end] = second, self._sep
        words = np.concatenate([self._places[1:middle], self._places[middle + 1 : end]])
        chosen = self._chosen(tokens, words, rng)
        count = len(chosen)
        batch["positions"][:count], batch["targets"][:count] = chosen, tokens[chosen]
        tokens[chosen] = self._corrupted(tokens[chosen], rng)
        batch["segments"][middle + 1 : end + 1] = 1
        return batch | {
            "attention_mask": self._places <= end,
            "predicted": self._places[: self._config.predictions] < count,
            "follows": np.array(follows, np.int32),
            "loss_mask": np.array(True),
        }

    def _pair(self, start: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, bool]:
        """A, B, and whether B follows A."""
        documents = self._documents
        document = documents.document_of(start)
        begin = start + document
        end = documents.chunk(begin, document, self.room)
        middle = int(rng.integers(begin + 1, end))
        first, second = documents.text(begin, middle), documents.text(middle, end)
        follows = bool(rng.random() < FOLLOWING_SHARE)
        # Truncation removes the start of A and the end of B. Lengths are drawn before B is replaced. Otherwise a B of
        # another document would have more whole sentences, and the lengths would reveal it. And B ends at any token:
        # otherwise a B that follows would mostly end with a sentence, a truncated one rarely.
        kept, longest = _shortened(len(first), len(second), self.room)
        kept_second = int(rng.integers((longest + 1) // 2, longest + 1))
        if not follows:
            second = self._elsewhere(document, len(second), rng)
        return first[len(first) - kept :], second[:kept_second], follows

    def _elsewhere(self, document: int, tokens: int, rng: np.random.Generator) -> np.ndarray:
        """Sentences of another document with `tokens` tokens, or fewer at its end, not starting with its first
        sentence.

        A text that follows another never starts a document, and mostly fills the remaining room. This text must be the
        same in both: otherwise titles and lengths would reveal the answer.
        """
        documents = self._documents
        own_first = int(documents.bounds[document]) - document
        own_starts = int(documents.bounds[document + 1] - documents.bounds[document]) - 1
        start = int(rng.integers(documents.starts - own_starts))
        if start >= own_first:
            start += own_starts
        other = documents.document_of(start)
        begin = start + other + 1
        return documents.text(begin, documents.chunk(begin, other, tokens))

    def _chosen(self, ids: np.ndarray, positions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The predicted positions, in ascending order: on average a share `mask_rate` of `positions`."""
        count = int(self._config.mask_rate * len(positions) + rng.random())
        if not self._config.whole_word_masking:
            return np.sort(rng.permutation(positions)[:count])
        # A word starts with a token without ##, and after a special token.
        begins = ~self._continues[ids[positions]] | (np.diff(positions, prepend=0) > 1)
        begins[0] = True
        words = np.split(positions, np.flatnonzero(begins)[1:])
        chosen: list[np.ndarray] = []
        for index in rng.permutation(len(words)):
            if len(words[index]) <= count:
                chosen.append(words[index])
                count -= len(words[index])
            if not count:
                break
        return np.sort(np.concatenate([positions[:0], *chosen]))

    def _corrupted(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The tokens that replace the predicted tokens."""
        draws = rng.random(len(ids))
        random = self._ordinary[rng.integers(len(self._ordinary), size=len(ids))]
        replacements = np.where(draws < MASKED_SHARE + RANDOM_SHARE, random, ids)
        return np.where(draws < MASKED_SHARE, np.int32(self._mask), replacements)


def _shortened(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths of two texts that fit: the longer one is truncated until both are equally long, then both are
    truncated."""
    if first + second <= room:
        return first, second
    half = room // 2
    if min(first, second) <= half:
        return (first, room - first) if first < second else (room - second, second)
    return room - half, half
