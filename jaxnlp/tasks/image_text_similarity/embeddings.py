"""Vectors of texts and of images in one space."""

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxnlp.images.reading import is_image_file
from jaxnlp.inference import batches
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.inference.batches import BatchFunction, in_batches, text_shapes
from jaxnlp.inference.exportable import Axes, Exportable
from jaxnlp.input_files.notes import warn_of_truncated
from jaxnlp.models.clip import CLIP, TextEncoder
from jaxnlp.models.vit import ViT
from jaxnlp.ops.compiler_options import jit
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.encodings import Embeddings
from jaxnlp.tasks.classification.vectors import image_vectors, warm_up_images
from jaxnlp.text.blank_texts import is_blank
from jaxnlp.text.encoder_vocabulary import padded_texts
from jaxnlp.text.raw_texts import is_missing, require_texts
from jaxnlp.typing import Params


def has_images(model: Any) -> bool:
    """Whether a model compares texts with images; otherwise it reads only texts."""
    return isinstance(model, CLIP)


def text_encoder(model: Any, params: Params) -> tuple[TextEncoder, Params]:
    """A model's text encoder and its parameters."""
    if isinstance(model, CLIP):
        return TextEncoder(model.config.text, model.vocabulary_size), params["text"]
    return model, params


def image_encoder(model: Any, params: Params) -> tuple[ViT, Params]:
    """A model's image encoder and its parameters. Raises: ValueError for a model that reads only texts."""
    if not isinstance(model, CLIP):
        raise ValueError("this model reads only texts, and has no encoder of images; give the weights of both encoders")
    return ViT(model.config.image, model.size, model.mean, model.stddev, 0), params["image"]


def names_image(text: str) -> bool:
    """Whether a text is the path of an image file."""
    name = os.path.expanduser(text)
    return os.path.isfile(name) and is_image_file(Path(name))


@one_or_many
def embed(trained: Trained, inputs: Sequence[Any], *, resize: bool = False) -> np.ndarray:
    """The vector of each text or image [N, D] float32, or of one [D]; that of a blank text is zero.

    The similarity of two vectors is their cosine; they are not normalised. A warning in the log counts truncated texts.

    Args:
      inputs: one, or a list of N: texts as `str`; images as `pathlib.Path`, Pillow's images, or arrays for
        `jaxnlp.images.reading.with_channels`. A list may have both.
      resize: scale images of another size, and crop their middle square.

    Raises: ValueError for a `str` that is the path of an image file, and for images if the model reads only texts;
      OSError for unreadable images.
    """
    require_texts([one if isinstance(one, str) or is_missing(one) else "" for one in inputs], "texts or images")
    is_text = np.array([isinstance(one, str) for one in inputs], bool)
    texts, images = ([one for one, chosen in zip(inputs, kind, strict=True) if chosen] for kind in (is_text, ~is_text))
    for text in filter(names_image, texts):
        raise ValueError(f"{text} is an image file; give pathlib.Path({text!r}), because a str is a text")
    vectors = np.zeros((len(inputs), text_encoder(trained.model, {"text": {}})[0].config.vector_width), np.float32)
    embeddings = embed_texts(trained, texts)
    warn_of_truncated(embeddings.truncated_rows, len(texts), trained.processor.max_length)
    vectors[is_text] = embeddings.values
    if images:
        indices = np.flatnonzero(~is_text).tolist()
        vectors[~is_text] = embed_images(trained, images, resize=resize, indices=indices)
    return vectors


def embed_images(
    trained: Trained, images: Sequence[Any], *, resize: bool = False, indices: Sequence[int] | None = None
) -> np.ndarray:
    """The vector of each image [N, D] float32. Args: as `embed`, and as `image_vectors`. Raises: as `embed`."""
    model, params = image_encoder(trained.model, trained.inference_params)
    return image_vectors(model, params, trained.processor.images, images, resize=resize, indices=indices)


def embed_texts(trained: Trained, texts: Sequence[str]) -> Embeddings:
    """The vector of each text [N, D] float32; that of a blank text is zero."""
    kept = [index for index, text in enumerate(texts) if not is_blank((text,))]
    limit, (model, params) = trained.processor.max_length, text_encoder(trained.model, trained.inference_params)
    tokenized = trained.processor.vocabulary.tokenize([texts[index] for index in kept], max_length=limit)
    values = np.zeros((len(texts), model.config.vector_width), np.float32)
    if kept:
        compute = _computed(model, params, tokenized.tokens)
        values[kept] = np.stack(in_batches(list(map(len, tokenized.tokens)), text_shapes(limit), compute))
    return Embeddings(values, [kept[row] for row in tokenized.truncated_rows])


def warm_up(trained: Trained) -> None:
    """Compiles the programs of `embed` ahead."""
    compute = _computed(*text_encoder(trained.model, trained.inference_params), [])
    batches.warm_up(text_shapes(trained.processor.max_length), compute)
    if has_images(trained.model):
        warm_up_images(*image_encoder(trained.model, trained.inference_params), trained.processor.images)


def _computed(model: TextEncoder, params: Params, texts: Sequence[np.ndarray]) -> BatchFunction:
    """The vectors of batches of texts. Args: texts: tokens of each."""

    def compute(indices: Sequence[int], shape: batches.Shape) -> jax.Array:
        rows = [(texts[index],) for index in indices] or [(np.zeros(0, np.int32),)]
        return _compute(model, params, padded_texts(rows, *shape)[0][:, 0])

    return compute


@functools.partial(jit, static_argnums=0)
def _compute(model: TextEncoder, params: Params, tokens: jax.Array) -> jax.Array:
    return model.apply({"params": params}, tokens)  # type: ignore[return-value]


def exports(trained: Trained) -> dict[str, Exportable]:
    """`embed` as programs: `embed` of texts, and `embed_images`."""

    def of_texts(params: Params, inputs: Mapping[str, Any]) -> dict[str, Any]:
        model, own = text_encoder(trained.model, params)
        return {"vectors": model.apply({"params": own}, inputs["tokens"])}

    def of_images(params: Params, inputs: Mapping[str, Any]) -> dict[str, Any]:
        model, own = image_encoder(trained.model, params)
        return {"vectors": model.apply({"params": own}, inputs["images"])}

    axes = Axes(T=(1, trained.processor.max_length))
    programs = {"embed": Exportable("vectors [B, D] of texts", of_texts, axes, {"tokens": axes("B, T")})}
    if has_images(trained.model):
        axes, sizes = Axes(), ", ".join(map(str, trained.processor.images.shape))
        inputs = {"images": axes(f"B, {sizes}", "uint8")}
        programs["embed_images"] = Exportable("vectors [B, D] of images", of_images, axes, inputs)
    return programs
