"""What a model says about the rows of text tasks: predictions, scores, and files as CS224N's project has them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from data import LabelledRows
from data.text_tasks import TextTasksData
from jaxnlp.text.tasks import TASKS
from jaxnlp.texts import answers, labels_of
from jaxnlp.typing import Params
from train.config import TrainConfig

MEAN_SCORE = "mean_score"
PROJECT_NAMES = {"quora": "para"}
"""How CS224N's project calls tasks in the names of its files, where it has other names."""
HEADERS = {
    "classification": "Predicted_Sentiment",
    "paraphrase": "Predicted_Is_Paraphrase",
    "similarity": "Predicted_Similiary",  # spelt as the project spells it
}


def predictions(model: Any, params: Params, rows: LabelledRows) -> np.ndarray:
    """What the model says about each row, [N] float32 in the order of the file, on the scale of the labels.

    Args:
      model: a `TextTasks`.
      params: on one device.
      rows: of one task.
    """
    said = [np.asarray(answers(model, params, rows.task, b["tokens"], b["attention_mask"])) for b in rows.batches]
    found = np.empty(len(rows.order), np.float32)
    found[rows.order] = labels_of(rows.task, np.concatenate(said)[: len(rows.order)])
    return found


def score(rows: LabelledRows, predicted: np.ndarray) -> dict[str, float]:
    """The task's measures of predictions [N]: accuracy; of similarities Pearson's and Spearman's correlation."""
    assert rows.labels is not None
    if TASKS[rows.task].kind != "similarity":
        return {f"{rows.task}/accuracy": float(np.mean(predicted == rows.labels))}
    from scipy import stats  # here, since it takes as long to import as JAX, and every start of a training would wait

    return {
        f"{rows.task}/pearson": _correlation(stats.pearsonr, predicted, rows.labels),
        f"{rows.task}/spearman": _correlation(stats.spearmanr, predicted, rows.labels),
    }


def _correlation(measure: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> float:
    """0 where one side is constant, as an untrained model may be: it then tells nothing about the other."""
    if len(x) < 2 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return 0.0
    return float(measure(x, y).statistic)


def mean_score(scores: dict[str, float], tasks: Iterable[str]) -> float:
    """The mean over tasks of accuracy, or of (1 + Pearson) / 2: how the project's leaderboard ranks systems."""
    shares = [
        (1.0 + scores[f"{name}/pearson"]) / 2 if TASKS[name].kind == "similarity" else scores[f"{name}/accuracy"]
        for name in tasks
    ]
    return sum(shares) / len(shares)


def loss_over_tasks(scores: Mapping[str, float], config: TrainConfig) -> dict[str, float]:
    """`loss` of a split as training has it, whatever the number of each task's rows.

    The sum over tasks of weight times mean loss where a step takes a batch of each, else their mean.

    Args:
      scores: means over the rows of each task, by names such as `sst/loss`.
      config: of the run; says the weights, and what a step takes.
    """
    assert isinstance(config.data, TextTasksData)
    weights = config.loss.weights_of(config.data.tasks)
    losses = [weights[task] * scores[f"{task}/loss"] for task in weights if f"{task}/loss" in scores]
    return {"loss": sum(losses) / (1 if config.data.schedule == "together" else len(losses))}


def likeness(model: Any, params: Params, labelled: Sequence[LabelledRows]) -> dict[str, float]:
    """The correlations of those tasks that have them: no objective can sum them up batch by batch."""
    found: dict[str, float] = {}
    for rows in labelled:
        if rows.labels is not None and TASKS[rows.task].kind == "similarity":
            found |= score(rows, predictions(model, params, rows))
    return found


def file_name(task: str, split: str) -> str:
    """Of a file of predictions: sst-dev-output.csv, para-dev-output.csv, sts-test-output.csv."""
    return f"{PROJECT_NAMES.get(task, task)}-{'dev' if split == 'validation' else split}-output.csv"


def file_text(rows: LabelledRows, predicted: np.ndarray) -> str:
    """Predictions [N] as CS224N's project writes them: a header, then a row's id and what is predicted."""
    task = TASKS[rows.task]
    shown = {"classification": lambda p: str(int(p)), "paraphrase": lambda p: f"{p:.1f}"}
    write = shown.get(task.kind, lambda p: f"{p:.6f}")
    lines = (f"{row} , {write(p)} \n" for row, p in zip(rows.ids, predicted.tolist(), strict=True))
    return f"id \t {HEADERS[task.kind]} \n" + "".join(lines)
