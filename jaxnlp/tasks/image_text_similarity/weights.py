"""Weights of Transformers as models that compare images and texts."""

from pathlib import Path

import jax

from jaxnlp.convert.clip import MODEL_TYPE, TEXT_TYPE
from jaxnlp.convert.pretrained_clip import read_clip
from jaxnlp.tasks import Task, Trained
from jaxnlp.tasks.image_text_similarity.processor import ImageTextProcessor

MODEL_TYPES = (MODEL_TYPE, TEXT_TYPE)


def encoders_of_transformers(task: Task, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
    """A CLIP, or its encoder of texts alone. Raises: PretrainedError, WeightsError as `read_clip`."""
    config, params, vocabulary, max_length, images = read_clip(path, ignore=ignore)
    processor = ImageTextProcessor(vocabulary, max_length, images)
    params = jax.device_put(params, jax.local_devices()[0])
    return Trained(task, config.build(processor), params, processor, name=str(path))
