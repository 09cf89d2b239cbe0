"""The processor of image-text models: from texts and image files to arrays."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from jaxnlp.images.processor import ImageProcessor
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary


@dataclasses.dataclass(frozen=True)
class ImageTextProcessor:
    """The tokenizer of texts, and the size and the normalisation of images. Equal by value.

    Attributes:
      vocabulary: the tokenizer.
      max_length: maximum length of a text in tokens; longer ones are truncated.
      images: the processor of images; None = the model reads only texts.
    """

    vocabulary: EncoderVocabulary
    max_length: int
    images: ImageProcessor | None = None

    def __call__(self, texts: str | Sequence[str] = (), images: Any = ()) -> dict[str, np.ndarray]:
        """The model's inputs: `tokens` [B, T] int32 of texts, and `images` [N, I, I, R] uint8.

        Args:
          texts: one text, or a list; () = none.
          images: one image, or a list, as for `ImageProcessor`; () = none.

        Raises: ValueError for images if the model reads only texts; as the vocabulary and `ImageProcessor`.
        """
        arrays: dict[str, np.ndarray] = {}
        if len(texts):
            arrays["tokens"] = self.vocabulary(texts, max_length=self.max_length)["tokens"]
        if not isinstance(images, tuple) or images:
            if self.images is None:
                raise ValueError("this model reads only texts, got images")
            arrays |= self.images(images)
        return arrays

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        images = None if self.images is None else self.images.to_json()
        return {"vocabulary": self.vocabulary.to_json(), "max_length": self.max_length, "images": images}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError with the wrong fields."""
        try:
            vocabulary, images = EncoderVocabulary.from_json(fields["vocabulary"]), fields["images"]
            return cls(vocabulary, int(fields["max_length"]), images and ImageProcessor.from_json(images))
        except (KeyError, TypeError) as error:
            raise ValueError(f"expected vocabulary, max_length and images, got {fields!r}") from error
