"""`fit_at_once` trains several runs of one recipe with one program, such as those of three seeds.

A step of a small model is too little work for an accelerator. Here `jax.vmap` maps the step over N runs: each array of
their states and batches has the axis N. Each run has its own folder, with the records that `fit` would write, and the
same numbers, except for rounding.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.custom_batching import custom_vmap
from rich.console import Console

from jaxnlp.ops.compiler_options import jit, jit_for
from jaxnlp.saving.serialization import ConfigError, differences
from jaxnlp.typing import Array, Batch, Params, PyTree
from train.compile_ahead import Ahead
from train.config import TrainConfig
from train.evaluation.validation import Validation
from train.logs.log import RunLog
from train.loop import report_at_end
from train.parallel import Parallel, make_parallel
from train.run import folder as run_folder
from train.run.announcement import announcement, print_lines
from train.run.checkpoint_writing import Checkpoints
from train.run.continuation import check_folder
from train.run.device import for_device
from train.run.folder import RunMismatchError
from train.run.init_from import begin
from train.run.lock import locked
from train.run.memory import require_memory
from train.run.progress import RunProgress, all_finite
from train.run.setup import Setup, set_up
from train.run.signals import StopSignal
from train.step import StepOutput, TrainState


class Member(NamedTuple):
    """One of the runs.

    Attributes:
      workdir: its folder.
      setup: its objects.
      batches: the iterator of its data.
      checkpoints: in its folder.
      run: its progress; its state is only up to date at an evaluation or a checkpoint.
      log: of its metrics.
      validate: its evaluation.
    """

    workdir: Path
    setup: Setup
    batches: Any
    checkpoints: Checkpoints
    run: RunProgress
    log: RunLog
    validate: Validation


def fit_at_once(
    configs: Sequence[TrainConfig], workdirs: Sequence[Path], commands: Sequence[str | None], console: Console
) -> str | None:
    """Trains runs from step 0, or from their latest checkpoints, to `total_steps`, on one device.

    Args:
      configs: of N runs; they differ only in their seeds and in fields of the optimizer that are numbers.
      workdirs: the folder of each.
      commands: the command line that trains each alone, for the records.
      console: prints the progress.

    Returns: the name of the signal that stopped the runs, or None.

    Raises:
      ConfigError: for runs that one program cannot train, see `check_alike`.
      RunMismatchError: when the latest checkpoints are of different steps; and as `train.loop.fit`, as other errors.
    """
    layout = make_parallel("jit", jax.local_devices()[:1])
    device = layout.replicated.mesh.devices.flat[0]
    with contextlib.ExitStack() as contexts:
        for workdir in workdirs:
            contexts.enter_context(locked(workdir))
        setups = [_set_up(config, workdir) for config, workdir in zip(configs, workdirs, strict=True)]
        check_alike(setups)
        require_memory(setups[0], len(setups))
        stop, ahead = contexts.enter_context(StopSignal()), contexts.enter_context(Ahead())
        no_gain = ["on a CPU that takes about as long as one by one"] if device.platform == "cpu" else []
        print_lines(console, [f"{len(setups)} runs at once", *no_gain, *announcement(setups[0], layout, step=0)])
        members = _members(setups, workdirs, commands, layout, ahead, contexts)
        config, step = members[0].setup.config, members[0].run.step
        program, states = (
            jit_for(device, step_of_all(setups), donate_argnums=0),
            stacked([m.run.state for m in members]),
        )
        while step < config.total_steps:
            batches = [layout.put_batch(next(member.batches), config.accumulation_steps) for member in members]
            states, outputs = program(states, batches)
            step += 1
            for member, output in zip(members, outputs, strict=True):
                member.run.step = step
                member.log.collect(output.metrics)
            stopped = stop.stops_at(step)
            due = members[0].run.due(config, stopped=stopped)
            if due.log:
                _log(members, outputs, _finite(states))
            if due.save:  # also after each evaluation
                states = _evaluate_and_save(members, states, layout, evaluate=due.evaluate)
            if due.evaluate:
                best = config.best_metric
                sign = 1.0 if setups[0].metrics[best].better == "higher" else -1.0
                values = "  ".join(f"{sign * member.run.scores[-1]:.4f}" for member in members)
                print_lines(console, [f"step {step}/{config.total_steps}  validation {best}  {values}"])
            if stopped:
                return stop.received
    return None


def check_alike(setups: Sequence[Setup]) -> None:
    """Checks that one program can train the runs.

    Raises: ConfigError when they differ in more than the seed and numbers of the optimizer; when their data, tokenizers
      or arrays differ; when batches have several shapes, runs may stop early, or there are several processes.
    """
    first = setups[0]
    if jax.process_count() > 1:
        raise ConfigError("runs are trained at once in one process only; train them one by one")
    if first.config.stop_after is not None:
        raise ConfigError("stop_after must be None for runs that are trained at once: they end at the same step")
    if len(first.corpus.shapes.train) > 1:
        raise ConfigError(
            f"batches have {len(first.corpus.shapes.train)} shapes, but runs are trained at once with one; set "
            "--data.few-lengths True if it is not set, or train them one by one"
        )
    for setup in setups[1:]:
        config = dataclasses.replace(setup.config, seed=first.config.seed, optimizer=first.config.optimizer)
        changed = differences(first.config, config)
        if changed:
            lines = "".join(f"\n  {line}" for line in changed)
            raise ConfigError(f"runs that are trained at once differ only in seed and optimizer:{lines}")
        if (setup.corpus.fingerprint, setup.spec.processor) != (first.corpus.fingerprint, first.spec.processor):
            raise ConfigError("the seed decides which data the runs train on; train them one by one")
        if _shapes(setup.abstract_state) != _shapes(first.abstract_state):
            raise ConfigError("the optimizers keep other arrays; vary only their numbers, none of them to or from 0")


def each_its_own(
    optimizers: Sequence[optax.GradientTransformationExtraArgs],
) -> optax.GradientTransformationExtraArgs:
    """An optimizer to be mapped by `jax.vmap`, which updates each of N runs by its own optimizer."""

    @custom_vmap
    def update(updates: PyTree, state: PyTree, params: Params, progress: Array) -> Any:
        return optimizers[0].update(updates, state, params, progress=progress)

    @update.def_vmap
    def of_all(size: int, mapped: Sequence[Any], *arguments: Any) -> Any:
        results = []
        for index, optimizer in enumerate(optimizers):
            own = jax.tree.map(lambda x, has, index=index: x[index] if has else x, arguments, tuple(mapped))
            updates, state, params, progress = own
            results.append(optimizer.update(updates, state, params, progress=progress))
        del size
        outputs = stacked(results)
        return outputs, jax.tree.map(lambda _: True, outputs)

    def with_progress(updates: PyTree, state: PyTree, params: Params | None = None, *, progress: Array) -> Any:
        return update(updates, state, params, progress)

    return optax.GradientTransformationExtraArgs(optimizers[0].init, with_progress)


def _set_up(config: TrainConfig, workdir: Path) -> Setup:
    config = for_device(config, jax.devices()[0], workdir)
    check_folder(workdir, config)
    return set_up(begin(config, workdir))


def _members(
    setups: Sequence[Setup],
    workdirs: Sequence[Path],
    commands: Sequence[str | None],
    layout: Parallel,
    ahead: Ahead,
    contexts: contextlib.ExitStack,
) -> list[Member]:
    """The runs, at their latest checkpoints. What they compile for evaluation is compiled once."""
    first, kept, members = setups[0], dict[Any, Any](), list[Member]()
    for setup, workdir, command in zip(setups, workdirs, commands, strict=True):
        batches = iter(setup.corpus.train)
        checkpoints = contexts.enter_context(Checkpoints(workdir, keep=setup.config.keep_checkpoints))
        run = checkpoints.resume(setup, layout, batches)
        if members and run.step != members[0].run.step:
            raise RunMismatchError(
                f"{members[0].workdir} has trained to step {members[0].run.step}, and {workdir} to step {run.step}; "
                "train them one by one"
            )
        run_folder.create(workdir, setup.spec, setup.begun.typed_model)
        facts = setup.facts | {run_folder.AT_ONCE: len(setups)}
        run_folder.write_environment(workdir, parallel="jit", mesh=None, command=command, **facts)
        quiet = Console(quiet=True, force_terminal=False)
        contexts.enter_context(report_at_end(workdir, quiet))
        log = contexts.enter_context(
            RunLog(
                workdir,
                quiet,
                total_steps=setup.config.total_steps,
                first_step=run.step,
                evaluations=len(run.losses),
                train_seconds=run.train_seconds,
                progress=setup.objective.progress,
                unit=setup.metrics[setup.objective.progress].of,
            )
        )
        corpus = dataclasses.replace(setup.corpus, processor=first.corpus.processor)
        shared = setup._replace(given={}, corpus=corpus, model=first.model, objective=first.objective)
        validate = Validation(shared, layout, workdir, ahead, kept)
        members.append(Member(workdir, shared, batches, checkpoints, run, log, validate))
    return members


def step_of_all(setups: Sequence[Setup]) -> Any:
    """(stacked states, the batch of each run) -> (stacked states, the output of each run)."""
    step, equal = setups[0].step, len({setup.config.optimizer for setup in setups}) == 1
    options = {} if equal else {"optimizer": each_its_own([setup.optimizer for setup in setups])}

    def step_all(states: TrainState, batches: Sequence[Batch]) -> tuple[TrainState, list[StepOutput]]:
        states, outputs = jax.vmap(lambda state, batch: step(state, batch, **options))(states, stacked(batches))
        return states, [_of_run(outputs, index) for index in range(len(batches))]

    return step_all


def _log(members: Sequence[Member], outputs: Sequence[StepOutput], finite: Array) -> None:
    """Logs a step of each run, and checks its results."""
    for member, output, ok in zip(members, outputs, jax.device_get(finite), strict=True):
        step, last_good = member.run.step, member.checkpoints.latest_step()
        member.log.log_train(step, learning_rate=output.learning_rate, skipped_updates=output.skipped_updates)
        config = member.setup.config
        member.run.check_finite(output, config, step, ok, last_good=last_good, workdir=member.workdir)


def _evaluate_and_save(
    members: Sequence[Member], states: TrainState, layout: Parallel, *, evaluate: bool
) -> TrainState:
    """Evaluates and saves each run. Returns: the states, which an evaluation may change."""
    with contextlib.ExitStack() as paused:
        for member in members:
            paused.enter_context(member.log.paused())
        for index, member in enumerate(members):
            member.run.state = _row(states, index)
            score = member.validate(member.run.step, member.run.state, member.log) if evaluate else None
            if score is not None:
                member.run.evaluated(score, member.setup.config, layout)
            member.run.train_seconds = member.log.train_seconds
            data_state = member.batches.get_state()
            member.checkpoints.save(member.run.state, member.setup.spec, member.run, score, data_state)
        return stacked([member.run.state for member in members])


def _shapes(state: TrainState) -> PyTree:
    return jax.tree.map(lambda x: (x.shape, x.dtype), state)


def _of_run(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def stacked(trees: Sequence[Any]) -> Any:
    """N trees of equal structure as one, whose arrays have the axis N first."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


_row = jit(_of_run)
_finite = jit(jax.vmap(lambda state: all_finite((state.params, state.ema))))
