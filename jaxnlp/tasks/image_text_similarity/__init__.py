"""Similarity of images and texts: their vectors in one space, and zero-shot classes."""

import dataclasses
from pathlib import Path

from jaxnlp.convert.clip import MODEL_TYPE, TEXT_TYPE
from jaxnlp.convert.pretrained_clip import read_clip
from jaxnlp.corpus import DataConfig
from jaxnlp.models import ModelConfig
from jaxnlp.tasks import Method, Task, Trained, pretrained_model
from jaxnlp.tasks.image_text_similarity.attention import attend
from jaxnlp.tasks.image_text_similarity.commands import (
    AttentionToImages,
    EmbedTextsAndImages,
    ExportSimilarity,
    PredictTexts,
)
from jaxnlp.tasks.image_text_similarity.embeddings import embed, exports, has_images, warm_up
from jaxnlp.tasks.image_text_similarity.processor import ImageTextProcessor
from jaxnlp.tasks.image_text_similarity.zero_shot import classifier, predict


@dataclasses.dataclass(frozen=True)
class ImageTextSimilarity(Task):
    """Compares images and texts by the cosine of their vectors. Only for pretrained models.

    Source: Radford et al. 2021.
    """

    model_types = (MODEL_TYPE, TEXT_TYPE)
    commands = {
        "predict": PredictTexts,
        "attention": AttentionToImages,
        "embed": EmbedTextsAndImages,
        "export": ExportSimilarity,
    }
    methods = {
        "embed": Method(embed, warm_up),
        "predict": Method(predict, offered=has_images),
        "classifier": Method(classifier, offered=has_images),
        "attend": Method(attend),
    }

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        del data
        raise ValueError(
            f"models that compare images and texts are not trained here, got {type(model).__name__}; a classifier of "
            "images begins with the encoder of images: --init-from FOLDER"
        )

    exports = staticmethod(exports)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """A CLIP that Transformers saved, or only its text encoder. Raises: PretrainedError, WeightsError as
        `jaxnlp.convert.pretrained_clip.read_clip`."""
        config, params, vocabulary, max_length, images = read_clip(path, ignore=ignore)
        processor = ImageTextProcessor(vocabulary, max_length, images)
        return pretrained_model(cls(), config, params, processor, str(path))
