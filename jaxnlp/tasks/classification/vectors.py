"""Embeddings of texts by a BERT, and of images by a Vision Transformer: the vectors that a head reads."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import tyro

from jaxnlp.corpus import NumpyBatch
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.images.reading import printable
from jaxnlp.inference import batches
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.inference.batches import BatchFunction, Shape, in_batches
from jaxnlp.inference.exportable import Exportable, axes_of_batches
from jaxnlp.models.text_vectors import Pooling
from jaxnlp.models.vit import ViT
from jaxnlp.ops.compiler_options import jit
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs import encodings
from jaxnlp.tasks.bert_verbs.commands import Embed, print_vectors
from jaxnlp.tasks.classification.inputs import IMAGES, Chunk, batch_shapes, image_files, read_chunk
from jaxnlp.tasks.classification.predict import read_chunks
from jaxnlp.typing import Params


def of_images(model: Any) -> bool:
    """Whether a model gives vectors of images."""
    return isinstance(model, ViT)


@one_or_many
def embed(
    trained: Trained, inputs: Sequence[Any], *, pooling: Pooling | None = None, resize: bool = False
) -> np.ndarray:
    """The embedding of each text or image [N, D] float32, or of one [D]; that of a blank text is zero.

    The vector of an image is the head's input: the class token's or the mean over the patches, after the pooler if any.
    Prompts, L2 normalisation and dimension are a pretrained encoder's. A warning in the log counts truncated texts.

    Args:
      inputs: texts or images, as for `predict`: one, or a list of N.
      pooling: of a text; None = as in the model, or the mean.
      resize: as for `predict`.

    Raises: ValueError for another pooling, for the pooling pooler without a pooler, and for a model without vectors;
      OSError for images that cannot be read.
    """
    if not of_images(trained.model):
        if resize:
            raise ValueError("resize applies only to images; remove it")
        return encodings.embed(trained, inputs, pooling=pooling)
    if pooling is not None:
        raise ValueError("pooling applies only to texts; remove it")
    model: Any = trained.model
    return image_vectors(model, trained.inference_params, trained.processor, inputs, resize=resize)


def image_vectors(
    model: ViT,
    params: Params,
    processor: ImageProcessor,
    images: Sequence[Any],
    *,
    resize: bool = False,
    indices: Sequence[int] | None = None,
) -> np.ndarray:
    """The vector of each image [N, D] float32.

    Args:
      model: the encoder; a head is ignored.
      params: its parameters, as `Trained.inference_params` has them.
      processor: of its images.
      images, resize: as for `predict`.
      indices: of the images for messages; None = from 0.

    Raises: ValueError, OSError for images that cannot be read.
    """
    nothing = np.zeros((0, model.config.vector_width), np.float32)
    read = read_chunks(processor, images, None, resize, indices=indices)
    found = (chunk_vectors(model, params, processor, one) for one in read)
    return np.concatenate([nothing, *found])


def warm_up(trained: Trained, *, pooling: Pooling | None = None) -> None:
    """Compiles the programs of `embed` ahead."""
    if not of_images(trained.model):
        encodings.warm_up_embed(trained, pooling=pooling)
        return
    model: Any = trained.model
    warm_up_images(model, trained.inference_params, trained.processor)


def warm_up_images(model: ViT, params: Params, processor: ImageProcessor) -> None:
    """Compiles the programs of `image_vectors` ahead."""
    batches.warm_up(batch_shapes(processor), _computed(model, params, read_chunk(processor, ()).batch))


def exported(trained: Trained) -> Exportable:
    """`embed` as a program: the vectors of tokens or images."""
    if not of_images(trained.model):
        return encodings.exported_embed(trained)
    model, nothing = _without_head(trained.model), read_chunk(trained.processor, ())

    def apply(params: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"vectors": model.apply({"params": params}, inputs["images"])}

    longest = max(shape.length for shape in batch_shapes(trained.processor))
    axes, inputs = axes_of_batches(
        lambda rows, length: nothing.batch((), Shape(rows, length)), model.config.reads, longest=longest
    )
    return Exportable("vectors [B, D] of images", apply, axes, inputs)


def chunk_vectors(model: ViT, params: Params, processor: ImageProcessor, chunk: Chunk) -> np.ndarray:
    """The vectors of the images of a chunk [M, D] float32."""
    nothing = np.zeros((0, model.config.vector_width), np.float32)
    rows = in_batches(chunk.lengths, batch_shapes(processor), _computed(model, params, chunk.batch))
    return np.stack(rows) if rows else nothing


def _computed(model: ViT, params: Params, batch: Callable[[Sequence[int], Shape], NumpyBatch]) -> BatchFunction:
    compute = functools.partial(_compute, _without_head(model), params)
    return lambda indices, shape: compute(batch(indices, shape)["images"])


@functools.partial(jit, static_argnums=0)
def _compute(model: Any, params: Params, images: jax.Array) -> jax.Array:
    return model.apply({"params": params}, images)


def _without_head(model: Any) -> Any:
    return model.clone(classes=0)


@dataclasses.dataclass(frozen=True)
class EmbedInputs(Embed):
    """Computes embeddings of texts or images, as .npy or JSON lines.

    The embedding of a blank text is zero, and a note on standard error counts blank texts. The embedding of an image is
    the input of a Vision Transformer's head.
    """

    summary = "Computes embeddings of texts or images."

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input. For models of images: files, or folders of them."""
    resize: bool = False
    """Scale images of another size than the model's, and crop their middle square; always on for a model that was
    trained with --data.resize."""

    def __call__(self, trained: Trained) -> None:
        if not of_images(trained.model):
            if self.resize:
                raise ValueError("--resize applies only to images; remove it")
            super().__call__(trained)
            return
        if self.file is not None or self.pooling is not None:
            raise ValueError("--file and --pooling apply only to texts; remove them")
        files, model = image_files(tuple(map(Path, self.texts))), cast(Any, trained.model)
        printed = self.out is None and not self.similarities
        of_files = functools.partial(vectors_of_files, model, trained.inference_params, trained.processor)
        self.finish([printable(file) for file in files], of_files(files, resize=self.resize, printed=printed))


def vectors_of_files(
    model: ViT, params: Params, processor: ImageProcessor, files: Sequence[Path], *, resize: bool, printed: bool
) -> np.ndarray:
    """The vectors of image files [N, D] float32; if `printed`, as JSON lines while they are computed.

    Raises: ValueError, OSError for unreadable files.
    """
    vectors = list[np.ndarray]()
    for chunk in read_chunks(processor, files, None, resize, IMAGES):
        vectors.append(chunk_vectors(model, params, processor, chunk))
        if printed:
            print_vectors("file", [name for (name,) in chunk.shown], vectors[-1])
    return np.concatenate(vectors)
