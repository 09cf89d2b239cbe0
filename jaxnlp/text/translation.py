"""The processor of translation: a tokenizer for each language, or one for both."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from jaxnlp.text.generation_constraints import UNCONSTRAINED, GenerationConstraints
from jaxnlp.text.marian_tokenizer import MarianTokenizer
from jaxnlp.text.padding import padded, row_mask
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from jaxnlp.text.raw_texts import as_texts
from jaxnlp.text.subwords import Subwords


@dataclasses.dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation.

    Attributes:
      source: the sentence.
      reference: its translation; None = not known.
      line: of its file, from 1, for messages; 0 = the pair does not come from a file.
    """

    source: str
    reference: str | None = None
    line: int = dataclasses.field(default=0, compare=False)


class Symbols(NamedTuple):
    """The ids of the symbols before and after a target, and the constraints on generated targets."""

    start: int
    end: int
    constraints: GenerationConstraints = UNCONSTRAINED


@dataclasses.dataclass(frozen=True)
class TranslationProcessor:
    """The processor of models that read one text and write another. Equal by value.

    Attributes:
      source: the tokenizer of inputs.
      target: the tokenizer of outputs.
    """

    source: Subwords | PretrainedSubwords
    target: Subwords | PretrainedSubwords

    @property
    def shared(self) -> bool:
        """Whether source and target share a vocabulary, so that a model can share its embeddings."""
        return self.source == self.target

    @property
    def symbols(self) -> Symbols:
        """The symbols of a target."""
        target = self.target
        constraints = target.constraints if isinstance(target, PretrainedSubwords) else UNCONSTRAINED
        return Symbols(target.start, target.end, constraints)

    def __call__(
        self, sources: str | Sequence[str], targets: str | Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """The encoder's input: `source` [B, S] int32 and `source_mask` [B, S] bool; one text is one row.

        With targets also the decoder's input: `inputs` [B, T] int32, the start symbol and the target.

        Raises: ValueError for arguments that are not texts.
        """
        rows = [self.encode_source(text) for text in as_texts(sources)]
        batch = {"source": padded(rows)}
        if targets is not None:
            written = [[self.target.start, *self.target.encode_target(text)] for text in as_texts(targets)]
            batch["inputs"] = padded(written)
        return batch | {"source_mask": row_mask(rows)}

    def encode_source(self, text: str) -> list[int]:
        """The ids of a source, the end symbol last."""
        return [*self.source.encode(text), self.source.end]

    def encode_target(self, text: str) -> list[int]:
        """The ids of a target, the end symbol last."""
        return [*self.target.encode_target(text), self.target.end]

    def without_min_length(self) -> "TranslationProcessor":
        """The processor for further training, without a minimum length of targets."""
        if not self.symbols.constraints.min_length or not isinstance(self.target, PretrainedSubwords):
            return self
        source, target = self.source, self.target.without_min_length()
        return TranslationProcessor(target if self.shared else source, target)

    def with_tokens(self, tokens: Sequence[str]) -> "TranslationProcessor":
        """The processor of a pretrained model, with these tokens, see `jaxnlp.text.new_tokens`.

        Raises: ValueError as there, and for tokenizers that are not pretrained.
        """
        if not isinstance(self.source, PretrainedSubwords) or not self.shared:
            raise ValueError("only the one tokenizer of a pretrained model takes new tokens")
        more = self.source.with_tokens(tokens)
        return TranslationProcessor(more, more)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON; `target` is null if it equals `source`."""
        return {"source": self.source.to_json(), "target": None if self.shared else self.target.to_json()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError naming a field that is missing or wrong."""
        if not isinstance(fields, dict) or "source" not in fields or "target" not in fields:
            raise ValueError(f"translation processor: expected source and target, got {fields!r:.80}")
        source = _tokenizer(fields["source"])
        return cls(source, source if fields["target"] is None else _tokenizer(fields["target"]))


def _tokenizer(fields: dict[str, Any]) -> Subwords | PretrainedSubwords:
    if "pieces" in fields:
        return MarianTokenizer.from_json(fields)
    return PretrainedSubwords.from_json(fields) if "tokenizer" in fields else Subwords.from_json(fields)
