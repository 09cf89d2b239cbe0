"""Evaluators of classifiers: scikit-learn's scores, files of predictions, and tables and pictures of the report."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

import jax
import numpy as np

from jaxnlp.config import Within
from jaxnlp.corpus import SourceRows, Split
from jaxnlp.images.pictures import png
from jaxnlp.input_files.tables import table_with
from jaxnlp.ops.compiler_options import jit
from jaxnlp.pages.content import MarkedText, Picture, Table
from jaxnlp.targets import AnyNumber, Number, OneClass, SeveralClasses, Targets, of_part
from jaxnlp.tasks import Evaluation, Evaluator, Metric, Scoring, Section, Trained
from jaxnlp.tasks.classification.kept_threshold import NO_THRESHOLD
from jaxnlp.tasks.classification.measures import Measures
from jaxnlp.tasks.classification.number import NumberMeasures
from jaxnlp.tasks.classification.one_class import OneClassMeasures
from jaxnlp.tasks.classification.rollout_page import side_by_side
from jaxnlp.tasks.classification.several_classes import SeveralClassesMeasures
from jaxnlp.tasks.classification.words_page import marked
from jaxnlp.typing import Batch, Params

MAX_ERRORS = 20
"""Number of wrong predictions in the report."""
COLUMNS = 10
"""Number of pictures in a row of the report."""
LIT = 15
"""Number of images with attention in the report."""
THUMBNAIL = 64
"""Size to which small images are enlarged in the report."""


_MEASURES: dict[type[Targets], type[Measures]] = {
    OneClass: OneClassMeasures,
    SeveralClasses: SeveralClassesMeasures,
    Number: NumberMeasures,
    AnyNumber: NumberMeasures,
}


def measures_of(targets: Targets) -> Measures:
    """The loss, the scores and the report's sections for targets."""
    return _MEASURES[type(targets)](targets)


def outputs_of(model: Any, part: str) -> Callable[[Params, Batch], jax.Array]:
    """A function of parameters and a batch: the model's outputs for a part [B, C]."""
    options = {"part": part} if part else {}
    return lambda params, batch: model.apply(
        {"params": params}, *(batch[name] for name in model.config.reads), **options
    )


def parts_of(scoring: Scoring) -> Iterator[tuple[str, Any, Scoring]]:
    """The name, the processor and the scoring of each part of a split; one without a name for data without parts."""
    for name, processor in scoring.trained.processor.by_part.items():
        if not name:
            yield name, processor, scoring
        elif name in scoring.split.parts:
            yield name, processor, scoring.part(name)


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """Loss, scikit-learn's scores, calibration of probabilities, and predictions of all examples, of each part.

    The file of predictions (--predictions FILE) is a CSV table. Its first columns are those of your own table (--file
    TABLE), or else the row number or id; the text, both texts, or the image's name; and the label, if known. Its last
    columns are the predicted label and the probability of each class. Rows without a text have no prediction.

    Scores ignore the threshold: they use the most probable class, or 0.5 for several classes.
    """

    threshold: Annotated[float, Within("(0, 1)")] | None = None
    """In the file of predictions, predict each class, or the second of two, whose probability is at least this; None =
    0.5 for several classes, or the most probable class."""

    def __call__(self, scoring: Scoring) -> Evaluation:
        metrics = scoring.sums() if scoring.split.scored else {}
        files, sections = dict[str, str](), list[Section]()
        for name, _, part in parts_of(scoring):
            scores = self._part(part, name)
            metrics |= {of_part(name, metric): value for metric, value in scores.metrics.items()}
            files |= {f"{name}-{file}" if name else file: text for file, text in scores.predictions.items()}
            sections += [b._replace(name=f"{name}: {b.name}") if name else b for b in scores.sections]
        return Evaluation(metrics | _over_parts(scoring.trained, metrics), files, sections)

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        model, params = cast(Any, scoring.trained.model), scoring.whole_params()
        for name, _, part in parts_of(scoring):
            part.compile_outputs(scoring.once(outputs_of, model, name))
        if model.config.has_rollout:
            scoring.compile(scoring.once(jit, model.attention_rollout), params, _lit(scoring))
        if model.config.has_attention_weights:
            batch = scoring.trained.processor.batch((), (), LIT, scoring.trained.processor.max_length)
            weigh = scoring.once(jit, model.attention_weights)
            scoring.compile(weigh, params, batch["tokens"], batch["attention_mask"])

    def _part(self, scoring: Scoring, name: str) -> Evaluation:
        """A part's scores besides the objective's, its file of predictions, and its sections."""
        trained, examples = scoring.trained, scoring.split.examples
        processor, model = trained.processor.by_part[name], cast(Any, trained.model)
        targets: Targets = processor.targets
        predictions = targets.predicted(scoring.outputs(scoring.once(outputs_of, model, name)))
        if self.threshold is not None and not targets.has_threshold:
            raise ValueError(NO_THRESHOLD)
        files = {"predictions.csv": predictions_table(processor, scoring.split, predictions, self.threshold)}
        if not scoring.split.scored:
            return Evaluation({}, files)
        of, labels = measures_of(targets), targets.values([example.label for example in examples])
        errors = of.errors(labels, predictions, MAX_ERRORS)
        sections = [*of.sections(labels, predictions), *_error_sections(processor, examples, predictions, errors)]
        if model.config.has_rollout:
            sections.append(_rollout_section(scoring))
        if model.config.has_attention_weights:
            sections.append(_words_section(scoring, errors, predictions))
        return Evaluation(of.scores(labels, predictions), files, sections)


