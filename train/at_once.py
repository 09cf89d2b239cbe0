"""`fit_at_once` trains several runs of one recipe with one program, such as those of three seeds.

A step of a small model is too little work for an accelerator. Here `jax.vmap` maps the step over N runs: each array of
their states and batches has the axis N. Each run has its own folder, with the metrics and checkpoints of `fit`, and the
same numbers except for rounding. Times are those of all runs together.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.custom_batching import custom_vmap
from rich.console import Console

from jaxnlp.ops.compiler_options import jit, jit_for
from jaxnlp.saving.serialization import ConfigError, differences, to_json
from jaxnlp.typing import Array, Batch, Params, PyTree
from train.compare import flat_fields
from train.compile_ahead import AheadCompiler
from train.config import TrainConfig, update
from train.evaluation.validation import Validation
from train.logs.log import RunLog
from train.loop import open_log, report_at_end
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
from train.run.progress import NonFiniteError, RunProgress, all_finite
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
      run: its progress; its state is current only at an evaluation or a checkpoint.
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


class Ending(NamedTuple):
    """How runs ended.

    Attributes:
      stopped_by: the name of the signal that stopped them; None = no signal.
      failed: the error of each failed run, by folder; other runs continue.
    """

    stopped_by: str | None
    failed: dict[Path, str]


def fit_at_once(
    configs: Sequence[TrainConfig], workdirs: Sequence[Path], commands: Sequence[str | None], console: Console
) -> Ending:
    """Trains runs from step 0, or from their latest checkpoints, to `total_steps`, on one device.

    Args:
      configs: of N runs, which differ only in seeds and in numbers of the optimizer.
      workdirs: the folder of each.
      commands: the command line to train each separately, for the records.
      console: prints the progress.

    Raises:
      ConfigError: as `check_alike`.
      RunMismatchError: when the latest checkpoints are of different steps; other errors as `train.loop.fit`.
      NonFiniteError: when all runs have failed.
    """
    layout = make_parallel("jit", jax.local_devices()[:1])
    device = layout.replicated.mesh.devices.flat[0]
    with contextlib.ExitStack() as contexts:
        for workdir in workdirs:
            contexts.enter_context(locked(workdir))
        stop, ahead = contexts.enter_context(StopSignal()), contexts.enter_context(AheadCompiler())
        members = _members(configs, workdirs, commands, layout, ahead, contexts)
        first, config, step = members[0], members[0].setup.config, members[0].run.step
        no_gain = ["on a CPU that takes about as long as one by one"] if device.platform == "cpu" else []
        lines = announcement(first.setup, layout, step=step)
        print_lines(console, [f"{len(members)} runs at once", *no_gain, *lines])
        program = jit_for(device, step_of_all([member.setup for member in members]), donate_argnums=0)
        states, failed = _taken(members), dict[Path, str]()
        while step < config.total_steps:
            batches = [layout.put_batch(next(member.batches), config.accumulation_steps) for member in members]
            states, outputs = program(states, batches)
            step += 1
            for member, output in zip(members, outputs, strict=True):
                member.run.step = step
                if member.workdir not in failed:  # nothing would empty the log of a failed run
                    member.log.collect(output.metrics)
            stopped = stop.stops_at(step)
            due = first.run.due(config, stopped=stopped)
            if due.log:
                finite = jax.device_get(_finite(states))
                for member, output, ok in zip(members, outputs, finite, strict=True):
                    if member.workdir not in failed and (problem := _log(member, output, ok)):
                        failed[member.workdir] = str(problem)
                        print_lines(console, [f"{member.workdir.name} failed: {problem}"])
                        if len(failed) == len(members):
                            raise problem
            going = [(index, member) for index, member in enumerate(members) if member.workdir not in failed]
            if due.save:  # also after each evaluation
                with _paused(members):
                    for index, member in going:
                        member.run.state = _row(states, index)
                        _evaluate_and_save(member, layout, evaluate=due.evaluate)
                        states = _with_row(states, index, member.run.state)
                        member.run.state = first.setup.abstract_state  # only one copy stays in memory
            if due.evaluate:
                best = config.best_metric
                sign = 1.0 if first.setup.metrics[best].better == "higher" else -1.0
                values = "  ".join(f"{sign * member.run.scores[-1]:.4f}" for _, member in going)
                print_lines(console, [f"step {step}/{config.total_steps}  validation {best}  {values}"])
            if stopped and step < config.total_steps:
                return Ending(stop.received, failed)
    return Ending(None, failed)


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
            raise ConfigError("the data or the tokenizers of the runs differ; train them one by one")
        apart = _numbers_apart(first.config.optimizer, setup.config.optimizer)
        if apart or _shapes(setup.abstract_state) != _shapes(first.abstract_state):
            what = f"differ in {', '.join(apart)}" if apart else "keep different arrays"
            raise ConfigError(f"the optimizers {what}; vary only their numbers, none of them to or from 0")


def each_its_own(
    optimizers: Sequence[optax.GradientTransformationExtraArgs],
) -> optax.GradientTransformationExtraArgs:
    """An optimizer for `jax.vmap`, which updates each of N runs by its own optimizer."""

    @custom_vmap
    def update(updates: PyTree, state: PyTree, params: Params, progress: Array) -> Any:
        return optimizers[0].update(updates, state, params, progress=progress)

    @update.def_vmap
    def of_all(_: int, mapped: Sequence[Any], *arguments: Any) -> Any:
        results = []
        for index, optimizer in enumerate(optimizers):
            own = jax.tree.map(lambda x, has, index=index: x[index] if has else x, arguments, tuple(mapped))
            updates, state, params, progress = own
            results.append(optimizer.update(updates, state, params, progress=progress))
        outputs = stacked(results)
        return outputs, jax.tree.map(lambda _: True, outputs)

    def with_progress(updates: PyTree, state: PyTree, params: Params | None = None, *, progress: Array) -> Any:
        return update(updates, state, params, progress)

    return optax.GradientTransformationExtraArgs(optimizers[0].init, with_progress)


def _set_up(config: TrainConfig, workdir: Path) -> Setup:
    config = for_device(config, jax.devices()[0], workdir)
    config = check_folder(workdir, config)
    compute = config.model.compute.without_unmapped_kernels
    return set_up(begin(update(config, **{"model.compute": compute}), workdir))


def _members(
    configs: Sequence[TrainConfig],
    workdirs: Sequence[Path],
    commands: Sequence[str | None],
    layout: Parallel,
    ahead: AheadCompiler,
    contexts: contextlib.ExitStack,
) -> list[Member]:
    """The runs, at their latest checkpoints, with shared programs for evaluation."""
    setups = [_set_up(config, workdir) for config, workdir in zip(configs, workdirs, strict=True)]
    check_alike(setups)
    require_memory(setups[0], len(setups))
    found, first, kept = [], setups[0], dict[Any, Any]()
    for setup, workdir in zip(setups, workdirs, strict=True):
        batches = iter(setup.corpus.train)
        checkpoints = contexts.enter_context(Checkpoints(workdir, keep=setup.config.keep_checkpoints))
        found.append((batches, checkpoints, checkpoints.resume(setup, layout, batches)))
    steps = [run.step for *_, run in found]
    if len(set(steps)) > 1:
        trained = ", ".join(f"{workdir} to step {step}" for workdir, step in zip(workdirs, steps, strict=True))
        raise RunMismatchError(f"the runs have trained {trained}; repeat the command without --at-once")
    members = []
    for setup, workdir, command, parts in zip(setups, workdirs, commands, found, strict=True):
        batches, checkpoints, run = parts
        run_folder.create(workdir, setup.spec, setup.begun.typed_model)
        facts = setup.facts | {run_folder.AT_ONCE: len(setups)}
        run_folder.write_environment(workdir, parallel="jit", mesh=None, command=command, **facts)
        quiet = Console(quiet=True, force_terminal=False)
        contexts.enter_context(report_at_end(workdir, quiet))
        log = contexts.enter_context(open_log(workdir, quiet, setup, run))
        corpus = dataclasses.replace(setup.corpus, processor=first.corpus.processor)
        shared = setup._replace(given={}, corpus=corpus, model=first.model, objective=first.objective)
        validate = Validation(shared, layout, workdir, ahead, kept)
        members.append(Member(workdir, shared, batches, checkpoints, run, log, validate))
    return members


def _taken(members: Sequence[Member]) -> TrainState:
    """The stacked states of the runs, which keep none."""
    states = stacked([member.run.state for member in members])
    for member in members:
        member.run.state = member.setup.abstract_state
    return states


def step_of_all(setups: Sequence[Setup]) -> Any:
    """(stacked states, the batch of each run) -> (stacked states, the output of each run)."""
    step, equal = setups[0].step, len({setup.config.optimizer for setup in setups}) == 1
    options = {} if equal else {"optimizer": each_its_own([setup.optimizer for setup in setups])}

    def step_all(states: TrainState, batches: Sequence[Batch]) -> tuple[TrainState, list[StepOutput]]:
        states, outputs = jax.vmap(lambda state, batch: step(state, batch, **options))(states, stacked(batches))
        return states, [_of_run(outputs, index) for index in range(len(batches))]

    return step_all


def _log(member: Member, output: StepOutput, finite: Array) -> NonFiniteError | None:
    """Logs a step of a run. Returns: the error if its results are not finite."""
    step, last_good = member.run.step, member.checkpoints.latest_step()
    member.log.log_train(step, learning_rate=output.learning_rate, skipped_updates=output.skipped_updates)
    config = member.setup.config
    try:
        member.run.check_finite(output, config, step, finite, last_good=last_good, workdir=member.workdir)
    except NonFiniteError as error:
        return error
    return None


def _evaluate_and_save(member: Member, layout: Parallel, *, evaluate: bool) -> None:
    """Evaluates and saves a run; an evaluation may change its state."""
    score = member.validate(member.run.step, member.run.state, member.log) if evaluate else None
    if score is not None:
        member.run.evaluated(score, member.setup.config, layout)
    member.run.train_seconds = member.log.train_seconds
    member.checkpoints.save(member.run.state, member.setup.spec, member.run, score, member.batches.get_state())


@contextlib.contextmanager
def _paused(members: Sequence[Member]) -> Iterator[None]:
    with contextlib.ExitStack() as paused:
        for member in members:
            paused.enter_context(member.log.paused())
        yield


def _numbers_apart(one: Any, other: Any) -> list[str]:
    """The fields of two configs that differ in other values than numbers."""
    ours, theirs = (flat_fields(to_json(config)) for config in (one, other))
    names = [name for name in dict.fromkeys((*ours, *theirs)) if ours.get(name) != theirs.get(name)]
    numbers = [name for name in names if all(type(x.get(name)) in (int, float) for x in (ours, theirs))]
    return [name for name in names if name not in numbers]


def _shapes(state: TrainState) -> PyTree:
    return jax.tree.map(lambda x: (x.shape, x.dtype), state)


def _of_run(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def stacked(trees: Sequence[Any]) -> Any:
    """N trees of equal structure as one, whose arrays have the axis N first."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def _put(states: Any, index: Any, state: Any) -> Any:
    return jax.tree.map(lambda all_, own: all_.at[index].set(own), states, state)


_row = jit(_of_run)
_with_row = jit(_put, donate_argnums=0)
_finite = jit(jax.vmap(lambda state: all_finite((state.params, state.ema))))
