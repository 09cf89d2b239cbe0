"""Zero-shot classification: classes of images that are texts."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxnlp.inference.arguments import listed, one_or_many
from jaxnlp.input_files.notes import warn_of_truncated
from jaxnlp.models.classifier import HEAD
from jaxnlp.targets import Prediction
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.encodings import l2_normalize
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.classification.predict import predict as predict_classes
from jaxnlp.tasks.image_text_similarity.embeddings import embed_texts, image_encoder
from jaxnlp.text.blank_texts import blank_rows
from jaxnlp.text.raw_texts import require_texts


def classifier(trained: Trained, classes: Sequence[str], *, template: str = "{}") -> Trained:
    """A classifier of images, with all functions of one, whose classes are described by texts.

    Its head has the vectors of the texts, and the softmax of the model's logits gives the probabilities.

    Args:
      classes: at least two texts, such as "a photo of a cat", or names for a template.
      template: the text of a class, with {} for its name, such as "a photo of a {}".

    Raises: ValueError for blank or equal classes, for a template without {}, and if the model reads only texts.
    """
    model, params = image_encoder(trained.model, trained.params)
    if isinstance(classes, str):
        raise ValueError(f"classes must be a list of texts, such as [{classes!r}, ...]")
    names = require_texts(listed(classes, "expected a text as class"))
    if len(set(names)) < max(2, len(names)):
        raise ValueError(f"give at least two classes, all different, got {', '.join(names) or 'none'}")
    if blank := blank_rows([(name,) for name in names], 0):
        raise ValueError(f"class {blank[0]} of {len(names)} is blank; give a text with characters")
    if "{}" not in template:
        raise ValueError(f"the template must contain {{}} for the name of a class, got {template!r}")
    processor = dataclasses.replace(trained.processor.images, classes=tuple(names))
    embeddings = embed_texts(trained, [template.replace("{}", name) for name in names])
    warn_of_truncated(embeddings.truncated_rows, len(names), trained.processor.max_length)
    kernel = np.exp(np.asarray(trained.params["logit_scale"])) * l2_normalize(embeddings.values).T
    head = {"kernel": np.asarray(kernel, np.float32), "bias": np.zeros(len(names), np.float32)}
    config = dataclasses.replace(model.config, unit_vectors=True)
    own: Any = {**params, HEAD: head}
    return dataclasses.replace(
        trained, task=Classification(), model=config.build(processor), params=own, processor=processor
    )


@one_or_many
def predict(
    trained: Trained, images: Sequence[Any], classes: Sequence[str], *, template: str = "{}", resize: bool = False
) -> list[Prediction]:
    """The class of each image, and the probabilities of all, for classes that are texts; one image gives one
    prediction.

    Each call computes the vectors of the classes: for many calls, make a `classifier` once.

    Args:
      images: one, or a list: files, Pillow's images, or arrays for `jaxnlp.images.reading.with_channels`.
      classes: as for `classifier`.
      template: as for `classifier`.
      resize: scale images of another size, and crop their middle square.

    Raises: ValueError as `classifier`; ValueError, OSError for unreadable images.
    """
    return predict_classes(classifier(trained, classes, template=template), list(images), resize=resize)
