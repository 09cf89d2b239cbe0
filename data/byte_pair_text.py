"""Language modelling with byte-level BPE, as in GPT-2: texts in windows of tokens."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data import Corpus, DataError, errors_as
from data.text_windows import TextWindows
from jaxnlp.config import TokenCount, UserPath
from jaxnlp.text.byte_pairs import BytePairs


@dataclasses.dataclass(frozen=True)
class BytePairText(TextWindows):
    """Texts in windows of byte-level BPE tokens."""

    vocabulary_size: TokenCount = 50_257
    """Maximum number of tokens, at least 256; a short text gives fewer."""
    tokenizer: UserPath | None = None
    """A tokenizer.json with byte-level BPE, such as GPT-2's; None = merges are learned from the training text."""

    vocabulary_type = BytePairs
    processor_fields = ("vocabulary_size",)

    def __post_init__(self):
        super().__post_init__()
        self.only_if(self.tokenizer is None, "merges that are learned from the text", "vocabulary_size")
        if self.vocabulary_size < 256:
            raise ValueError(f"data.vocabulary_size must be at least 256, the bytes, got {self.vocabulary_size}")

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """As `TextWindows.load`. Raises: also DataError when `tokenizer` is not that of the processor."""
        given = None if processor is None or self.tokenizer is None else self.vocabulary_of(())
        if given is not None and given != processor:
            raise DataError(
                f"the tokenizer in {self.tokenizer} differs from the model's of {processor.size:,} tokens; remove "
                "--data.tokenizer"
            )
        return super().load(seed, processor)

    def vocabulary_of(self, documents: Sequence[str]) -> BytePairs:
        """The given tokenizer, or one of the training text."""
        if self.tokenizer is None:
            return BytePairs.of([self._parts(text)[0] for text in documents], self.vocabulary_size)
        with errors_as(DataError, "data.tokenizer"):
            return BytePairs.from_file(Path(self.tokenizer))
