"""An ensemble of classifiers: the mean of their predictions."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from jaxnlp.config import UserPath, Within
from jaxnlp.saving.serialization import processor_to_json
from jaxnlp.targets import Targets, of_part
from jaxnlp.tasks import Evaluation, Evaluator, Metric, Scoring, Trained
from jaxnlp.tasks.classification.evaluators import measures_of, outputs_of, parts_of, predictions_table
from jaxnlp.tasks.classification.kept_threshold import NO_THRESHOLD
from jaxnlp.tasks.classification.measures import share_right


@dataclasses.dataclass(frozen=True)
class Ensemble(Evaluator):
    """Scores an ensemble: the mean of the probabilities, or of the numbers, that this run and others predict.

    All runs must have the same classes and the same tokenizer; their models may differ. The file of predictions is that
    of the evaluator validation, with the means.
    """

    members: tuple[UserPath, ...] = ()
    """The other runs: --members RUN2 RUN3. Each is read at its best checkpoint."""
    threshold: Annotated[float, Within("(0, 1)")] | None = None
    """In the file of predictions, predict each class, or the second of two, whose mean probability is at least this;
    None = 0.5 for several classes, or the most probable class."""

    def __call__(self, scoring: Scoring) -> Evaluation:
        """Raises: ValueError without members, and for a member that is given twice, has learned from the rows to score,
        or has other classes or another tokenizer."""
        if not self.members:
            raise ValueError("an ensemble has at least two runs; give the others with --members RUN2 RUN3")
        first = scoring.trained
        _refuse_repeated([first.folder, *self.members])
        members = [first, *(_checked(scoring.load(path), path, first) for path in self.members)]
        metrics, files = dict[str, Metric](), dict[str, str]()
        for name, processor, part in parts_of(scoring):
            if self.threshold is not None and not processor.targets.has_threshold:
                raise ValueError(NO_THRESHOLD)
            predictions = np.mean([_predicted(part, one, name) for one in members], axis=0)
            metrics |= _scores(part, processor.targets, predictions, name)
            file = f"{name}-predictions.csv" if name else "predictions.csv"
            files[file] = predictions_table(processor, part.split, predictions, self.threshold)
        named = [{"recipe": one.name, "steps": one.step, "seed": one.config.get("seed")} for one in members]
        return Evaluation(metrics, files, (), {"members": named})


def _refuse_repeated(folders: Sequence[str | Path | None]) -> None:
    """Raises ValueError for a run that is given twice."""
    runs = [Path(folder).expanduser().resolve() for folder in folders if folder is not None]
    for index, run in enumerate(runs):
        if run in runs[:index]:
            raise ValueError(f"--members: {run} is given twice; give each run once")


def _checked(member: Trained, path: str, first: Trained) -> Trained:
    if type(member.task) is not type(first.task):
        raise ValueError(f"--members {path} is not a classifier, but {member}; remove it")
    if member.processor != first.processor:
        before, now = (processor_to_json(one.processor) for one in (first, member))
        changed = [name for name in before | now if before.get(name) != now.get(name)]
        raise ValueError(
            f"--members {path} has other classes, another scale of its numbers, another tokenizer or another size of "
            "its inputs than the first run, so their predictions cannot be averaged; the processor.json of both differ "
            f"in {', '.join(changed)}"
        )
    return member


def _predicted(scoring: Scoring, member: Trained, name: str) -> np.ndarray:
    """A member's probabilities [N, C], or numbers [N]."""
    outputs = scoring.outputs(scoring.once(outputs_of, member.model, name), of=member)
    return member.processor.by_part[name].targets.predicted(outputs)


def _scores(scoring: Scoring, targets: Targets, predictions: np.ndarray, name: str) -> dict[str, Metric]:
    """The scores of predictions [N, C] or [N], as `ensemble_accuracy` and so on; {} without labels."""
    if not scoring.split.scored:
        return {}
    labels = targets.values([example.label for example in scoring.split.examples])
    scores = measures_of(targets).scores(labels, predictions)
    if targets.names:
        scores = {"accuracy": Metric(share_right(targets, labels, predictions), len(labels))} | scores
    return {of_part(name, _named(metric)): value for metric, value in scores.items()}


def _named(metric: str) -> str:
    """`ensemble_f1` for f1; `yes/ensemble_f1` for yes/f1, the F1 of a class."""
    kind, slash, measure = metric.rpartition("/")
    return f"{kind}{slash}ensemble_{measure}"
