"""The training loop: `fit` trains the model of a config, and writes the run's folder."""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from jaxnlp.cli.messages import is_full
from train.config import TrainConfig
from train.evaluation.validation import Validation
from train.logs.log import RunLog
from train.optimizer.chain import with_plateau_scale
from train.parallel import Parallel, ParallelMode, make_parallel
from train.report import write_report
from train.run import folder as run_folder
from train.run.announcement import announcement, ending, print_lines
from train.run.begin import begin
from train.run.checkpoint import Checkpoints
from train.run.lock import locked
from train.run.progress import Progress, has_stalled
from train.run.setup import Setup, set_up
from train.run.signals import StopSignal
from train.step import NonFiniteError, StepOutput, TrainState, all_finite


class FitResult(NamedTuple):
    """The last state of a call of `fit`, and the name of the signal that stopped the run before its end, or None."""

    state: TrainState
    stopped_by: str | None


class Due(NamedTuple):
    """Whether to log, to evaluate and to save after a step."""

    log: bool
    evaluate: bool
    save: bool


def fit(
    config: TrainConfig,
    workdir: str | Path,
    *,
    parallel: ParallelMode = "jit",
    extend: bool = False,
    console: Console | None = None,
    started: float | None = None,
    command: str | None = None,
) -> FitResult:
    """Trains until `total_steps`, or until the run stops early, starting from the latest checkpoint in the folder, if
    there is one.

    Args:
      config: the config of the run.
      workdir: the run's folder. It is new, or has a run with the same config.
      parallel: how devices share a batch. It may change when a run continues.
      extend: train for more steps than planned, even if the learning rate depends on their number.
      console: prints the progress.
      started: `time.time()` when the process started, to record the time until the end of the first step.
      command: the command line, for the records.

    Raises:
      RunMismatchError: when the folder has another run, or another process trains in it.
      DataError, ConfigError, RunError: as `begin` and `set_up`.
      NonFiniteError: when the loss or its gradient is not finite, unless the config skips such updates; and when the
        parameters are not finite at a step that is logged or saved.
      DamagedCheckpointError: when there are checkpoints, but none of them can be read.
    """
    workdir, layout = Path(workdir), make_parallel(parallel)
    console = console or Console(markup=False, emoji=False, highlight=False)
    with locked(workdir):
        run_folder.check(workdir, config, extend=extend)
        begun = begin(config, workdir)
        setup = set_up(begun, devices=layout.devices, parallel=parallel)
        config = setup.config
        batches: Any = iter(setup.corpus.train)  # grain's iterator, whose state can be saved
        with StopSignal() as stop, Checkpoints(workdir, keep=config.keep_checkpoints) as checkpoints:
            run = _restore(workdir, checkpoints, setup, layout, batches)
            run = run or Progress(layout.initialise(setup.initial_state, setup.given))
            # The state has the given parameters now: only one copy stays in memory.
            setup, begun = setup._replace(given={}), begun._replace(params={}, params_for=None)
            run_folder.create(workdir, setup.spec, begun.typed_model)
            print_lines(console, announcement(setup, begun, step=run.step, ended=run.ended(config)))
            if not run.ended(config):
                run_folder.write_environment(
                    workdir, parallel=parallel, command=command, pretrained=begun.digest, **setup.facts
                )
            train_step = layout.compile_train(setup.step, setup.abstract_state)
            validate = Validation(setup, layout, workdir)
            with _report_at_end(workdir, console), _open_log(workdir, console, setup, run) as log:
                while not run.ended(config):
                    batch = layout.put_batch(next(batches), config.accumulation_steps)
                    run.state, output = train_step(run.state, batch)
                    run.step += 1
                    log.collect(output.metrics)
                    if started is not None:
                        _record_start(workdir, output, started)
                        started = None
                    stopped = stop.received is not None  # a signal after this line stops the run after its next step
                    due = _due(run.step, config, stopped=stopped)
                    if due.log:
                        _log(log, run, output)
                        _check_finite(run, output, config, checkpoints, workdir)
                    with log.paused():
                        score = validate(run.step, run.state, log) if due.evaluate else None
                        if score is not None:
                            _after_evaluation(run, score, config, layout, workdir)
                        if due.save:
                            run.train_seconds = log.train_seconds
                            checkpoints.save(layout.fetch(run.state), setup.spec, run, score, batches.get_state())
                    if stopped:
                        break
        ended = run.ended(config)
        print_lines(console, ending(workdir, setup, scores=run.scores, ended=ended))
        return FitResult(layout.fetch(run.state), None if ended else stop.received)


