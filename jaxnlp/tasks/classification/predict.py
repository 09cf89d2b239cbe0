"""Predictions of classifiers for texts, pairs of texts, and images."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsFloat, cast

import jax
import numpy as np

from jaxnlp.corpus import NumpyBatch
from jaxnlp.inference import batches
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.inference.batches import BatchFunction, Shape, in_batches
from jaxnlp.input_files.notes import warn_of_truncated
from jaxnlp.ops.compiler_options import jit
from jaxnlp.targets import NO_PREDICTION, Prediction, Targets
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.encodings import cosines, warm_up_embed
from jaxnlp.tasks.classification.evaluators import outputs_of
from jaxnlp.tasks.classification.inputs import Chunk, batch_shapes, chosen_part, read_chunk
from jaxnlp.tasks.classification.kept_threshold import NO_THRESHOLD, kept_threshold
from jaxnlp.text.classifier_processor import TextClassifierProcessor
from jaxnlp.text.raw_texts import require_texts
from jaxnlp.typing import Batch, Params


class Predictor:
    """Predicts a part with a model."""

    def __init__(self, trained: Trained, part: str, threshold: float | None = None):
        """Args: the model, the name of a part, and the lowest probability of a predicted class; None = that in the
        run's folder.

        Raises: ValueError for a threshold that does not apply to the targets, or is not in (0, 1).
        """
        self._trained, self.part = trained, part
        self.processor = trained.processor.by_part[part]
        self.targets: Targets = self.processor.targets
        if threshold is not None and not self.targets.has_threshold:
            raise ValueError(NO_THRESHOLD)
        if threshold is not None and (not isinstance(threshold, SupportsFloat) or not 0.0 < float(threshold) < 1.0):
            raise ValueError(f"threshold must be a number in (0, 1), got {threshold!r}")
        kept = kept_threshold(trained) if threshold is None and self.targets.has_threshold else None
        self._threshold = kept if threshold is None else threshold

    def __call__(self, chunk: Chunk) -> list[Prediction]:
        """The predictions of a chunk of inputs, in order; `NO_PREDICTION` for blank and unread ones."""
        predictions = [NO_PREDICTION] * len(chunk.shown)
        if len(chunk.kept):
            predicted = self.targets.predicted(self._outputs(chunk))
            labels = self.targets.decide(predicted, self._threshold)
            for index, row, label in zip(chunk.kept, predicted, labels, strict=True):
                predictions[index] = self.targets.prediction(row, label)
        return predictions

    def _outputs(self, chunk: Chunk) -> np.ndarray:
        """The model's outputs for the answered inputs [M, C]."""
        trained, model = self._trained, cast(Any, self._trained.model)
        if model.config.compares(self.processor):  # with the prompts and the truncation of embeddings
            return cosines(trained, *zip(*(list(chunk.fields[index].values()) for index in chunk.kept), strict=True))
        compute = _computed(trained, self.part, chunk.batch)
        return np.stack(in_batches(chunk.lengths, batch_shapes(self.processor), compute))


def warm_up(trained: Trained, *, part: str | None = None) -> None:
    """Compiles the programs of `predict` ahead: of one part, or of all."""
    names = trained.processor.by_part if part is None else (chosen_part(trained.processor, part),)
    for name in names:
        processor, model = trained.processor.by_part[name], cast(Any, trained.model)
        if model.config.compares(processor):
            warm_up_embed(trained)
        else:
            nothing = read_chunk(processor, ())
            batches.warm_up(batch_shapes(processor), _computed(trained, name, nothing.batch))


def _computed(trained: Trained, part: str, batch: Callable[[Sequence[int], Shape], NumpyBatch]) -> BatchFunction:
    """The model's outputs as a function of batches."""
    compute = functools.partial(_compute, trained.model, part, trained.inference_params)
    return lambda indices, shape: compute(batch(indices, shape))


@functools.partial(jit, static_argnums=(0, 1))
def _compute(model: Any, part: str, params: Params, batch: Batch) -> jax.Array:
    return outputs_of(model, part)(params, batch)


@one_or_many
def predict(
    trained: Trained,
    inputs: Sequence[Any],
    pairs: Sequence[str] | None = None,
    *,
    part: str | None = None,
    threshold: float | None = None,
    resize: bool = False,
) -> list[Prediction]:
    """The model's predictions for texts, pairs of texts, or images; a blank text gets the label None.

    A warning in the log counts truncated texts.

    Args:
      inputs: one, or a list: texts; or images: files, Pillow's images, or arrays for
        `jaxnlp.images.reading.with_channels`; a list can also have pairs of texts, without `pairs`.
      pairs: the second text of each, if the model reads pairs.
      part: of a model of several parts: the name of one; None = the only part that fits the number of texts.
      threshold: lowest probability of a predicted class, or of the second of two; None = that in the run's folder, if
        any.
      resize: scale images of another size, and crop their middle square; always on after training with --data.resize.

    Raises: ValueError, OSError for inputs that the model does not read.
    """
    name = chosen_part(trained.processor, part, 1 if pairs is None else 2)
    predictor, answers, truncated = Predictor(trained, name, threshold), list[Prediction](), list[int]()
    for chunk in read_chunks(predictor.processor, inputs, pairs, resize):
        truncated += [len(answers) + row for row in chunk.truncated]
        answers += predictor(chunk)
    warn_of_truncated(truncated, len(answers), getattr(predictor.processor, "max_length", 0))
    return answers


def read_chunks(
    processor: Any,
    inputs: Sequence[Any],
    pairs: Sequence[str] | None,
    resize: bool,
    size: int = 1024,
    indices: Sequence[int] | None = None,
) -> Iterator[Chunk]:
    """The inputs of a function in chunks.

    Args: as for `predict`; the size of a chunk; the indices of the inputs for messages, None = from 0.

    Raises: ValueError, OSError for an unreadable input.
    """
    if pairs is not None and len(pairs) != len(inputs):
        raise ValueError(f"expected a second text for each text; got {len(inputs)} texts and {len(pairs)} second texts")
    if isinstance(processor, TextClassifierProcessor):
        require_texts(inputs)
        require_texts(pairs or (), "second texts")
    rows = [(one,) for one in inputs] if pairs is None else list(zip(inputs, pairs, strict=True))
    for start in range(0, len(rows), size):
        chunk = read_chunk(processor, rows[start : start + size], resize=resize)
        for index, error in chunk.unread.items():
            number = start + index if indices is None else indices[start + index]
            error.add_note(f"It is the input with the index {number}.")
            raise error
        yield chunk
