"""The objects of a run before its first step: data, model, objective, optimizer, and the initial state."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxnlp.cli.suggestions import suggestion
from jaxnlp.convert import rows_of_last_tokens
from jaxnlp.corpus import Corpus, DataError
from jaxnlp.metric_kind import DECLARED
from jaxnlp.saving.checkpoint_reading import RunError
from jaxnlp.saving.serialization import ConfigError, processor_to_json, to_json
from jaxnlp.tasks import MetricKind, Objective
from jaxnlp.typing import Params
from train.config import TrainConfig
from train.optimizer.chain import make_optimizer
from train.optimizer.partial import without_gradients
from train.run.folder import RunSpec
from train.run.init_from import Initialisation
from train.step import StepOutput, TrainState, init_state, train_step


class Setup(NamedTuple):
    """The objects of a run before its first step.

    Attributes:
      begun: the result of `begin`, without its parameters.
      corpus: the data.
      spec: the facts that must not change on resume.
      model: the Linen module.
      objective: the loss.
      metrics: the declared metrics of training and validation.
      optimizer: of the step.
      step: (state, batch) -> (state, output), pure.
      initial_state: given parameters -> the state before the first step; jit it.
      given: the parameters that are not initialised at random.
      abstract_state: the shapes and types of the state.
    """

    begun: Initialisation
    corpus: Corpus
    spec: RunSpec
    model: Any
    objective: Objective
    metrics: dict[str, MetricKind]
    optimizer: optax.GradientTransformationExtraArgs
    step: Callable[..., tuple[TrainState, StepOutput]]
    initial_state: Callable[[Params], TrainState]
    given: Params
    abstract_state: TrainState

    @property
    def config(self) -> TrainConfig:
        """The config of the run, with the shape of a pretrained model."""
        return self.begun.config

    @property
    def num_parameters(self) -> int:
        """Number of values of all parameters, including frozen ones."""
        return sum(x.size for x in jax.tree.leaves(self.abstract_state.params))

    @property
    def facts(self) -> dict[str, Any]:
        """The entries of environment.json about the model and the metrics."""
        return {
            "parameters": self.num_parameters,
            "pretrained": self.begun.digest,
            "compute": self.spec.config["model"]["compute"],
            "types": self.config.model.compute.types,
            "metrics": {
                name: {field: getattr(kind, field) for field in DECLARED} for name, kind in self.metrics.items()
            },
            "progress": self.objective.progress,
            "best_metric": self.config.best_metric,
        }


def set_up(begun: Initialisation, *, devices: int = 1) -> Setup:
    """Loads the data, and makes model, objective and optimizer. Nothing is computed on a device.

    Args:
      begun: the result of `begin`.
      devices: number of devices that share a batch.

    Raises:
      ConfigError: the number of devices does not divide the rows of batches with a carried state; gradients of such
        batches, or of an objective that is not a mean, are accumulated; validation does not measure the best metric.
      DataError: there is too little data, or its vocabulary is not that of the run in `init_from`.
    """
    config, task = begun.config, begun.config.task
    corpus = config.data.load(config.seed, begun.processor).with_workers(config.data.num_workers)
    validation = corpus.split("validation")
    metrics = dict(task.metrics(corpus.processor, validation))
    names = sorted(name for name, kind in metrics.items() if not kind.training_only)
    if config.best_metric not in names:
        whole = [name for name in metrics if name in names and name != "loss" and "/" not in name]  # not of one part
        raise ConfigError(
            f"best_metric must be one of {', '.join(names)}, got {config.best_metric!r}; set --best-metric "
            f"{next(iter(whole), 'loss')}"
        )
    try:
        config.model.check(corpus.processor)
        model, inputs = config.model.build(corpus.processor), config.model.inputs(corpus.processor)
        given = {} if begun.continues else config.model.initial_params(corpus)  # its files may have been deleted
    except ConfigError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error
    task.check_corpus(config.model, corpus)
    objective = task.objective(model, corpus)
    if config.optimizer.frozen:
        objective = without_gradients(objective, config.optimizer.freezes)
    for use, name in (("it orders checkpoints", "loss"), ("its objective counts progress by it", objective.progress)):
        if name not in metrics:
            raise ConfigError(
                f"{type(task).__name__}.metrics must declare {name!r}, since {use}; it declares {', '.join(metrics)}"
            )
    if not objective.is_mean and config.accumulation_steps > 1:
        raise ConfigError(
            f"the objective of {type(task).__name__} is not a mean over one count, so gradients of its parts cannot be "
            f"accumulated: set accumulation_steps to 1, got {config.accumulation_steps}"
        )
    rows = config.data.batch_size
    stateful = config.data.stateful and bool(jax.tree.leaves(jax.eval_shape(lambda: objective.empty_carry(rows))))
    if stateful and rows % devices:
        raise ConfigError(f"rows carry state, so {devices} devices must divide data.batch_size, {rows}")
    if stateful and config.accumulation_steps > 1:
        raise ConfigError(
            f"rows carry state from batch to batch, so accumulation_steps must be 1, got {config.accumulation_steps}"
        )
    tokens = len(config.init_new_tokens)
    new_rows = rows_of_last_tokens(config.model, corpus.processor, tokens) if tokens else lambda path: None
    optimizer = make_optimizer(
        config.optimizer,
        total_steps=config.total_steps,
        parameter=config.model.parameter,
        frozen=config.model.frozen,
        rows=new_rows,
        seed=config.seed,
    )
    step = functools.partial(
        train_step,
        objective=objective,
        optimizer=optimizer,
        ema_decay=config.ema_decay,
        accumulation_steps=config.accumulation_steps,
    )
    init_key, state_key = jax.random.split(jax.random.key(config.seed))

    def initial_state(given: Params) -> TrainState:
        zeros = [jnp.zeros(x.shape, x.dtype) for x in inputs]
        return init_state(
            merge(model.init(init_key, *zeros)["params"], given),
            optimizer,
            state_key,
            ema=config.ema_decay is not None,
            mean=config.nt_asgd_patience is not None,
            carry=objective.empty_carry(rows) if stateful else (),
        )

    # Pretrained parameters replace those of the model, such as word vectors.
    given = overlay(given, begun.params)
    if begun.matching_heads is not None:
        given = overlay(given, begun.matching_heads(corpus.processor))
    spec = RunSpec(
        to_json(config),
        config.identity(),
        processor_to_json(corpus.processor),
        corpus.description,
        corpus.fingerprint,
    )
    abstract_state = jax.eval_shape(initial_state, given)
    _check_frozen(config, abstract_state.params, given if begun.digest is not None else None)
    begun = begun._replace(params={}, matching_heads=None)  # only `given` has them
    return Setup(begun, corpus, spec, model, objective, metrics, optimizer, step, initial_state, given, abstract_state)


def _check_frozen(config: TrainConfig, params: Params, given: Params | None) -> None:
    """Checks the names in `optimizer.frozen`.

    Args: given: the parameters that are not initialised at random; None = no pretrained weights are read.

    Raises: ConfigError for an unknown name, when no parameter is trained, and for frozen parameters that the pretrained
    weights lack.
    """
    paths, freezes = list(flatten_dict(params)), config.optimizer.freezes
    for name in config.optimizer.frozen:
        if not any(name in path for path in paths):
            known = dict.fromkeys(part for path in paths for part in path)
            raise ConfigError(
                f"optimizer.frozen: the model has no parameter or module {name!r}; {suggestion(name, known)}"
            )
    frozen = [path for path in paths if freezes(path) and not config.model.frozen(path)]
    if frozen and all(freezes(path) or config.model.frozen(path) for path in paths):
        raise ConfigError(f"optimizer.frozen {' '.join(config.optimizer.frozen)} leaves no parameter to train")
    missing = [] if given is None else [path for path in frozen if path not in flatten_dict(given)]
    if missing:
        raise ConfigError(
            f"optimizer.frozen keeps {'/'.join(missing[0])}, which {config.init_from} does not have: its values would "
            "stay random; freeze other parts, or change the model so that it does not need it"
        )


def merge(params: Params, given: Params) -> Params:
    """The parameters, some replaced by given ones at the same paths.

    Raises: RunError naming a given parameter that is unknown to the model, or has another shape.
    """
    ours, theirs = flatten_dict(params), flatten_dict(given)
    for path, value in theirs.items():
        name = "/".join(path)
        if path not in ours:
            raise RunError(f"a value is given for the parameter {name}, which the model does not have")
        if ours[path].shape != value.shape:
            raise RunError(
                f"the parameter {name} has the shape {tuple(ours[path].shape)}, but its given value has {value.shape}"
            )
    return unflatten_dict(ours | theirs)


def overlay(params: Params, newer: Params) -> Params:
    """The parameters of both trees, the newer one's if both have one."""
    return unflatten_dict(flatten_dict(params) | flatten_dict(newer))
