"""The training loop: `fit` trains the model of a config, and writes the run's folder."""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console

from jaxnlp.cli.messages import is_full
from jaxnlp.typing import Array
from train.compile_ahead import AheadCompiler
from train.config import TrainConfig
from train.evaluation.validation import Validation
from train.logs.log import RunLog
from train.parallel import Parallel, ParallelMode, make_parallel
from train.programs.peak_share import peak_facts
from train.report import write_report
from train.run import folder as run_folder
from train.run.announcement import announcement, ending, print_lines
from train.run.checkpoint_writing import Checkpoints
from train.run.continuation import check_folder
from train.run.device import for_device
from train.run.init_from import begin
from train.run.lock import locked
from train.run.memory import require_memory
from train.run.process_agreement import require_agreement, require_shared_folder
from train.run.progress import RunProgress, all_finite
from train.run.setup import Setup, set_up
from train.run.signals import StopSignal
from train.run.stalls import StallWatch
from train.step import StepOutput, TrainState


class FitResult(NamedTuple):
    """The last state, and the name of the signal that stopped the run, or None."""

    state: TrainState
    stopped_by: str | None


def fit(
    config: TrainConfig,
    workdir: str | Path,
    *,
    parallel: ParallelMode = "jit",
    mesh: str | None = None,
    extend: bool = False,
    console: Console | None = None,
    started: float | None = None,
    command: str | None = None,
) -> FitResult:
    """Trains from the latest checkpoint in the folder, or from step 0, to `total_steps` or an early stop.

    Args:
      config: the config of the run.
      workdir: the run's folder, new or with a run of the same config.
      parallel: how devices share a step; may change on resume.
      mesh: the number of devices along each axis, see `train.parallel.make_parallel`; may change on resume.
      extend: train for more steps than planned, even if the learning rate depends on their number.
      console: prints the progress.
      started: `time.time()` when the process started, to record the time to the end of the first step.
      command: the command line, for the records.

    Raises:
      RunMismatchError: when the folder has another run, another process trains in it, or processes differ in what they
        train or do not share the folder.
      DataError, ConfigError, RunError: as `begin` and `set_up`.
      NonFiniteError: for a loss or gradient that is not finite, unless the config skips such updates; and for such
        parameters at a step that is logged or saved.
      DamagedCheckpointError: when all checkpoints are damaged.
    """
    workdir, layout = Path(workdir).expanduser(), make_parallel(parallel, mesh=mesh)
    console = console or Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
    with locked(workdir):
        require_shared_folder(workdir)
        config = for_device(config, jax.devices()[0], workdir)
        config = check_folder(workdir, config, extend=extend)
        setup = set_up(begin(config, workdir), devices=layout.devices)
        require_memory(setup)
        config = setup.config
        require_agreement({"--parallel": parallel, "--mesh": mesh, **setup.spec.facts})
        layout = layout.of_model(config.model, setup.abstract_state.params)
        batches: Any = iter(setup.corpus.train)  # grain's iterator, whose state can be saved
        # Checkpoints end before the compiler, so that the last is saved before programs that nobody needs are compiled.
        with (
            StopSignal() as stop,
            AheadCompiler() as ahead,
            Checkpoints(workdir, keep=config.keep_checkpoints) as checkpoints,
        ):
            program = layout.compile_train(setup.step, setup.abstract_state)
            if checkpoints.latest_step() is None:
                _compile_step(ahead, setup, layout, program)
            run = checkpoints.resume(setup, layout, batches)
            setup = setup._replace(given={})  # the state has these parameters now: only one copy stays in memory
            run_folder.create(workdir, setup.spec, setup.begun.typed_model)
            print_lines(console, announcement(setup, layout, step=run.step, ended=run.ended(config)))
            if run.ended(config):
                run_folder.read_environment(workdir)  # raises if it is missing; the report reads it
            else:
                run_folder.write_environment(workdir, parallel=parallel, mesh=mesh, command=command, **setup.facts)
            row, first = contextlib.ExitStack(), run.step  # the row: at most one call of `_log`, made later
            train_step, finite = ahead.called(program, before_waiting=row.close), ahead.called(all_finite)
            validate = Validation(setup, layout, workdir, ahead)
            with (
                report_at_end(workdir, console),
                open_log(workdir, console, setup, run) as log,
                StallWatch(workdir, run.step, run.train_seconds, compiling=ahead.compiling) as stalls,
                row,
            ):
                while not run.ended(config):
                    batch = layout.put_batch(next(batches), config.accumulation_steps)
                    if run.step == first:
                        executable = ahead.compile(program, run.state, batch)
                    run.state, output = train_step(run.state, batch)
                    row.close()  # while the device computes the step after the row's
                    run.step += 1
                    stalls.step(run.step)
                    log.collect(output.metrics)
                    if started is not None:
                        _record_start(workdir, output, started)
                        started = None
                    if run.step == first + 1:
                        with log.paused(), stalls.paused():
                            _compile_further_programs(ahead, setup, layout, program, validate, run)
                            _record_peak(workdir, executable, setup, layout, output)
                    print_lines(console, ahead.report())
                    stopped = stop.stops_at(run.step)  # a signal after this line stops the run after its next step
                    due = run.due(config, stopped=stopped)
                    if due.log:
                        check = functools.partial(
                            run.check_finite, output, config, last_good=checkpoints.latest_step(), workdir=workdir
                        )
                        parameters_finite = finite((run.state.params, run.state.ema))
                        row.callback(_log, log, run.step, output, parameters_finite, check, stalls)
                        if due.save:
                            row.close()
                    with log.paused(), stalls.paused():
                        score = validate(run.step, run.state, log) if due.evaluate else None
                        if score is not None:
                            run.evaluated(score, config, layout)
                            if not run.ended(config):  # the last report is written when everything is saved
                                _write_report(workdir)
                        if due.save:
                            run.train_seconds = log.train_seconds
                            checkpoints.save(layout.fetch(run.state), setup.spec, run, score, batches.get_state())
                    if stopped:
                        break
        ended = run.ended(config)
        print_lines(console, ending(workdir, setup, scores=run.scores, ended=ended))
        return FitResult(layout.fetch(run.state), None if ended else stop.received)


