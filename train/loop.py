"""The training loop: `fit`, from a config to a finished run's folder."""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from rich.console import Console

from data import Corpus, DataError, Question
from jaxnlp.decoding.answer import answer
from jaxnlp.decoding.generate import Decoder
from jaxnlp.models import ModelConfig
from jaxnlp.runs import RunError, checkpoint_steps, load_run, make_decoder
from jaxnlp.serialization import ConfigError, differences, to_json
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.vocabulary import Vocabulary
from jaxnlp.text.words import WordVocabulary
from jaxnlp.typing import Metrics, Params
from train import answers, folder, labelled, words
from train.checkpoint import Checkpoints
from train.config import TrainConfig
from train.evaluation import compile_evaluation, evaluate, exact_match, sample_text
from train.log import RunLog
from train.objectives import COUNTED, OBJECTIVES, CarryingLoss, LossFunction, carrying
from train.optimizer import Schedule, current_learning_rate, make_optimizer, make_schedule
from train.parallel import Parallel, ParallelMode, make_parallel
from train.pretrained import Beginning, beginning, given_shape, load_data
from train.report import write_report
from train.signals import StopSignal
from train.step import TrainState, all_finite, init_state, train_step


class NonFiniteError(ArithmeticError):
    """The loss, its gradient or the parameters became NaN or infinite."""


MAY_CHANGE = (
    "dropout_rate",
    "compute.scan_layers",
    "compute.remat",
    "dtype",
    "compute.attention",
    "compute.recurrence",
    "freeze_encoder",
    "pretrained",
    "pretrained_ignore",
)
"""Endings of a model's fields that may differ between a run and the one it begins with: the function stays."""


class Setup(NamedTuple):
    """What a config alone decides, before the first step; `config` itself with a pretrained model's shape in it."""

    config: TrainConfig
    corpus: Corpus
    model: Any
    loss_fn: LossFunction | CarryingLoss
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
    command: str | None = None,
) -> Outcome:
    """Trains until the config's last step, from the folder's newest checkpoint on.

    Args:
      config: what to train.
      workdir: the run's folder, new or of the same config.
      parallel: how devices share a batch; may differ from start to start.
      console: where progress goes.
      started: `time.time()` when the process started, to tell how long the first step took to come.
      command: what was typed, for the record.

    Raises:
      RunMismatchError: when the folder holds another run.
      DataError: when the data does not suffice, or the sample's prompt cannot be spelt in it.
      ConfigError, RunError: as `set_up`.
      NonFiniteError: on a non-finite loss or gradient, unless the config skips such updates; and on parameters that
        are not finite when they are logged or saved.
      DamagedCheckpointError: when there are checkpoints and none can be read.
    """
    workdir, console = Path(workdir), console or Console()
    begun = beginning(config, workdir)
    config = begun.config
    folder.check(workdir, config)
    # A run that continues no longer needs the one that it began with.
    begins = not checkpoint_steps(workdir)
    setup = set_up(config, begun, initialise=begins)
    _check_prompt(config, setup.corpus)
    _check_best_by(config, setup.corpus)
    folder.claim(workdir, config, setup.corpus)
    layout = make_parallel(parallel)
    parameters = count_parameters(setup.state)
    for line in (setup.corpus.description, given_shape(config), _never_averaging(config)):
        if line is not None:
            console.print(line, highlight=False)
    console.print(f"{parameters:,} parameters, {jax.local_device_count()} x {folder.device_name()}", highlight=False)
    step_fn = layout.compile_train(step_function(config, setup))
    evaluator = _Evaluator(config, setup, layout, workdir)
    batches = iter(setup.corpus.train)

    with (
        StopSignal() as stop,
        _report_at_end(workdir),
        Checkpoints(workdir, keep=config.keep_checkpoints) as checkpoints,
    ):
        state, train_seconds = setup.state, 0.0
        errors: list[float] = []
        restored = checkpoints.restore_latest(state)
        if restored is not None:
            folder.refuse_change(
                folder.with_defaults(restored.config), to_json(config), f"{workdir} has checkpoints of another config"
            )
            state, train_seconds, errors = restored.state, restored.train_seconds, restored.validation_errors
            batches.set_state(restored.data_state)
        elif not begins:  # checkpoints were there, and all of them have been set aside
            state = set_up(config, beginning(config)).state
        first, total = int(state.step) + 1, config.total_steps
        if restored is not None:
            how = "continuing from" if first <= total else "the run is finished, at"
            console.print(f"{how} step {first - 1} of {total}", highlight=False)
        if first <= total:
            folder.write_environment(
                workdir,
                parameters=parameters,
                parallel=parallel,
                command=command,
                pretrained=None if config.init_from is not None else begun.digest,
            )
        state = layout.replicate(state)

        with RunLog(
            workdir,
            console,
            total_steps=total,
            first_step=first - 1,
            train_seconds=train_seconds,
            unit=COUNTED.get(config.objective, "tokens"),
        ) as log:
            for step in range(first, total + 1):
                state, metrics = step_fn(state, layout.put_batch(next(batches), config.accumulation_steps))
                log.collect(metrics)
                if step == first and started is not None:
                    jax.block_until_ready(metrics)
                    folder.note(workdir, seconds_to_first_step=round(time.time() - started, 2))

                last = step == total or stop.received is not None
                evaluation_due = step == total or step % config.evaluate_every_steps == 0
                saving_due = last or evaluation_due or step % config.checkpoint_every_steps == 0
                if saving_due or step % config.log_every_steps == 0:
                    here = layout.fetch(state)
                    rate = current_learning_rate(here.opt_state)
                    log.log_train(step, learning_rate=rate, skipped_updates=here.skipped_updates)
                    if config.nonfinite == "stop":
                        _check_finite(here, checkpoints, workdir)
                    _check_parameters(here, checkpoints, workdir)
                if saving_due:
                    with log.paused():
                        error = None
                        if evaluation_due:
                            error = evaluator(step, state, log)
                            errors.append(error)
                            state = _begin_average(state, errors, config, layout)
                        checkpoints.save(
                            layout.fetch(state),
                            data_state=batches.get_state(),
                            config=to_json(config),
                            train_seconds=log.train_seconds,
                            validation_error=error,
                            validation_errors=errors,
                        )
                if last:
                    break
    return Outcome(layout.fetch(state), stop.received)


