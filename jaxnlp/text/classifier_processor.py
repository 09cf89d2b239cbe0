"""Between texts and arrays for classifiers: a tokenizer, the maximum length, and what is predicted."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from jaxnlp.targets import Targets, targets_from_json
from jaxnlp.text.wordpiece import TokenizedTexts, WordPieceVocabulary


@dataclasses.dataclass(frozen=True)
class LabelledText:
    """A text, or a pair of texts, and its label.

    Attributes:
      name: of the example in predictions, such as the number of its row.
      texts: one or two.
      label: as `jaxnlp.targets` has it; None where it is not known.
    """

    name: str
    texts: tuple[str, ...]
    label: Any = None


@dataclasses.dataclass(frozen=True)
class TextClassifierProcessor:
    """The processor of classifiers of texts, or of pairs of texts. Equal by value.

    A text is read as [CLS] text [SEP], and a pair as [CLS] first [SEP] second [SEP].

    Attributes:
      vocabulary: the tokenizer.
      max_length: maximum length in tokens, special tokens included; longer texts are truncated.
      texts: 1, or 2 for pairs.
      targets: the classes, or the ends of a scale.
    """

    vocabulary: WordPieceVocabulary
    max_length: int
    texts: int
    targets: Targets

    def __post_init__(self):
        if self.texts not in (1, 2):
            raise ValueError(f"texts must be 1, or 2 for pairs, got {self.texts}")
        least = 1 + 2 * self.texts
        if self.max_length < least:
            raise ValueError(f"max_length must be at least {least}, got {self.max_length}")

    @property
    def counted(self) -> str:
        """What examples are called where they are counted."""
        return "texts" if self.texts == 1 else "pairs"

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of the `cells` of an example."""
        return ("text",) if self.texts == 1 else ("text", "second text")

    def cells(self, example: LabelledText) -> tuple[str, ...]:
        """What a table shows of an example: its texts."""
        return example.texts

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.vocabulary.size

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens, in the order of their ids."""
        return tuple(self.vocabulary.tokens(range(self.vocabulary.size)))

    @property
    def outputs(self) -> int:
        """Number of a classifier's outputs."""
        return self.targets.outputs

    def tokenize(self, rows: Sequence[Sequence[str]]) -> TokenizedTexts:
        """Rows of one or two texts as tokens. Raises: ValueError for a row of another number of texts."""
        if any(len(row) != self.texts for row in rows):
            raise ValueError(f"this model reads {self.texts} text(s) per example")
        first, *second = zip(*rows, strict=True) if rows else ((), ())[: self.texts]
        return self.vocabulary.tokenize(first, second[0] if second else None, max_length=self.max_length)

    def batch(self, tokens: Sequence[np.ndarray], segments: Sequence[np.ndarray], size: int, length: int) -> Any:
        """Tokenized examples as a batch of B rows; the last ones are padding.

        Args:
          tokens: ids of each example.
          segments: as `tokens`: 0 for the first text, 1 for the second.
          size: B.
          length: T, at least that of the longest example.

        Returns:
          `tokens` [B, T] int32, `segments` [B, T] int32, `attention_mask` [B, T] bool, False for padding, and
          `loss_mask` [B] bool, False for rows of padding. The attention mask of the first position is always True,
          since softmax and mean need at least one token.
        """
        ids, kinds, mask = (np.zeros((size, length), dtype) for dtype in (np.int32, np.int32, bool))
        mask[:, 0] = True
        for row, (example, kind) in enumerate(zip(tokens, segments, strict=True)):
            ids[row, : len(example)], kinds[row, : len(kind)], mask[row, : len(example)] = example, kind, True
        return {"tokens": ids, "segments": kinds, "attention_mask": mask, "loss_mask": np.arange(size) < len(tokens)}

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {
            "vocabulary": self.vocabulary.to_json(),
            "max_length": self.max_length,
            "texts": self.texts,
            "targets": self.targets.to_json(),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """What `to_json` returned. Raises: ValueError naming the field that is something else."""
        for name, kind in (("vocabulary", dict), ("max_length", int), ("texts", int), ("targets", dict)):
            if not isinstance(fields, dict) or not isinstance(fields.get(name), kind):
                raise ValueError(f"text classifier: {name} is missing or not of type {kind.__name__}")
        vocabulary = WordPieceVocabulary.from_json(fields["vocabulary"])
        return cls(vocabulary, fields["max_length"], fields["texts"], targets_from_json(fields["targets"]))
