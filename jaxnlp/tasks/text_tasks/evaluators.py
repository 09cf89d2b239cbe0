"""Evaluators of text tasks: accuracies, correlations, files of predictions, confusions for the report."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.cli.tables import table_with
from jaxnlp.corpus import Split
from jaxnlp.pages.blocks import Table
from jaxnlp.tasks import Block, Evaluation, Evaluator, Metric, Scoring
from jaxnlp.tasks.text_tasks.predictions import most_likely, part_predictions
from jaxnlp.text.labels import Labels, TextExample

MAX_ERRORS = 10
"""Number of errors listed in the report."""
MAX_CLASSES = 30
"""Maximum number of classes in a table of confusions in the report."""


class FileFormat(NamedTuple):
    """Name and header of a file of predictions in CS224N's default project."""

    name: str
    header: str


FORMATS = {
    "sst": FileFormat("sst", "Predicted_Sentiment"),
    "cfimdb": FileFormat("cfimdb", "Predicted_Sentiment"),
    "quora": FileFormat("para", "Predicted_Is_Paraphrase"),
    "sts": FileFormat("sts", "Predicted_Similiary"),  # the project's own spelling
}
"""File formats by part. The file of any other part has the part's name, with the names of classes."""


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """Loss and accuracy of each part, correlations of similarities, and predictions of all examples."""

    def __call__(self, scoring: Scoring) -> Evaluation:
        processor = scoring.trained.processor
        metrics = scoring.sums()
        files: dict[str, str] = {}
        blocks: list[Block] = []
        model: Any = scoring.trained.model
        for name, labels in processor.parts:
            if name not in scoring.split.parts:
                continue
            part = scoring.part(name)
            examples: Sequence[TextExample] = part.split.examples
            predict = scoring.once(part_predictions, model, name)
            predicted = np.asarray(part.outputs(predict))
            chosen = most_likely(predicted, labels)
            files[file_name(name, scoring.split_name)] = file_text(name, labels, part.split, chosen)
            if part.split.scored:
                targets = np.array([example.label for example in examples], np.float32)
                if labels.kind == "similarity":
                    metrics |= correlations(name, chosen, targets)
                blocks += error_blocks(name, labels, examples, predicted, targets)
        return Evaluation(metrics | self._over_parts(scoring, metrics), files, blocks)

    def _over_parts(self, scoring: Scoring, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
        """`loss`, the mean over parts of weight times loss; and `mean_score`, the project's ranking score: the mean
        over parts of accuracy, or of (1 + Pearson) / 2."""
        parts = [part for part in scoring.trained.processor.parts if f"{part[0]}/loss" in metrics]
        if not parts:
            return {}
        task: Any = scoring.trained.task
        names = scoring.trained.processor.names
        several = len(names) > 1  # the loss of one part is its plain loss, as in training
        weights = dict(zip(names, (several and task.part_weights) or [1.0] * len(names), strict=True))
        losses = [weights[name] * metrics[f"{name}/loss"].value for name, _ in parts]
        scores = [
            (1.0 + metrics[f"{name}/pearson"].value) / 2
            if labels.kind == "similarity"
            else metrics[f"{name}/accuracy"].value
            for name, labels in parts
        ]
        count = sum(metrics[f"{name}/loss"].count for name, _ in parts)
        return {
            "loss": Metric(sum(losses) / len(losses), count),
            "mean_score": Metric(sum(scores) / len(scores), count),
        }


def correlations(name: str, predicted: np.ndarray, targets: np.ndarray) -> dict[str, Metric]:
    """The Pearson and Spearman correlations of predictions and targets [N]."""
    from scipy import stats  # imported here, so that training starts faster

    return {
        f"{name}/pearson": Metric(_correlation(stats.pearsonr, predicted, targets), len(targets)),
        f"{name}/spearman": Metric(_correlation(stats.spearmanr, predicted, targets), len(targets)),
    }


def _correlation(measure: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> float:
    """0 if one argument is constant, as the predictions of an untrained model may be."""
    if len(x) < 2 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return 0.0
    return float(measure(x, y).statistic)


def file_name(part: str, split: str) -> str:
    """The name of a file of predictions, such as sst-dev-output.csv; for a scored file, it uses the file's stem."""
    stem = split.rpartition("/")[2].partition(".")[0]
    name = FORMATS[part].name if part in FORMATS else part
    return f"{name}-{'dev' if stem == 'validation' else stem}-output.csv"


def file_text(part: str, labels: Labels, split: Split[TextExample], predicted: np.ndarray) -> str:
    """Predictions [N]: a user's table with the column `predicted`, fields separated by commas.

    Examples that are not from a user's table have the format of CS224N's project: a header, then each example's id and
    label. Rows without a text have no prediction.
    """
    answers = split.in_rows([_shown(part, labels, value) for value in predicted.tolist()], "")
    if part not in FORMATS and split.source is not None:
        return table_with(split.source, ["predicted"], [[answer] for answer in answers])
    header = FORMATS[part].header if part in FORMATS else "Predicted_Label"
    names = [example.id for example in split.examples] if split.source is None else split.source.names
    lines = (f"{name} , {answer} \n" for name, answer in zip(names, answers, strict=True))
    return f"id \t {header} \n" + "".join(lines)


def _shown(part: str, labels: Labels, value: float) -> str:
    if labels.kind == "similarity":
        return f"{value:.6f}"
    if labels.kind == "paraphrase" and part in FORMATS:
        return f"{value:.1f}"
    return labels.names[int(value)]


def error_blocks(
    part: str, labels: Labels, examples: Sequence[TextExample], predicted: np.ndarray, targets: np.ndarray
) -> list[Block]:
    """For the report: the confusion matrix and the worst errors.

    Args:
      part: its name.
      labels: of the part.
      examples: N of them.
      predicted: the result of `predict_texts`, [N, ...].
      targets: [N].
    """
    if labels.kind == "similarity":
        errors = np.abs(predicted - targets)
        shown = [(f"{p:.2f}", f"{t:.2f}") for p, t in zip(predicted, targets, strict=True)]
        table = _worst(examples, shown, errors, "score")
        return [Block(f"{part}: largest differences", table)]
    chosen = most_likely(predicted, labels).astype(int)
    wanted = targets.astype(int)
    certainty = predicted.max(axis=-1) if labels.kind == "classification" else np.maximum(predicted, 1 - predicted)
    shown = [
        (f"{labels.names[c]} ({p:.2f})", labels.names[w]) for c, p, w in zip(chosen, certainty, wanted, strict=True)
    ]
    table = _worst(examples, shown, np.where(chosen != wanted, certainty, 0.0), "label (probability)")
    blocks = [Block(f"{part}: most confident errors", table)]
    if len(labels.names) > MAX_CLASSES:
        return blocks
    counts = np.zeros((len(labels.names),) * 2, int)
    np.add.at(counts, (wanted, chosen), 1)
    rows = tuple((name, *row) for name, row in zip(labels.names, counts.tolist(), strict=True))
    note = "Rows are the expected labels, columns the predicted ones."
    return [Block(f"{part}: confusions", Table(("expected", *labels.names), rows, note=note)), *blocks]


def _worst(examples: Sequence[TextExample], shown: Sequence[tuple[str, str]], errors: np.ndarray, what: str) -> Table:
    order = [int(i) for i in np.argsort(-errors, kind="stable")[:MAX_ERRORS] if errors[i] > 0]
    rows = tuple((" | ".join(t for t in (examples[i].text, examples[i].pair) if t), *shown[i]) for i in order)
    return Table(("text", f"predicted {what}", "expected"), rows, folded=True)