def set_up(
    config: TrainConfig, begun: Beginning | None = None, *, schedule: Schedule | None = None, initialise: bool = True
) -> Setup:
    """Data, model, objective, optimizer and initial state.

    Args:
      config: what to train.
      begun: what `beginning` made of the config; None = look for it.
      schedule: replaces the config's.
      initialise: take the parameters that the config begins with from their run; otherwise all are random.

    Raises:
      ConfigError: when devices do not divide the rows of a batch, and these carry their state; or the data does not
        count its tokens, and they are to be sampled or begun with.
      DataError: when the data does not suffice, or is spelt otherwise than that of the run to begin with.
      RunError, DamagedCheckpointError: when there is no such run, or no such pretrained model, it cannot be read, or is
        another.
    """
    begun = begun or beginning(config)
    config = begun.config
    devices = jax.local_device_count()
    carries = config.objective == "next_token_carried" and config.data.carries
    if carries and config.data.batch_size % devices:
        raise ConfigError(
            f"each of {devices} devices carries the state of its own rows: they must divide data.batch_size, "
            f"{config.data.batch_size}"
        )
    corpus = load_data(config, begun.vocabulary)
    _check_counts(config, corpus)
    model = config.model.build(corpus.vocabulary.size)
    optimizer = make_optimizer(
        config.optimizer,
        schedule or make_schedule(config.optimizer, total_steps=config.total_steps),
        parameter=config.model.parameter,
        frozen=config.model.frozen,
    )
    loss_fn = OBJECTIVES[config.objective](model, config.loss, corpus.token_counts)
    init_key, state_key = jax.random.split(jax.random.key(config.seed))

    @jax.jit
    def initial_state(given: Params) -> TrainState:
        return init_state(
            _overlaid(model.init(init_key, jnp.zeros((1, 1), jnp.int32))["params"], given),
            optimizer,
            state_key,
            ema=config.ema_decay is not None,
            mean=config.average_after_stall is not None,
            carry=carrying(loss_fn).empty(config.data.batch_size) if carries else (),
        )

    given = begun.params
    if initialise and config.init_from is not None:
        given = _params_of(Path(config.init_from), model, corpus.vocabulary)
        config.data.check_after(folder.read_config(Path(config.init_from)).data)
    elif config.loss.init_bias_from_unigram:
        given = model.unigram_bias(corpus.token_counts)
    return Setup(config, corpus, model, loss_fn, optimizer, initial_state(given))


def _overlaid(params: Params, given: Params) -> Params:
    """The parameters, with those that are given in their places."""
    return unflatten_dict(flatten_dict(params) | flatten_dict(given))


