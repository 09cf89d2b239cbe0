"""Between sentences and their translations and arrays: a tokenizer for each language, or one for both."""

import dataclasses
from typing import Any, Self

from jaxnlp.text.subwords import END, Subwords


@dataclasses.dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation; None where that is not known."""

    source: str
    reference: str | None = None


@dataclasses.dataclass(frozen=True)
class TranslationProcessor:
    """The processor of models that read a text and write another. Equal by value.

    Attributes:
      source: the tokenizer of the texts that are read.
      target: the tokenizer of the texts that are written.
    """

    source: Subwords
    target: Subwords

    @property
    def shared(self) -> bool:
        """Whether source and target have one vocabulary, so that a model can share its embeddings."""
        return self.source == self.target

    def encode_source(self, text: str, *, dropout: float = 0.0, seed: int = 0) -> list[int]:
        """Ids of a text that is read, the end symbol last; dropout as in `Subwords.encode`."""
        return [*self.source.encode(text, dropout=dropout, seed=seed), END]

    def encode_target(self, text: str, *, dropout: float = 0.0, seed: int = 0) -> list[int]:
        """Ids of a text that is written, the end symbol last; dropout as in `Subwords.encode`."""
        return [*self.target.encode(text, dropout=dropout, seed=seed), END]

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON; `target` is null where it is equal to `source`."""
        return {"source": self.source.to_json(), "target": None if self.shared else self.target.to_json()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """What `to_json` returned. Raises: ValueError naming the field that is something else."""
        if not isinstance(fields, dict) or "source" not in fields or "target" not in fields:
            raise ValueError(f"translation processor: expected source and target, got {fields!r:.80}")
        source = Subwords.from_json(fields["source"])
        return cls(source, source if fields["target"] is None else Subwords.from_json(fields["target"]))
