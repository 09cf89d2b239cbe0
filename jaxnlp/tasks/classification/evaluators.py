"""Evaluators of classifiers: scikit-learn's scores, files of predictions, and tables and pictures of the report."""

import dataclasses
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np

from jaxnlp.cli.tables import table_with
from jaxnlp.corpus import SourceRows, Split
from jaxnlp.images.pictures import png
from jaxnlp.pages.blocks import MarkedText, Picture, Table
from jaxnlp.targets import Scale, Targets
from jaxnlp.tasks import Block, Evaluation, Evaluator, Scoring
from jaxnlp.tasks.classification import scores, scores_of_numbers, scores_of_several
from jaxnlp.tasks.classification.decision import NO_THRESHOLD, decided, on_host
from jaxnlp.tasks.classification.rollout_page import side_by_side
from jaxnlp.tasks.classification.words_page import marked
from jaxnlp.typing import Batch, Params

MAX_ERRORS = 20
"""Number of wrong predictions in the report."""
COLUMNS = 10
"""Number of pictures in a row of the report."""
LIT = 15
"""Number of images with their attention in the report."""
PICTURE_PIXELS = 64
"""Size to which small images are enlarged in the report."""


def measures(targets: Targets) -> ModuleType:
    """The module whose `kinds`, `scores`, `blocks` and `errors` are for these targets."""
    if isinstance(targets, Scale):
        return scores_of_numbers
    return scores_of_several if targets.several else scores


def label_array(targets: Targets, examples: Sequence[Any]) -> np.ndarray:
    """The labels of examples for `measures`: ids [N], several classes as 0 and 1 [N, C], or numbers [N]."""
    labels = [example.label for example in examples]
    return np.array(labels, np.float64) if isinstance(targets, Scale) else targets.array(labels)


def predictions_of(model: Any, targets: Targets) -> Callable[[Params, Batch], jax.Array]:
    """A function of parameters and a batch: the probability of each class [B, C], or for numbers the outputs [B]."""

    def predict(params: Params, batch: Batch) -> jax.Array:
        logits = model.apply({"params": params}, *(batch[name] for name in model.config.reads))
        if isinstance(targets, Scale):
            return logits[:, 0]
        return jax.nn.softmax(logits, axis=-1) if targets.one_class else jax.nn.sigmoid(logits)

    return predict


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """Loss, scikit-learn's scores, calibration of probabilities, and predictions of all examples.

    The file of predictions (--predictions FILE) is a table, fields separated by commas, with the predicted label and
    the probability of each class. Before these, it has all columns of your own table (--file TABLE); otherwise the
    number of the row in the table, or the example's id; the text, or both texts, or the name of the image; and the
    label, if it is known. Rows without a text have no prediction.

    The threshold does not change the scores: they use the most probable class, or 0.5 for any number of classes.
    """

    threshold: float | None = None
    """In the file of predictions, predict each class, or the second of two classes, whose probability is at least
    this; None = 0.5, or the most probable class."""

    def __post_init__(self):
        super().__post_init__()
        if self.threshold is not None and not 0.0 < self.threshold < 1.0:
            raise ValueError(f"--threshold must be between 0 and 1, got {self.threshold}")

    def __call__(self, scoring: Scoring) -> Evaluation:
        trained, examples = scoring.trained, scoring.split.examples
        processor: Any = trained.processor
        model: Any = trained.model
        targets: Targets = processor.targets
        predict = scoring.once(predictions_of, model, targets)
        found = on_host(targets, scoring.outputs(predict))
        if self.threshold is not None and not targets.has_threshold:
            raise ValueError(NO_THRESHOLD)
        files = {"predictions.csv": _table(processor, scoring.split, found, self.threshold)}
        if not scoring.split.scored:
            return Evaluation({}, files)
        of, labels = measures(targets), label_array(targets, examples)
        metrics = scoring.sums() | of.scores(targets.names, labels, found)
        errors = of.errors(labels, found, MAX_ERRORS)
        blocks = [*of.blocks(targets.names, labels, found), *_error_blocks(processor, examples, found, errors)]
        if model.config.has_rollout:
            blocks.append(_rollout_block(scoring))
        if model.config.has_attention_weights:
            blocks.append(_words_block(scoring, errors, found))
        return Evaluation(metrics, files, blocks)