def _restore(workdir: Path, checkpoints: Checkpoints, setup: Setup, layout: Parallel, batches: Any) -> Progress | None:
    """Restores the latest readable checkpoint, and moves `batches` to the batch after it. Returns None if the run has
    no checkpoint.

    Raises: as `check_continuation`; nothing is written then.
    """
    check = functools.partial(run_folder.check_continuation, run=setup.spec, workdir=workdir)
    restored = checkpoints.restore_latest(layout.like(setup.abstract_state), check)
    if restored is None:
        return None
    record = restored.record
    batches.set_state(record.data_state)
    return Progress(layout.place(restored.state), record.step, record.train_seconds, record.losses, record.scores)


def _open_log(workdir: Path, console: Console, setup: Setup, run: Progress) -> RunLog:
    return RunLog(
        workdir,
        console,
        total_steps=setup.config.total_steps,
        first_step=run.step,
        evaluations=len(run.losses),
        evaluate_every_steps=setup.config.evaluate_every_steps,
        train_seconds=run.train_seconds,
        progress=setup.objective.progress,
        unit=setup.metrics[setup.objective.progress].of,
    )


def _record_start(workdir: Path, output: StepOutput, started: float) -> None:
    """Records the time from the start of the process to the end of its first step."""
    jax.block_until_ready(output)
    run_folder.update_environment(workdir, seconds_to_first_step=round(time.time() - started, 2))


def _due(step: int, config: TrainConfig, *, stopped: bool) -> Due:
    evaluate = step == config.total_steps or step % config.evaluate_every_steps == 0
    save = evaluate or stopped or step % config.checkpoint_every_steps == 0
    return Due(save or step % config.log_every_steps == 0, evaluate, save)


def _log(log: RunLog, run: Progress, output: StepOutput) -> None:
    log.log_train(run.step, learning_rate=output.learning_rate, skipped_updates=output.skipped_updates)


def _check_finite(
    run: Progress, output: StepOutput, config: TrainConfig, checkpoints: Checkpoints, workdir: Path
) -> None:
    """Raises NonFiniteError when an update was skipped, unless the config allows that, or parameters are not finite.

    A skipped update leaves the parameters unchanged. Parameters that are not finite come from an update that
    overflowed, and no later gradient would be finite.
    """
    latest = checkpoints.latest_step()
    good = "there is no checkpoint before it" if latest is None else f"the last good checkpoint is step {latest}"
    remedy = (
        f"{good} in {workdir}. In a new --workdir, try a lower --optimizer.learning-rate or a smaller "
        "--optimizer.max-grad-norm"
    )
    if config.nonfinite == "stop" and int(output.skipped_updates):
        raise NonFiniteError(
            f"the loss or its gradient was not finite at step {int(output.first_skipped_step)}; {remedy}, or "
            "--nonfinite skip to continue without such updates"
        )
    if not all_finite((run.state.params, run.state.ema)):
        raise NonFiniteError(f"the parameters are not finite after step {run.step}; {remedy}")


def _after_evaluation(
    run: Progress, score: dict[str, float], config: TrainConfig, layout: Parallel, workdir: Path
) -> None:
    """Records the validation loss and the score, and updates the report. If the loss has stopped improving, it starts
    averaging (NT-ASGD), or lowers the learning rate (plateau)."""
    run.losses = [*run.losses, score["loss"]]
    run.scores = [*run.scores, score["score"]]
    patience = config.nt_asgd_patience
    if patience is not None and not np.any(layout.fetch(run.state.averaged)) and has_stalled(run.losses, patience):
        run.state = dataclasses.replace(run.state, averaged=layout.place(jnp.int32(1)))
    scale = config.optimizer.schedule.scale(run.losses)
    if scale is not None:
        scaled = with_plateau_scale(run.state.opt_state, layout.place(jnp.float32(scale)))
        run.state = dataclasses.replace(run.state, opt_state=scaled)
    if not run.ended(config):  # the report of the last step is written when everything is saved
        _write_report(workdir)


@contextlib.contextmanager
def _report_at_end(workdir: Path, console: Console) -> Iterator[None]:
    """A context that writes the report when it ends, also after an error."""
    try:
        yield
    except BaseException as ended:
        try:
            _write_report(workdir)
        except Exception as error:  # of any kind: it must not hide the error of the run
            if not is_full(ended):  # there is no space for a report either
                logging.getLogger(__name__).warning("no report: %s", error)
        raise
    if run_folder.writes_folder():
        console.print("writing the report")
    _write_report(workdir)


def _write_report(workdir: Path) -> None:
    """Updates the report, if there are metrics to show."""
    if run_folder.writes_folder() and (workdir / run_folder.METRICS_FILE).exists():
        write_report(workdir)
