"""The training loop: `fit`, from a config to a finished run's folder."""

import functools
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console

from data import Corpus
from jaxnlp.runs import make_decoder
from jaxnlp.serialization import to_json
from train import folder
from train.checkpoint import Checkpoints
from train.config import TrainConfig
from train.evaluation import compile_evaluation, evaluate, sample_text
from train.log import RunLog
from train.objectives import OBJECTIVES, LossFunction
from train.optimizer import Schedule, current_learning_rate, make_optimizer, make_schedule
from train.parallel import ParallelMode, make_parallel
from train.report import write_report
from train.signals import StopSignal
from train.step import TrainState, init_state, train_step


class NonFiniteError(ArithmeticError):
    """The loss or its gradient became NaN or infinite."""


class Setup(NamedTuple):
    """What a config alone decides, before the first step."""

    corpus: Corpus
    model: Any
    loss_fn: LossFunction
    optimizer: Any
    state: TrainState


class Outcome(NamedTuple):
    """How a call of `fit` ended: the last state, and the signal that stopped it early, if any."""

    state: TrainState
    stopped_by: str | None


def fit(
    config: TrainConfig,
    workdir: str | Path,
    *,
    parallel: ParallelMode = "jit",
    console: Console | None = None,
    started: float | None = None,
) -> Outcome:
    """Trains until the config's last step, from the folder's newest checkpoint on.

    Args:
      config: what to train.
      workdir: the run's folder, new or of the same config.
      parallel: how devices share a batch; may differ from start to start.
      console: where progress goes.
      started: `time.time()` when the process started, to tell how long the first step took to come.

    Raises:
      RunMismatchError: when the folder holds another run.
      NonFiniteError: on a non-finite loss or gradient, unless the config skips such updates.
      DamagedCheckpointError: when there are checkpoints and none can be read.
    """
    workdir, console = Path(workdir), console or Console()
    folder.check(workdir, config)
    corpus, model, loss_fn, optimizer, state = set_up(config)
    folder.claim(workdir, config, corpus)
    layout = make_parallel(parallel)
    environment = folder.write_environment(workdir, parameters=count_parameters(state), parallel=parallel)
    console.print(corpus.description, highlight=False)
    console.print(
        f"{environment['parameters']:,} parameters, {environment['devices']} x {environment['device']}", highlight=False
    )
    step_fn = layout.compile_train(
        functools.partial(
            train_step,
            loss_fn=loss_fn,
            optimizer=optimizer,
            ema_decay=config.ema_decay,
            accumulation_steps=config.accumulation_steps,
        )
    )
    eval_fn = compile_evaluation(loss_fn, layout)
    decoder = make_decoder(model)
    batches = iter(corpus.train)

    with Checkpoints(workdir, keep=config.keep_checkpoints) as checkpoints, StopSignal() as stop:
        restored = checkpoints.restore_latest(state)
        if restored is not None:
            state = restored.state
            batches.set_state(restored.data_state)
            console.print(f"continuing from step {int(state.step)} of {config.total_steps}", highlight=False)
        first = int(state.step)
        state = layout.put_state(state)

        with RunLog(
            workdir,
            console,
            total_steps=config.total_steps,
            first_step=first,
            train_seconds=restored.train_seconds if restored else 0.0,
        ) as log:
            for step in range(first + 1, config.total_steps + 1):
                state, metrics = step_fn(state, layout.put_batch(next(batches), config.accumulation_steps))
                log.collect(metrics)
                if step == first + 1 and started is not None:
                    jax.block_until_ready(metrics)
                    console.print(f"first step done {time.time() - started:.1f} s after the start", highlight=False)

                last = step == config.total_steps or stop.received is not None
                due_evaluation = step == config.total_steps or step % config.evaluate_every_steps == 0
                due_checkpoint = last or due_evaluation or step % config.checkpoint_every_steps == 0
                if due_checkpoint or step % config.log_every_steps == 0:
                    here = layout.fetch(state)
                    log.log_train(
                        step,
                        learning_rate=current_learning_rate(here.opt_state),
                        skipped_updates=here.skipped_updates,
                    )
                    if config.nonfinite == "stop":
                        _check_finite(here, checkpoints, workdir)
                if due_checkpoint:
                    with log.paused():
                        scores = None
                        if due_evaluation:
                            scores, _ = evaluate(eval_fn, state.evaluation_params, corpus.batches("validation"), layout)
                            log.log_evaluation(step, "validation", scores)
                        if due_evaluation and config.sample_prompt is not None:
                            text = sample_text(
                                decoder,
                                here.evaluation_params,
                                corpus.vocabulary,
                                config.sample_prompt,
                                length=config.sample_length_tokens,
                                seed=config.seed,
                            )
                            log.log_sample(step, config.sample_prompt, text)
                        checkpoints.save(
                            here,
                            data_state=batches.get_state(),
                            config=to_json(config),
                            train_seconds=log.train_seconds,
                            validation_loss=scores["loss"] if scores else None,
                        )
                if last:
                    break
    write_report(workdir)
    return Outcome(layout.fetch(state), stop.received)


def set_up(config: TrainConfig, *, schedule: Schedule | None = None) -> Setup:
    """Data, model, objective, optimizer and initial state; `schedule` replaces the config's."""
    corpus = config.data.load(config.seed)
    model = config.model.build(corpus.vocabulary.size)
    optimizer = make_optimizer(
        config.optimizer, schedule or make_schedule(config.optimizer, total_steps=config.total_steps)
    )
    init_key, state_key = jax.random.split(jax.random.key(config.seed))

    @jax.jit
    def initial_state() -> TrainState:
        params = model.init(init_key, jnp.zeros((1, 1), jnp.int32))["params"]
        return init_state(params, optimizer, state_key, ema=config.ema_decay is not None)

    return Setup(corpus, model, OBJECTIVES[config.objective](model), optimizer, initial_state())


def count_parameters(state: TrainState) -> int:
    """Number of trained values."""
    return sum(x.size for x in jax.tree.leaves(state.params))


def _check_finite(state: TrainState, checkpoints: Checkpoints, workdir: Path) -> None:
    """Raises NonFiniteError when an update was skipped; the parameters are still those before it."""
    if not int(state.skipped_updates):
        return
    latest = checkpoints.latest_step()
    good = "there is no checkpoint before it" if latest is None else f"the last good checkpoint is step {latest}"
    raise NonFiniteError(
        f"the loss or its gradient was not finite at step {int(state.first_skipped_step)}; {good} in {workdir}. "
        f"Try a lower --optimizer.learning-rate or a smaller --optimizer.clip-norm in a new --workdir, "
        f"or --nonfinite skip to go on without such updates"
    )
