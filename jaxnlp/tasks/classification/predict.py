"""Predictions of classifiers for texts, pairs of texts, and images."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxnlp.corpus import NumpyBatch
from jaxnlp.inference import batches
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.inference.batches import BatchFunction, Shape, in_batches
from jaxnlp.targets import Classes, Scale, Targets
from jaxnlp.tasks import Trained
from jaxnlp.tasks.classification.decision import NO_THRESHOLD, decided, kept_threshold, on_host
from jaxnlp.tasks.classification.evaluators import predictions_of
from jaxnlp.tasks.classification.inputs import Chunk, batch_shapes, read_chunk
from jaxnlp.typing import Batch, Params


class Prediction(NamedTuple):
    """The prediction of an input.

    Attributes:
      label: the name of the class, the names of any number of classes, or a number; None for a blank text.
      probability: of the class; for several classes the lowest of their probabilities; for none the probability that no
        class applies; nan for a number, and for a blank text.
      probabilities: of each class, by name; {} for a number, and for a blank text.
    """

    label: Any
    probability: float
    probabilities: Mapping[str, float]


class Predictor:
    """Predicts with a model."""

    def __init__(self, trained: Trained, threshold: float | None = None):
        """Args: the model, and the lowest probability of a predicted class; None = that in the run's folder.

        Raises: ValueError for a threshold that does not apply to the targets.
        """
        self._trained = trained
        self._targets: Targets = trained.processor.targets
        if threshold is not None and not self._targets.has_threshold:
            raise ValueError(NO_THRESHOLD)
        kept = kept_threshold(trained) if threshold is None and self._targets.has_threshold else None
        self._threshold = kept if threshold is None else threshold

    def __call__(self, chunk: Chunk) -> list[Prediction]:
        """The predictions of a chunk of inputs, in their order; `NO_PREDICTION` for those that are not answered."""
        found = [NO_PREDICTION] * len(chunk.shown)
        compute = _computed(self._trained, chunk.batch)
        rows = in_batches(chunk.lengths, batch_shapes(self._trained.processor), compute)
        if rows:
            predicted = on_host(self._targets, np.stack(rows))
            labels = decided(self._targets, predicted, self._threshold)
            for number, row, label in zip(chunk.kept, predicted, labels, strict=True):
                found[number] = _prediction(self._targets, row, label)
        return found


NO_PREDICTION = Prediction(None, float("nan"), {})
"""The prediction of a blank text, and of an image that cannot be read."""


def warm_up(trained: Trained) -> None:
    """Compiles the programs of `predict` ahead."""
    nothing = read_chunk(trained.processor, ())
    batches.warm_up(batch_shapes(trained.processor), _computed(trained, nothing.batch))


def _computed(trained: Trained, batch: Callable[[Sequence[int], Shape], NumpyBatch]) -> BatchFunction:
    """The model's probabilities or numbers as a function of batches."""
    predict = functools.partial(_predict, trained.model, trained.processor.targets, trained.separate_params)
    return lambda numbers, shape: predict(batch(numbers, shape))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _predict(model: Any, targets: Targets, params: Params, batch: Batch) -> jax.Array:
    return predictions_of(model, targets)(params, batch)


def _prediction(targets: Targets, row: Any, label: Any) -> Prediction:
    if isinstance(targets, Scale):
        return Prediction(float(row), float("nan"), {})
    names: Any = tuple(targets.names[number] for number in label) if targets.several else targets.names[label]
    shares = {name: float(share) for name, share in zip(targets.names, row, strict=True)}
    return Prediction(names, probability_of(targets, row, label), shares)


def probability_of(targets: Classes, row: Any, label: Any) -> float:
    """The probability of the predicted class; for several classes the lowest; for none that no class applies."""
    if not targets.several:
        return float(row[label])
    return float(min((row[number] for number in label), default=1.0 - np.max(row)))


@one_or_many
def predict(
    trained: Trained,
    inputs: Sequence[Any],
    pairs: Sequence[str] | None = None,
    *,
    threshold: float | None = None,
    resize: bool = False,
) -> list[Prediction]:
    """The model's predictions for texts, pairs of texts, or images; that of a blank text has the label None.

    Args:
      inputs: texts; or images: files, Pillow's images, or arrays as `jaxnlp.images.reading.normalized` takes them. One
        input gives one prediction.
      pairs: the second text of each, if the model reads pairs.
      threshold: lowest probability of a predicted class, or of the second of two classes; None = that in the run's
        folder, if one was chosen.
      resize: scale images of another size than the model reads, and crop their middle square. A model that was trained
        with --data.resize always does so.

    Raises: ValueError, OSError for inputs that the model does not read.
    """
    predictor, answers = Predictor(trained, threshold), list[Prediction]()
    for chunk in _chunks(trained, inputs, pairs, resize):
        for number, error in chunk.unread.items():
            error.add_note(f"It is the input with the index {len(answers) + number}.")
            raise error
        answers += predictor(chunk)
    return answers


def _chunks(
    trained: Trained, inputs: Sequence[Any], pairs: Sequence[str] | None, resize: bool, size: int = 1024
) -> Iterator[Chunk]:
    if pairs is not None and len(pairs) != len(inputs):
        raise ValueError(f"each text needs a second one; number of texts: {len(inputs)}, of second texts: {len(pairs)}")
    rows = [(one,) for one in inputs] if pairs is None else list(zip(inputs, pairs, strict=True))
    for start in range(0, len(rows), size):
        yield read_chunk(trained.processor, rows[start : start + size], resize=resize)