def _check_counts(config: TrainConfig, corpus: Corpus) -> None:
    sampled = config.loss.sampled_tokens is not None
    if corpus.token_counts is None and (sampled or config.loss.init_bias_from_unigram):
        name = "loss.sampled_tokens" if sampled else "loss.init_bias_from_unigram"
        raise ConfigError(f"{name} needs a data set that counts its tokens; this one does not")


def _check_best_by(config: TrainConfig, corpus: Corpus) -> None:
    split = corpus.split("validation")
    if config.best_by == "exact_match" and not split.questions:
        raise DataError("--best-by exact_match needs a data set with questions; this one has none: use loss")
    if config.best_by == "mean_score" and not split.labelled:
        raise DataError("--best-by mean_score needs a data set of text tasks; this one is none: use loss")


def _params_of(folder_of_run: Path, model: Any, vocabulary: Vocabulary) -> Params:
    """The newest parameters of a run, for a model and a vocabulary that must be the same."""
    run = load_run(folder_of_run, checkpoint="latest")
    if run.vocabulary != vocabulary:
        raise DataError(
            f"--init-from {folder_of_run}: its vocabulary of {run.vocabulary.size} tokens is not this data's of "
            f"{vocabulary.size}; begin with a run on the same data"
        )
    changed = other_function(run.model.config, model.config)
    if changed:
        lines = "".join(f"\n  model.{line}" for line in changed)
        raise RunError(
            f"--init-from {folder_of_run} is a run of another model; give --model fields like its own:{lines}"
        )
    return run.params


def other_function(theirs: ModelConfig, ours: ModelConfig) -> list[str]:
    """In what two configs differ, one a line, that makes other functions of the same parameters."""
    found = differences(to_json(theirs), to_json(ours))
    return [line for line in found if not line.partition(":")[0].endswith(MAY_CHANGE)]


def step_function(config: TrainConfig, setup: Setup) -> Callable[..., tuple[TrainState, Metrics]]:
    """The pure step of (state, batch), everything else closed over."""
    return functools.partial(
        train_step,
        loss_fn=setup.loss_fn,
        optimizer=setup.optimizer,
        ema_decay=config.ema_decay,
        accumulation_steps=config.accumulation_steps,
        gradient_surgery=config.gradient_surgery,
    )


class _Evaluator:
    """Scores the validation split, draws a sample and brings the report up to date; compiles each step once."""

    def __init__(self, config: TrainConfig, setup: Setup, layout: Parallel, workdir: Path):
        self._config = config
        self._workdir = workdir
        self._corpus = setup.corpus
        self._layout = layout
        self._step = compile_evaluation(setup.loss_fn, layout)
        self._model = setup.model

    @functools.cached_property
    def _decoder(self) -> Decoder:
        return make_decoder(self._model)

    def __call__(self, step: int, state: TrainState, log: RunLog) -> float:
        """Logs what it finds. Returns: the error that the best checkpoint has least of."""
        params = state.evaluation_params
        split = self._corpus.split("validation")
        scores, _ = evaluate(self._step, params, split.batches, self._layout)
        if split.questions:
            scores["exact_match"] = self._answer(step, self._layout.fetch(params), split.questions)
        if split.labelled:
            scores |= labelled.loss_over_tasks(scores, self._config)
            scores |= labelled.likeness(self._model, self._layout.fetch(params), split.labelled)
            scores["mean_score"] = labelled.mean_score(scores, [rows.task for rows in split.labelled])
        log.log_evaluation(step, "validation", scores)
        prompt = self._config.sample_prompt
        if prompt is not None:
            text = sample_text(
                self._decoder,
                self._layout.fetch(params),
                self._corpus.vocabulary,
                prompt,
                length=self._config.sample_length_tokens,
                seed=self._config.seed,
            )
            log.log_sample(step, prompt, text)
        self._describe_words(step, params)
        write_report(self._workdir)
        if self._config.best_by != "loss":
            # Among equal shares, of which few questions make many, the lower loss is the better.
            return 1.0 - scores[self._config.best_by] + 1e-6 * scores["loss"]
        return scores["loss"]

    def _answer(self, step: int, params: Params, questions: Sequence[Question]) -> float:
        """Keeps the answers for the report. Returns: the share that is right."""
        vocabulary = self._corpus.vocabulary
        given = answer(self._decoder, params, vocabulary, [question.text for question in questions])
        training = self._corpus.split("train").questions
        description = answers.describe(self._model, params, vocabulary, questions, given, training)
        folder.write_json(self._workdir / folder.ANSWERS_FILE, {"step": step} | description)
        return exact_match(given, questions)

    def _describe_words(self, step: int, params: Params) -> None:
        """Keeps for the report what a model of words has learnt about them."""
        vocabulary = self._corpus.vocabulary
        if not isinstance(vocabulary, WordVocabulary) or not hasattr(self._model, "embeddings"):
            return
        splits = {"training": self._corpus.split("train"), "validation": self._corpus.split("validation")}
        description = words.describe(self._model, self._layout.fetch(params), vocabulary, **splits)
        folder.write_json(self._workdir / folder.WORDS_FILE, {"step": step} | description)


