"""Character language modelling: texts in windows of characters."""

import dataclasses
from collections.abc import Sequence

from data.text_windows import TextWindows
from jaxnlp.text.characters import CharacterVocabulary


@dataclasses.dataclass(frozen=True)
class CharacterText(TextWindows):
    """Texts in windows of characters."""

    vocabulary_type = CharacterVocabulary

    def vocabulary_of(self, documents: Sequence[str]) -> CharacterVocabulary:
        """The alphabet of training and validation text, as in karpathy/nanoGPT."""
        return CharacterVocabulary.of("".join(documents))