def _over_parts(trained: Trained, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Of named parts: `loss`, the weighted mean of their losses; and `mean_score`, the mean of their
    `Measures.ranking`, which is CS224N's ranking score."""
    parts = {name: one for name, one in trained.processor.by_part.items() if f"{name}/loss" in metrics and name}
    if not parts:
        return {}
    weights = cast(Any, trained.task).weights_of(trained.processor)
    losses = [weights[name] * metrics[f"{name}/loss"].value for name in parts]
    scores = []
    for name, one in parts.items():
        own = {key.removeprefix(f"{name}/"): metric.value for key, metric in metrics.items()}
        scores.append(measures_of(one.targets).ranking(own))
    count = sum(metrics[f"{name}/loss"].count for name in parts)
    return {
        "loss": Metric(sum(losses) / len(losses), count),
        "mean_score": Metric(sum(scores) / len(scores), count),
    }


def predictions_table(processor: Any, split: Split, predictions: np.ndarray, threshold: float | None) -> str:
    """A line for each row of the user's table, or for each example, with the prediction last, as `Validation`
    documents."""
    targets = processor.targets
    added = ["predicted", *(f"probability of {name}" for name in targets.names)]
    predicted = [
        [targets.show(label), *(f"{value:.6f}" for value in (row if targets.names else []))]
        for label, row in zip(targets.decide(predictions, threshold), predictions, strict=True)
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
        indices = range(len(cells)) if source is None else source.indices
        names = [example.name for example in split.examples] if source is None else source.names
        skipped = ("",) * (len(columns) - 1)
        rows = split.in_rows(cells, None)
        source = SourceRows(indices, names, columns, [row or (names[n], *skipped) for n, row in enumerate(rows)])
    return table_with(source, added, split.in_rows(predicted, [""] * len(added)))


def _error_sections(
    processor: Any, examples: Sequence[Any], predictions: np.ndarray, errors: Sequence[int]
) -> list[Section]:
    """A table of the most confident or the largest errors, with pictures of images."""
    targets: Targets = processor.targets
    if not errors:  # in place of those of an earlier evaluation
        titles = [measures_of(targets).error_title]
        titles += [f"{titles[0]}: images"] * hasattr(examples[0], "image")
        return [Section(title, Table(("errors",), (("none",),))) for title in titles]
    chosen = targets.decide(predictions)
    one = isinstance(targets, OneClass)
    rows = tuple(
        (
            number,
            *processor.cells(examples[index]),
            targets.show(examples[index].label),
            targets.show(chosen[index]),
            *([f"{predictions[index].max():.3f}"] if one else []),
        )
        for number, index in enumerate(errors, start=1)
    )
    header = ("number", *processor.columns, "label", "predicted", *(["probability"] if one else []))
    title = measures_of(targets).error_title
    sections = [Section(title, Table(header, rows))]
    if hasattr(examples[0], "image"):
        images = np.stack([examples[index].image for index in errors])
        picture = png(images, columns=COLUMNS, scale=max(1, THUMBNAIL // images.shape[1]))
        note = "Numbered from left to right, and from top to bottom, as in the table."
        sections.append(Section(f"{title}: images", Picture(picture, "images with wrong predictions", note)))
    return sections


def _rollout_section(scoring: Scoring) -> Section:
    """Images with patches as bright as their attention."""
    model, images = cast(Any, scoring.trained.model), _lit(scoring)
    rollout = scoring.once(jit, model.attention_rollout)
    shares = np.asarray(rollout(scoring.whole_params(), images))
    picture = png(side_by_side(images, shares), columns=COLUMNS, scale=max(1, THUMBNAIL // images.shape[1]))
    note = "Each image, and the same image with patches as bright as their attention in all layers (attention rollout)."
    return Section("Attention of predictions", Picture(picture, "images with their attention", note))


def _lit(scoring: Scoring) -> np.ndarray:
    """Images from the whole split [N, I, I, R]: examples may be sorted by class."""
    examples = scoring.split.examples
    indices = np.linspace(0, len(examples) - 1, min(LIT, len(examples))).round().astype(int)
    return np.stack([examples[index].image for index in indices])


def _words_section(scoring: Scoring, errors: Sequence[int], predictions: np.ndarray) -> Section:
    """Texts, the most confident errors first, with the words of largest weight marked."""
    trained, examples = scoring.trained, scoring.split.examples
    model: Any = trained.model
    processor = trained.processor
    indices = list(dict.fromkeys([*errors[: LIT // 2], *range(len(examples))]))[:LIT]
    read = processor.tokenize([examples[index].texts for index in indices])
    batch = processor.batch(read.tokens, read.segments, LIT, processor.max_length)
    weigh = scoring.once(jit, model.attention_weights)
    weights = np.asarray(weigh(scoring.whole_params(), batch["tokens"], batch["attention_mask"]))
    chosen = processor.targets.decide(predictions)
    paragraphs = []
    for index, tokens, row in zip(indices, read.tokens, weights, strict=False):
        names = processor.targets.show(examples[index].label), processor.targets.show(chosen[index])
        words = marked(processor.vocabulary.tokens(tokens), row[: len(tokens)])
        paragraphs.append(((f"{names[0]}, predicted {names[1]}: ", False), *words))
    note = "Marked words have at least one and a half times the pooling weight of equally weighted words."
    return Section("Attention of predictions", MarkedText(tuple(paragraphs), note))