def _begin_average(state: TrainState, errors: Sequence[float], config: TrainConfig, layout: Parallel) -> TrainState:
    """Where the validation error has stalled, and no mean of the parameters is begun: with these ones as its first."""
    if config.average_after_stall is None or np.any(state.averaged):
        return state
    if not _has_stalled(errors, config.average_after_stall):
        return state
    return dataclasses.replace(state, averaged=layout.replicate(jnp.int32(1)))


def _has_stalled(errors: Sequence[float], patience: int) -> bool:
    """Whether the newest validation error is above the least of those more than `patience` evaluations before it.

    Source: Merity et al. 2018, algorithm 1.
    """
    older = errors[: max(0, len(errors) - 1 - patience)]
    return len(older) > 0 and errors[-1] > min(older)


def _never_averaging(config: TrainConfig) -> str | None:
    """What to tell whoever asks for an average that cannot begin."""
    evaluations = -(-config.total_steps // config.evaluate_every_steps)
    if config.average_after_stall is None or evaluations >= config.average_after_stall + 2:
        return None
    return (
        f"averaging cannot begin: it takes {config.average_after_stall + 2} evaluations, and the run has "
        f"{evaluations}; evaluate more often, or lower --average-after-stall"
    )


def count_parameters(state: TrainState) -> int:
    """Number of values, frozen ones too."""
    return sum(x.size for x in jax.tree.leaves(state.params))


def _check_finite(state: TrainState, checkpoints: Checkpoints, workdir: Path) -> None:
    """Raises NonFiniteError when an update was skipped; the parameters are still those before it."""
    if int(state.skipped_updates):
        raise NonFiniteError(
            f"the loss or its gradient was not finite at step {int(state.first_skipped_step)}; "
            f"{_remedy(checkpoints, workdir)}, or --nonfinite skip to go on without such updates"
        )


def _check_parameters(state: TrainState, checkpoints: Checkpoints, workdir: Path) -> None:
    """Raises NonFiniteError rather than save parameters that no step could mend: an update has overflowed."""
    if not all_finite((state.params, state.ema)):
        raise NonFiniteError(
            f"the parameters are not finite after step {int(state.step)}; {_remedy(checkpoints, workdir)}"
        )


def _remedy(checkpoints: Checkpoints, workdir: Path) -> str:
    latest = checkpoints.latest_step()
    good = "there is no checkpoint before it" if latest is None else f"the last good checkpoint is step {latest}"
    return (
        f"{good} in {workdir}. In a new --workdir, try a lower --optimizer.learning-rate or a smaller "
        f"--optimizer.max-grad-norm"
    )


def _check_prompt(config: TrainConfig, corpus: Corpus) -> None:
    """Raises DataError at once for a sample prompt that would fail at the first evaluation."""
    prompt = config.sample_prompt
    if prompt is None:
        return
    try:
        length = len(corpus.vocabulary.encode(prompt))
    except UnknownTokenError as error:
        raise DataError(f"--sample-prompt {prompt!r} cannot be spelt, give another or None: {error}") from error
    context = getattr(config.model, "context_length", None)
    if not length or (context is not None and length > context):
        wanted = "a token at least" if context is None else f"1 to {context} tokens"
        raise DataError(f"--sample-prompt needs {wanted}, got {length}; give another or None")


@contextlib.contextmanager
def _report_at_end(workdir: Path) -> Iterator[None]:
    """Writes the report however the run ends, once there is something to report."""

    def write() -> None:
        if (workdir / folder.METRICS_FILE).exists():
            write_report(workdir)

    try:
        yield
    except BaseException:
        try:
            write()
        except Exception as error:  # of whatever kind: it must not hide how the run ended
            logging.getLogger(__name__).warning("no report: %s", error)
        raise
    write()
