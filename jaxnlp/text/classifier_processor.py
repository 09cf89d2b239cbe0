"""The processor of text classifiers: a tokenizer, the maximum length, and the targets."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from jaxnlp.targets import Targets, targets_from_json
from jaxnlp.text import require_fields
from jaxnlp.text.embedding_settings import PLAIN, EmbeddingSettings
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary, TokenizedTexts, padded_texts
from jaxnlp.text.padding import padded, row_mask
from jaxnlp.text.raw_texts import as_texts

PairReading = Literal["together", "apart"]
"""Whether the texts of a pair are one input (together) or two inputs (apart)."""


@dataclasses.dataclass(frozen=True)
class LabelledText:
    """A text, or a pair of texts, and its label.

    Attributes:
      name: in predictions: the number of its row, from 1, without the header; or its id.
    """

    name: str
    texts: tuple[str, ...]
    label: Any = None
    heading: Literal["row", "id"] = "row"


class TextPart(NamedTuple):
    """A part of the data: its targets, and the number of texts of an example, 1, or 2 for pairs."""

    targets: Targets
    texts: int = 1


Parts = tuple[tuple[str, TextPart], ...]


def one_part(targets: Targets, texts: int = 1) -> Parts:
    """A single part without a name, as in most data."""
    return (("", TextPart(targets, texts)),)


@dataclasses.dataclass(frozen=True)
class TextClassifierProcessor:
    """The processor of classifiers of texts, or of pairs of texts. Equal by value.

    A text becomes [CLS] text [SEP]; a pair becomes [CLS] first [SEP] second [SEP], or two inputs. Other tokenizers name
    these tokens differently, and RoBERTa's has two between the texts. With several parts, the processors in `by_part`
    read texts.

    Attributes:
      vocabulary: the tokenizer.
      max_length: maximum length of an input in tokens, special tokens included; longer texts are truncated.
      parts: by name; the name of a single part may be empty.
      pairs: see `PairReading`. Optional: a model of one part reads single texts, and pairs as one input; `of_texts`
        returns the processor of either.
      embeddings: prompts and truncation of a pretrained encoder's embeddings.
    """

    vocabulary: EncoderVocabulary
    max_length: int
    parts: Parts
    pairs: PairReading | Literal["optional"] = "together"
    embeddings: EmbeddingSettings = PLAIN

    def __post_init__(self):
        names = [name for name, _ in self.parts]
        if len(set(names)) != len(names) or not names or (len(names) > 1 and "" in names):
            raise ValueError(f"parts must be at least one, with distinct names, got {', '.join(names) or 'none'}")
        texts = {part.texts for _, part in self.parts}
        if not texts <= {1, 2}:
            raise ValueError(f"texts must be 1, or 2 for pairs, got {', '.join(map(str, sorted(texts)))}")
        if self.pairs not in (*get_args(PairReading), "optional") or (self.pairs == "apart" and texts == {1}):
            raise ValueError(f"pairs must be together, or apart if there are 2 texts, got {self.pairs!r}")
        if self.pairs == "optional" and (texts != {1} or len(names) > 1):
            raise ValueError("pairs can be optional only for a single part of single texts, got " + ", ".join(names))
        least = self.vocabulary.min_length(2 if 2 in texts and self.pairs == "together" else 1)
        if self.max_length < least:
            raise ValueError(f"max_length must be at least {least}, got {self.max_length}")

    @functools.cached_property
    def by_part(self) -> dict[str, Self]:
        """The processor of each part, by name."""
        if len(self.parts) == 1:
            return {self.parts[0][0]: self}
        return {
            name: dataclasses.replace(self, parts=((name, part),), pairs="together" if part.texts == 1 else self.pairs)
            for name, part in self.parts
        }

    @property
    def name(self) -> str:
        """The name of the only part."""
        return self._only()[0]

    @property
    def targets(self) -> Targets:
        """The targets of the only part."""
        return self._only()[1].targets

    @property
    def texts(self) -> int:
        """Number of texts of an example of the only part."""
        return self._only()[1].texts

    def _only(self) -> tuple[str, TextPart]:
        if len(self.parts) != 1:
            names = ", ".join(name for name, _ in self.parts)
            raise ValueError(f"choose a part, such as processor.by_part[{self.parts[0][0]!r}]: {names}")
        return self.parts[0]

    @property
    def apart(self) -> bool:
        """Whether examples are pairs whose texts are two inputs."""
        return self.pairs == "apart"

    @property
    def counted(self) -> str:
        """The plural noun for examples in metrics."""
        return "texts" if self.texts == 1 else "pairs"

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of the `cells` of an example."""
        return ("text",) if self.texts == 1 else ("text", "second text")

    def cells(self, example: LabelledText) -> tuple[str, ...]:
        """The texts of an example, as columns of a table."""
        return example.texts

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.vocabulary.size

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens, by id."""
        return tuple(self.vocabulary.tokens(range(self.vocabulary.size)))

    @property
    def outputs(self) -> int:
        """Number of a classifier's outputs."""
        return self.targets.outputs

    def of_texts(self, count: int) -> Self:
        """The processor of examples of that many texts, if pairs are optional; otherwise itself."""
        if self.pairs != "optional" or count not in (1, 2):
            return self
        (name, part), *_ = self.parts
        return dataclasses.replace(self, parts=((name, part._replace(texts=count)),), pairs="together")

    def tokenize(self, rows: Sequence[Sequence[str]]) -> TokenizedTexts:
        """Rows of one or two texts as tokens. Raises: ValueError for a row of another number of texts.

        With pairs apart, a row has the tokens of both inputs, [CLS] first [SEP] [CLS] second [SEP], and its segments
        are 0 in the first text and 1 in the second.
        """
        if any(len(row) != self.texts for row in rows):
            remedy = "remove pairs" if self.texts == 1 else "give pairs"
            raise ValueError(f"this model reads {number_of_texts(self.texts)}; {remedy}")
        columns: Any = zip(*rows, strict=True) if rows else ((), ())[: self.texts]
        first, *second = ([self.embeddings.prompt + text for text in column] for column in columns)
        if not self.apart:
            return self.vocabulary.tokenize(first, second[0] if second else None, max_length=self.max_length)
        one, other = (self.vocabulary.tokenize(texts, max_length=self.max_length) for texts in (first, *second))
        pairs = list(zip(one.tokens, other.tokens, strict=True))
        return TokenizedTexts(
            [np.concatenate(pair) for pair in pairs],
            [np.repeat(np.array([0, 1], np.int32), list(map(len, pair))) for pair in pairs],
            sorted({*one.truncated_rows, *other.truncated_rows}),
        )

    def __call__(self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None) -> Any:
        """The batch of texts, or of pairs of texts, as `batch` returns it; one text is a batch of one row.

        Raises: ValueError for arguments that are not texts, and for examples of another number of texts.
        """
        columns = [as_texts(texts)] if pairs is None else [as_texts(texts), as_texts(pairs)]
        tokenized = self.of_texts(len(columns)).tokenize(list(zip(*columns, strict=True)))
        longest = max(map(self.length, tokenized.segments))
        return self.batch(tokenized.tokens, tokenized.segments, len(tokenized.tokens), longest)

    def length(self, segments: np.ndarray) -> int:
        """Minimum length of a batch with an example of segments [T]; with pairs apart, that of the longer text."""
        return int(np.bincount(segments).max()) if self.apart else len(segments)

    def batch(self, tokens: Sequence[np.ndarray], segments: Sequence[np.ndarray], size: int, length: int) -> Any:
        """Tokenized examples as a batch of B rows; the last ones are padding.

        Args:
          tokens: ids of each example.
          segments: as `tokens`: 0 for the first text, 1 for the second.
          size: B.
          length: T, at least the `length` of each example.

        Returns:
          `tokens` [B, T] int32, `segments` [B, T] int32, `attention_mask` [B, T] bool, False for padding, and
          `loss_mask` [B] bool, False for rows of padding. With pairs apart, the first three are [B, 2, T], and
          `segments` are all 0. The attention mask of the first position is always True, since softmax and mean need at
          least one token.
        """
        loss_mask = np.arange(size) < len(tokens)
        if self.apart:
            pairs = [(ids[kind == 0], ids[kind == 1]) for ids, kind in zip(tokens, segments, strict=True)]
            ids, mask = padded_texts(pairs or [(np.zeros(0, np.int32),) * 2], size, length)
            return {"tokens": ids, "segments": np.zeros_like(ids), "attention_mask": mask, "loss_mask": loss_mask}
        mask = row_mask(tokens, size, length)
        ids, kinds = padded(tokens, mask), padded(segments, mask)
        mask[:, 0] = True
        return {"tokens": ids, "segments": kinds, "attention_mask": mask, "loss_mask": loss_mask}

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {
            "vocabulary": self.vocabulary.to_json(),
            "max_length": self.max_length,
            "parts": [[name, part.targets.to_json(), part.texts] for name, part in self.parts],
            "pairs": self.pairs,
            **({} if self.embeddings == PLAIN else {"embeddings": self.embeddings.to_json()}),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError naming the wrong field."""
        require_fields(fields, "text classifier", vocabulary=dict, max_length=int, parts=list, pairs=str)
        try:
            parts = tuple(
                (str(name), TextPart(targets_from_json(one), int(texts))) for name, one, texts in fields["parts"]
            )
        except TypeError as error:
            raise ValueError(f"text classifier: parts must be names, targets and texts: {fields['parts']!r}") from error
        vocabulary = EncoderVocabulary.from_json(fields["vocabulary"])
        embeddings = EmbeddingSettings.from_json(fields["embeddings"]) if "embeddings" in fields else PLAIN
        return cls(vocabulary, fields["max_length"], parts, fields["pairs"], embeddings)


def number_of_texts(count: int) -> str:
    """How many texts an example has, in words: `one text per example`."""
    return f"{'one text' if count == 1 else 'two texts'} per example"