def _table(processor: Any, split: Split, found: np.ndarray, threshold: float | None) -> str:
    """A line for each row of the user's table, or for each example, with the prediction in the last columns.

    Examples that are not from a user's table have the number of their row or their id, their texts or the image's name,
    and their label, which is empty if it is not known.
    """
    targets = processor.targets
    added = ["predicted", *(f"probability of {name}" for name in targets.names)]
    predicted = [
        [targets.show(label), *(f"{value:.6f}" for value in (row if targets.names else []))]
        for label, row in zip(decided(targets, found, threshold), found, strict=True)
    ]
    source = split.source
    if source is None or not source.columns:
        named = [example.heading for example in split.examples[:1] if example.heading not in processor.columns]
        columns = (*named, *processor.columns, "label")
        cells = [
            (
                *([example.name] if named else []),  # the name of an image is one of its cells
                *processor.cells(example),
                "" if example.label is None else targets.show(example.label),
            )
            for example in split.examples
        ]
        places = range(len(cells)) if source is None else source.places
        names = [example.name for example in split.examples] if source is None else source.names
        skipped = ("",) * (len(columns) - 1)
        rows = split.in_rows(cells, None)
        source = SourceRows(places, names, columns, [row or (names[n], *skipped) for n, row in enumerate(rows)])
    return table_with(source, added, split.in_rows(predicted, [""] * len(added)))


def _error_blocks(processor: Any, examples: Sequence[Any], found: np.ndarray, errors: Sequence[int]) -> list[Block]:
    """A table of the most confident or the largest errors; images also have pictures."""
    if not errors:
        return []
    targets: Targets = processor.targets
    chosen = decided(targets, found)
    one = targets.one_class
    rows = tuple(
        (
            place,
            *processor.cells(examples[number]),
            targets.show(examples[number].label),
            targets.show(chosen[number]),
            *([f"{found[number].max():.3f}"] if one else []),
        )
        for place, number in enumerate(errors, start=1)
    )
    header = ("number", *processor.columns, "label", "predicted", *(["probability"] if one else []))
    title = "Largest errors" if isinstance(targets, Scale) else "Most confident errors"
    blocks = [Block(title, Table(header, rows))]
    if hasattr(examples[0], "image"):
        images = np.stack([examples[number].image for number in errors])
        picture = png(images, columns=COLUMNS, scale=max(1, PICTURE_PIXELS // images.shape[1]))
        note = "Numbered from left to right, and from top to bottom, as in the table."
        blocks.append(Block(f"{title}: images", Picture(picture, "images with wrong predictions", note)))
    return blocks


def _rollout_block(scoring: Scoring) -> Block:
    """Images whose patches are as bright as their attention."""
    model: Any = scoring.trained.model
    examples = scoring.split.examples
    # From the whole split: examples may be in the order of their classes.
    numbers = np.linspace(0, len(examples) - 1, min(LIT, len(examples))).round().astype(int)
    images = np.stack([examples[number].image for number in numbers])
    rollout = scoring.once(jax.jit, model.attention_rollout)
    shares = np.asarray(rollout(scoring.params_here(), images))
    picture = png(side_by_side(images, shares), columns=COLUMNS, scale=max(1, PICTURE_PIXELS // images.shape[1]))
    note = "Each image, and the same image with patches as bright as their attention in all layers (attention rollout)."
    return Block("Attention of predictions", Picture(picture, "images with their attention", note))


def _words_block(scoring: Scoring, errors: Sequence[int], found: np.ndarray) -> Block:
    """Texts, the most confident errors first, with the words of the largest weights marked."""
    trained, examples = scoring.trained, scoring.split.examples
    model: Any = trained.model
    processor = trained.processor
    numbers = list(dict.fromkeys([*errors[: LIT // 2], *range(len(examples))]))[:LIT]
    read = processor.tokenize([examples[number].texts for number in numbers])
    batch = processor.batch(read.tokens, read.segments, LIT, processor.max_length)
    weigh = scoring.once(jax.jit, model.attention_weights)
    weights = np.asarray(weigh(scoring.params_here(), batch["tokens"], batch["attention_mask"]))
    chosen = decided(processor.targets, found)
    paragraphs = []
    for number, tokens, row in zip(numbers, read.tokens, weights, strict=False):
        names = processor.targets.show(examples[number].label), processor.targets.show(chosen[number])
        words = marked(processor.vocabulary.tokens(tokens), row[: len(tokens)])
        paragraphs.append(((f"{names[0]}, predicted {names[1]}: ", False), *words))
    note = "Marked words have at least one and a half times the pooling weight of equally weighted words."
    return Block("Attention of predictions", MarkedText(tuple(paragraphs), note))
