"""Scoring a trained model on a split: the argument of evaluators (`jaxnlp.tasks.Scoring`)."""

import functools
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from jaxnlp.corpus import DataError, NumpyBatch, Split
from jaxnlp.metrics import means, total
from jaxnlp.runs import is_run, load
from jaxnlp.tasks import Metric, Objective, Trained
from jaxnlp.typing import Batch, Metrics, Params, PyTree
from train.compile_ahead import AheadCompiler
from train.parallel import Parallel
from train.run.folder import check_held_out
from train.step import Division, eval_step

T = TypeVar("T")


def _step_of(objective: Objective) -> Callable[..., Any]:
    return functools.partial(eval_step, objective=objective)


def _of_whole_params(step: Callable[..., tuple[Metrics, PyTree]], *arguments: Any, division: Division) -> Any:
    """An evaluation step from a step of `Scoring.fold`."""
    params, batch, carry = arguments
    metrics, carry = step(division.whole(params), batch, carry)
    return division.total(metrics), carry


class SplitScoring:
    """A model, a split and the devices to score it on; see `jaxnlp.tasks.Scoring`.

    Args:
      trained: the model, with parameters laid out over the devices.
      split: the split to score it on.
      split_name: for messages.
      training: the training examples, or None.
      objective: of the run.
      layout: of the devices.
      kept: results of `once`, shared by a run's evaluations, so that programs compile once.
      ahead: compiles programs in threads; None = at their first calls.
    """

    def __init__(
        self,
        trained: Trained,
        split: Split,
        split_name: str,
        *,
        training: Split | None,
        objective: Objective,
        layout: Parallel,
        kept: dict[Hashable, Any],
        ahead: AheadCompiler | None = None,
    ):
        self.trained = trained
        self.split = split
        self.split_name = split_name
        self.training = training
        self._objective = objective
        self._layout = layout
        self._kept = kept
        self._ahead = ahead

    def _eval_step(self) -> Callable[..., Any]:
        return self.once(self._layout.compile_eval, self.once(_step_of, self._objective))

    def compile_sums(self) -> None:
        """See `jaxnlp.tasks.Scoring`."""
        for batch in self.split.shapes:
            carry = self._layout.empty_carry(self._objective.empty_carry, len(batch["loss_mask"]))
            self._compile(self._eval_step(), self.trained.params, self._layout.put_batch(batch), carry)

    def compile_outputs(self, function: Callable[[Params, Batch], PyTree]) -> None:
        """See `jaxnlp.tasks.Scoring`."""
        run = self.once(self._layout.compile_outputs, function)
        for batch in self.split.shapes:
            self._compile(run, self.trained.params, self._layout.put_batch(batch))

    def compile(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """See `jaxnlp.tasks.Scoring`."""
        self._compile(function, *arguments, **options)
        whole = self._layout.replicated  # as `whole_params`
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole, weak_type=x.weak_type),
            function.eval_shape(*arguments, **options),
        )

    def _compile(self, function: Any, *arguments: Any, **options: Any) -> None:
        if self._ahead is None:
            raise ValueError("programs are compiled ahead only in training")
        self._ahead.compile(function, *arguments, **options)

    def sums(self) -> dict[str, Metric]:
        """See `jaxnlp.tasks.Scoring`."""
        sums = self._sums(self._eval_step(), self._objective.empty_carry)
        if not sums:
            return {}
        declared = self.trained.task.metrics(self.trained.processor, self.split)
        left_out = {name for name, kind in declared.items() if kind.training_only}
        return {name: metric for name, metric in sums.items() if name not in left_out}

    def fold(
        self, step: Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]], empty: Callable[[int], PyTree]
    ) -> dict[str, Metric]:
        """See `jaxnlp.tasks.Scoring`."""
        return self._sums(self._layout.compile_eval(functools.partial(_of_whole_params, step)), empty)

    def _sums(self, step: Callable[..., Any], empty: Callable[[int], PyTree]) -> dict[str, Metric]:
        """The metrics of a compiled step, summed over the batches; `empty` makes the first carry."""
        sums: list[Metrics] = []
        carry = None
        for batch in self.split.batches:
            if carry is None:
                carry = self._layout.empty_carry(empty, len(batch["loss_mask"]))
            metrics, carry = step(self.trained.params, self._layout.put_batch(batch), carry)
            sums.append(metrics)
        summed = total(jax.device_get(sums)) if sums else {}
        return {name: Metric(value, int(summed[name][1])) for name, value in means(summed).items()}

    def outputs(self, function: Callable[[Params, Batch], PyTree], of: Trained | None = None) -> PyTree:
        """See `jaxnlp.tasks.Scoring`."""
        layout, params = self._layout, self.trained.params
        if of is not None and of is not self.trained:
            layout = layout.of_model(of.model.config, of.params)
            params = layout.place(of.params)
        run = self.once(layout.compile_outputs, function)
        parts = []
        for batch in self.split.batches:
            real = _real_rows(batch)
            out = layout.rows_of(run(params, layout.put_batch(batch)))
            parts.append(jax.tree.map(lambda x, real=real: np.asarray(x)[: len(real)][real], out))
        if not parts:
            raise DataError(f"{self.split_name} has no batches, so its outputs cannot be computed")
        joined = jax.tree.map(lambda *x: np.concatenate(x), *parts)
        rows, found_rows = self.split.rows, len(jax.tree.leaves(joined)[0])
        expected = len(self.split.examples) if rows is None else len(rows)
        if expected and found_rows != expected:
            raise DataError(
                f"{self.split_name} has {expected} examples, but only {found_rows} rows with a True in loss_mask; each "
                "example needs one"
            )
        return joined if rows is None else jax.tree.map(lambda x: _in_order(x, rows), joined)

    def part(self, name: str) -> "SplitScoring":
        """See `jaxnlp.tasks.Scoring`."""
        training = None if self.training is None else self.training.parts.get(name)
        return SplitScoring(
            self.trained,
            self.split.parts[name],
            f"{name}/{self.split_name}",
            training=training,
            objective=self._objective,
            layout=self._layout,
            kept=self._kept,
            ahead=self._ahead,
        )

    def once(self, make: Callable[..., T], *arguments: Hashable) -> T:
        """See `jaxnlp.tasks.Scoring`."""
        key = make, arguments
        if key not in self._kept:
            self._kept[key] = make(*arguments)
        return self._kept[key]

    def whole_params(self) -> Params:
        """See `jaxnlp.tasks.Scoring`."""
        return self._layout.whole(self.trained.params)

    def load(self, path: str) -> Trained:
        """See `jaxnlp.tasks.Scoring`."""
        if self.split_name == "validation" and self.trained.folder is not None and is_run(path):
            check_held_out(self.trained.folder, Path(path).expanduser())
        return load(path)


def _real_rows(batch: NumpyBatch) -> np.ndarray:
    """[B] bool: whether rows are examples, not padding."""
    mask = np.asarray(batch["loss_mask"])
    return np.asarray(mask.reshape(len(mask), -1).any(axis=1))


def _in_order(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Reorders outputs [N, ...] from the order of the batches to that of the examples."""
    ordered = np.empty_like(x)
    ordered[rows] = x
    return ordered