def open_log(workdir: Path, console: Console, setup: Setup, run: RunProgress) -> RunLog:
    """The log of a run, which continues after the run's last step."""
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


def _compile_step(ahead: AheadCompiler, setup: Setup, layout: Parallel, program: Any) -> None:
    """Compiles the training step in a thread, parallel to the initial state, if all batches have one shape.

    Several processes compile their programs in one order.
    """
    batch, *others = setup.corpus.shapes.train
    state = layout.state_of_step(setup.abstract_state)
    if not others and state is not None and jax.process_count() == 1:
        ahead.compile(program, state, layout.put_batch(batch, setup.config.accumulation_steps))


def _compile_further_programs(
    ahead: AheadCompiler, setup: Setup, layout: Parallel, program: Any, validate: Validation, run: RunProgress
) -> None:
    """Compiles in threads the steps for batches of other shapes, and the evaluation.

    It does so after the first step, which would otherwise wait until JAX has traced them all.
    """
    for batch in setup.corpus.shapes.train:
        ahead.compile(program, run.state, layout.put_batch(batch, setup.config.accumulation_steps))
    ahead.compile(all_finite, (run.state.params, run.state.ema))
    validate.compile_ahead(run.step, run.state)


def _record_peak(workdir: Path, executable: Any, setup: Setup, layout: Parallel, output: StepOutput) -> None:
    """Records the report's inputs for the share of the devices' peak, if that is known."""
    count = float(jax.device_get(output.metrics[setup.objective.progress][1]))
    facts = peak_facts(executable.result(), count, layout.replicated.mesh.size, jax.local_devices()[0].device_kind)
    if facts:
        run_folder.update_environment(workdir, **facts)


def _record_start(workdir: Path, output: StepOutput, started: float) -> None:
    """Records the time from the start of the process to the end of its first step."""
    jax.block_until_ready(output)
    run_folder.update_environment(workdir, seconds_to_first_step=round(time.time() - started, 2))


def _log(
    log: RunLog, step: int, output: StepOutput, finite: Array, check: Callable[[int, Array], None], stalls: StallWatch
) -> None:
    """Logs a step, and checks its results, which it waits for."""
    log.log_train(step, learning_rate=output.learning_rate, skipped_updates=output.skipped_updates)
    stalls.row(step, log.train_seconds)
    check(step, finite)


@contextlib.contextmanager
def report_at_end(workdir: Path, console: Console) -> Iterator[None]:
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
