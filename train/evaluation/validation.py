"""The validation of a run: the task's evaluator, and the score of checkpoints."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from jaxnlp.tasks import Evaluation, MetricKind, Trained
from train.compile_ahead import AheadCompiler
from train.evaluation.scoring import SplitScoring
from train.logs.compile_time import compile_seconds
from train.logs.log import RunLog
from train.parallel import Parallel
from train.run.setup import Setup
from train.step import TrainState


class Validation:
    """The task's evaluator `validation` on the validation split; compiles each program once, ahead if possible."""

    def __init__(
        self,
        setup: Setup,
        layout: Parallel,
        workdir: Path,
        ahead: AheadCompiler,
        kept: dict[Hashable, Any] | None = None,
    ):
        """Args: kept: results of `Scoring.once`, perhaps shared by runs, so that each program compiles once."""
        self._setup, self._layout, self._workdir, self._ahead = setup, layout, workdir, ahead
        self._evaluator = setup.config.task.evaluators["validation"]()
        self._kept: dict[Hashable, Any] = {} if kept is None else kept

    def __call__(self, step: int, state: TrainState, log: RunLog) -> dict[str, float]:
        """Evaluates the state after a step, and logs the metrics. Returns: see `checkpoint_score`."""
        log.announce_evaluation()
        config = self._setup.config
        self._ahead.wait()
        before = compile_seconds()
        evaluation = self._evaluator(self._scoring(step, state))
        log.announce_compilation(compile_seconds() - before)
        missing = [name for name in ("loss", config.best_metric) if name not in evaluation.metrics]
        if missing:
            raise ValueError(
                f"{type(config.task).__name__} declares the metric {missing[0]}, but its evaluator validation did not "
                "measure it"
            )
        log.log_evaluation(step, "validation", {name: metric.value for name, metric in evaluation.metrics.items()})
        log.log_sections(step, evaluation.sections)
        best = config.best_metric
        return checkpoint_score(evaluation, best, self._setup.metrics[best])

    def compile_ahead(self, step: int, state: TrainState) -> None:
        """Starts to compile the programs of the evaluator in threads."""
        self._evaluator.compile_ahead(self._scoring(step, state))

    def _scoring(self, step: int, state: TrainState) -> SplitScoring:
        config, corpus = self._setup.config, self._setup.corpus
        trained = Trained(
            task=config.task,
            model=self._setup.model,
            params=state.evaluation_params,
            processor=corpus.processor,
            name=config.recipe,
            folder=self._workdir,
            step=step,
            config=self._setup.spec.config,
        )
        return SplitScoring(
            trained,
            corpus.split("validation"),
            "validation",
            training=corpus.splits.get("train"),
            objective=self._setup.objective,
            layout=self._layout,
            kept=self._kept,
            ahead=self._ahead,
        )


def checkpoint_score(evaluation: Evaluation, best_metric: str, kind: MetricKind) -> dict[str, float]:
    """The score that orders checkpoints: the best metric, negated if lower is better; the loss breaks ties."""
    sign = 1.0 if kind.better == "higher" else -1.0
    return {"score": sign * evaluation.metrics[best_metric].value, "loss": evaluation.metrics["loss"].value}
