"""How classifiers are scored: scikit-learn's scores, files of predictions, and the report's pictures."""

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxnlp.blocks import Picture, Table
from jaxnlp.images.pictures import png
from jaxnlp.tasks import Block, Evaluation, Evaluator, Scoring
from jaxnlp.tasks.classification import scores
from jaxnlp.tasks.classification.rollout_page import side_by_side
from jaxnlp.typing import Batch, Params

MAX_ERRORS = 20
"""Wrong predictions in the report."""
COLUMNS = 10
"""Pictures in a row of the report."""
LIT = 15
"""Images in the report with what the prediction rests on."""
PICTURE_PIXELS = 64
"""Size to which small images are enlarged in the report."""


def probabilities_of(model: Any) -> Callable[[Params, Batch], jax.Array]:
    """A function of parameters and a batch: the probability of each class [B, C], float32."""

    def predict(params: Params, batch: Batch) -> jax.Array:
        return jax.nn.softmax(model.apply({"params": params}, *(batch[name] for name in model.config.inputs)), axis=-1)

    return predict


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """Loss, accuracy, F1, areas under curves and the calibration of probabilities; predictions of all examples."""

    def __call__(self, scoring: Scoring) -> Evaluation:
        trained, examples = scoring.trained, scoring.split.examples
        classes = trained.processor.classes
        predict = scoring.once("probabilities", lambda: probabilities_of(trained.model))
        found = np.asarray(scoring.outputs(predict), np.float64)
        labels = np.array([example.label for example in examples])
        metrics = scoring.sums() | scores.scores(classes, labels, found)
        errors = scores.most_confident_errors(labels, found, MAX_ERRORS)
        blocks = [*scores.blocks(classes, labels, found), *_error_blocks(classes, examples, found, errors)]
        model: Any = trained.model
        if model.config.has_rollout:
            images = np.stack([example.image for example in examples[:LIT]])
            rollout = scoring.once("rollout", lambda: jax.jit(model.attention_rollout))
            shares = np.asarray(rollout(scoring.params_here(), images))
            picture = png(
                side_by_side(images, shares), columns=COLUMNS, scale=max(1, PICTURE_PIXELS // images.shape[1])
            )
            note = "Each image, and the same image lit by the attention of all layers (rollout)."
            blocks.append(Block("What predictions rest on", Picture(picture, "images lit by attention", note)))
        return Evaluation(metrics, {"predictions.csv": _table(classes, examples, found)}, blocks)


def _table(classes: Sequence[str], examples: Sequence[Any], probabilities: np.ndarray) -> str:
    """A line for each example: its name, its class, the predicted one, and the probability of each class."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["name", "label", "predicted", *classes])
    for example, row in zip(examples, probabilities, strict=True):
        shown = [f"{value:.6f}" for value in row]
        writer.writerow([example.name, classes[example.label], classes[int(row.argmax())], *shown])
    return file.getvalue()


def _error_blocks(
    classes: Sequence[str], examples: Sequence[Any], probabilities: np.ndarray, errors: Sequence[int]
) -> list[Block]:
    """The most confident errors, as a table, with their pictures."""
    if not errors:
        return []
    images = np.stack([examples[number].image for number in errors])
    scale = max(1, PICTURE_PIXELS // images.shape[1])
    rows = tuple(
        (
            place,
            examples[number].name,
            classes[examples[number].label],
            classes[int(probabilities[number].argmax())],
            f"{probabilities[number].max():.3f}",
        )
        for place, number in enumerate(errors, start=1)
    )
    note = "Numbered from left to right, and from top to bottom, as in the table."
    picture = Picture(png(images, columns=COLUMNS, scale=scale), "images with wrong predictions", note)
    header = ("number", "image", "class", "predicted", "probability")
    return [Block("Most confident errors", picture), Block("Most confident errors, in words", Table(header, rows))]
