"""The base of tasks: a model's training objective, evaluation and verbs. The core knows only this file.

A task turns a module into a loss (`objective`), and parameters into numbers, predictions and sections of the report
(`evaluators`). Its `commands` are the verbs of `jaxnlp VERB RUN`.
"""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import flax.linen as nn
import jax

from jaxnlp.config import Config
from jaxnlp.corpus import Corpus, DataConfig, Split
from jaxnlp.inference.arguments import plain_kinds, with_plain_kinds
from jaxnlp.inference.compilation import compilation_announced
from jaxnlp.inference.exportable import Exportable
from jaxnlp.metric_kind import MetricKind
from jaxnlp.models import ModelConfig
from jaxnlp.models.inference_params import Weights, inference_params
from jaxnlp.pages.content import Content
from jaxnlp.public_names import lazily
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree

T = TypeVar("T")


class Metric(NamedTuple):
    """A measured value, and the number of tokens or examples that it covers."""

    value: float
    count: int  # type: ignore[assignment]  # tuple has a method of this name


def no_carry(rows: int) -> PyTree:
    """The empty carry of stateless models."""
    del rows
    return ()


@dataclasses.dataclass(frozen=True)
class Objective:
    """The loss in training and evaluation.

    Attributes:
      loss: (params, batch, key, carry) -> (scalar, (metrics, carry)). Training minimises the scalar. The key is None in
        evaluation. The metrics are (sum, count) pairs by name. They include the `loss` without regularisers, and the
        scalar as `objective` if a regulariser makes it differ. Shards and accumulation parts are weighted by the count
        of `objective`, or of `loss` if there is no `objective`.
      progress: the metric whose count drives token schedules and throughput.
      is_mean: whether the scalar is a mean over its count. Then the gradient of a batch is the mean over its shards and
        accumulation parts. Otherwise gradients are not accumulated, and the scalars of the shards must add up to the
        scalar of the batch: a mean is a shard's sum divided by the count of all shards (`nn.shards.sum_over_shards`).
      empty_carry: number of rows -> the state of a recurrent model before its first batch. If it has leaves, gradients
        are not accumulated, and devices divide the rows.
      combine: ({part: gradients}, key) -> gradients, in joint training; None = their sum. Parts are sorted; part n has
        the key fold_in(key, n), combine has fold_in(key, number of parts).
    """

    loss: Callable[[Params, Batch, PRNGKey | None, PyTree], tuple[Array, tuple[Metrics, PyTree]]]
    progress: str = "loss"
    is_mean: bool = True
    empty_carry: Callable[[int], PyTree] = no_carry
    combine: Callable[[Mapping[str, PyTree], PRNGKey], PyTree] | None = None


def forward(model: Any, params: Params, key: PRNGKey | None, *inputs: Any, **options: Any) -> Any:
    """The outputs of a model. Args: key: of dropout; None = no dropout; options: further arguments of the model."""
    rngs = None if key is None else {"dropout": key}
    return model.apply({"params": params}, *inputs, deterministic=key is None, rngs=rngs, **options)


class Section(NamedTuple):
    """A section of the report page.

    Attributes:
      name: its heading; a later section of this name replaces it.
      content: one of `jaxnlp.pages.content`: Table, Lines, HeatMap, MarkedText or Picture.
      keep: whether the page shows the section of the latest step, or of all steps, as for samples.
    """

    name: str
    content: Content
    keep: Literal["latest", "all"] = "latest"


class Evaluation(NamedTuple):
    """The result of an evaluator.

    Attributes:
      metrics: declared by the task, or by the evaluator.
      predictions: the texts of prediction files, by file name.
      sections: for the report.
      remarks: further entries for the ledger.
      run_files: the texts of files that later commands read in the run's folder, by file name.
    """

    metrics: Mapping[str, Metric]
    predictions: Mapping[str, str] = {}
    sections: Sequence[Section] = ()
    remarks: Mapping[str, Any] = {}
    run_files: Mapping[str, str] = {}


class Method(NamedTuple):
    """A function of a task that its trained models have as a method.

    Attributes:
      function: its first argument is the trained model. `help(run.predict)` shows its docstring, which documents the
        other arguments.
      warm_up: compiles the function's programs ahead, see `Trained.warm_up`; None = it has none.
      offered: whether a module has the method. The function itself refuses other models.
    """

    function: Callable[..., Any]
    warm_up: Callable[..., None] | None = None
    offered: Callable[[Any], bool] = lambda model: True


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model: the result of `load_run` and `load_pretrained`, and the argument of every command and evaluator.

    Its task's functions are methods: `run.predict(["A gripping film."])`, `run.generate("ROMEO:")`. `dir(run)` lists
    them.

    Attributes:
      task: its task.
      model: the Linen module.
      params: its parameters: the moving average if the run has one.
      processor: turns raw inputs into arrays.
      name: of the recipe, or of the pretrained model.
      folder, step: of the run and its checkpoint; None = not a run.
      config: the run's whole config, as JSON.
      weights: precision of the weights of dense layers in its functions, see `rounded`.
    """

    task: "Task"
    model: nn.Module
    params: Params
    processor: Any
    name: str = ""
    folder: Path | None = None
    step: int | None = None
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    weights: Weights = "float32"

    def __getattr__(self, name: str) -> Any:
        """A function of the task as a method of this model."""
        if name.startswith("__") or name in self.__dataclass_fields__:  # a copy may not have its fields yet
            raise AttributeError(name)
        method = self.task.methods.get(name)  # a function that does not fit this model raises its own error
        if method is None:
            offered = ", ".join(self._methods)
            known = f"it has: {offered}" if offered else "it has no functions"
            raise AttributeError(f"a model of the task {type(self.task).__name__} has no {name!r}; {known}")
        return types.MethodType(compilation_announced()(with_plain_kinds(method.function)), self)

    @property
    def _methods(self) -> dict[str, Method]:
        return {name: method for name, method in self.task.methods.items() if method.offered(self.model)}

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._methods]

    def __repr__(self) -> str:
        count = sum(x.size for x in jax.tree.leaves(self.params))
        parts = [self.name, type(self.task).__name__, f"{type(self.model).__name__} of {count:,} parameters"]
        if self.step is not None:
            parts.append(f"step {self.step}")
        if self.weights != "float32":
            parts.append(self.weights)
        return f"Trained({', '.join(filter(None, parts))}; {', '.join(self._methods) or 'no functions'})"

    @functools.cached_property
    def inference_params(self) -> Params:
        """The parameters in the layout of inference: one array a block, rounded if asked.

        They are copies: after the first call, the blocks take twice the memory.
        """
        return inference_params(self.model, self.params, self.weights)

    def rounded(self, weights: Weights) -> "Trained":
        """The same model with fewer bits for each weight of its dense layers.

        Results differ slightly. Attention maps are those of the weights as trained, `params`.

        Args:
          weights: "bfloat16": 16 bits, faster on processors that support it; "int8": 8 bits, for faster generation on
            CPU; "float32": as trained.

        Raises: ValueError for other weights; for a model without Transformer blocks; for int8 and a model that does not
          generate; for bfloat16 on a CPU without instructions for it.
        """
        rounded = dataclasses.replace(self, weights=weights)
        _ = rounded.inference_params  # computed here, where an error belongs
        return rounded

    @compilation_announced()
    def warm_up(self, function: str | None = None, **options: Any) -> None:
        """Compiles the programs of the functions ahead, so that every later call answers at once.

        Args:
          function: its name, such as "predict"; None = all functions with programs to compile.
          options: of the function, such as num_beams; other values have other programs.

        Raises: ValueError for an unknown function, for one without programs to compile ahead, and for options without
        programs of their own.
        """
        known = {name: method.warm_up for name, method in self._methods.items() if method.warm_up is not None}
        if function is not None and function not in [*known]:  # a list is not hashable
            raise ValueError(f"function must be one of {', '.join(known) or 'none'}, got {function!r}")
        if options and function is None:
            raise ValueError(f"{', '.join(options)}: name the function that has these options")
        for name in known if function is None else (function,):
            signature = inspect.signature(known[name])
            _, *parameters = signature.parameters.values()
            allowed = [one.name for one in parameters if one.kind == one.KEYWORD_ONLY]
            if unknown := [one for one in options if one not in allowed]:
                raise ValueError(
                    f"warm_up of {name} takes {', '.join(allowed) or 'no options'}, got {', '.join(unknown)}"
                )
            known[name](self, **plain_kinds(signature, options))


class Scoring(Protocol):
    """The argument of evaluators. It hides devices, padding, processes and compilation."""

    @property
    def trained(self) -> Trained:
        """The model to score."""

    @property
    def split(self) -> Split:
        """The split to score it on."""

    @property
    def split_name(self) -> str:
        """The name of the split or of the file."""

    @property
    def training(self) -> Split | None:
        """The training examples; None if only a file is scored, without a corpus."""

    def sums(self) -> dict[str, Metric]:
        """The objective's metrics, exact over the whole split, without those of training only; {} without a split."""

    def outputs(self, function: Callable[[Params, Batch], PyTree], of: Trained | None = None) -> PyTree:
        """The results of a jitted `function` on all batches: one row an example, in the order of `split.examples`, on
        the host. Args: of: another model, whose parameters the function takes; None = the model to score."""

    def compile_sums(self) -> None:
        """Starts to compile the programs of `sums` in threads."""

    def compile_outputs(self, function: Callable[[Params, Batch], PyTree]) -> None:
        """Starts to compile the programs of this function's `outputs` in threads."""

    def compile(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Starts to compile a jitted function of `whole_params` in a thread, for arrays of these shapes, perhaps
        abstract. Returns: its abstract results."""

    def fold(
        self, step: Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]], empty: Callable[[int], PyTree]
    ) -> dict[str, Metric]:
        """Sums of the metrics of the batches in order. Each row carries a state from batch to batch: arrays [B, ...],
        at first `empty(B)`."""

    def part(self, name: str) -> "Scoring":
        """The scoring of one part of the split."""

    def once(self, make: Callable[..., T], *arguments: Hashable) -> T:
        """The result of the first call of `make` with equal arguments, so that a decoder is compiled once."""

    def whole_params(self) -> Params:
        """The parameters whole on each device, for a decoder with its own loop (`jaxnlp.decoding.rows`)."""

    def load(self, path: str) -> Trained:
        """Loads another trained model, such as a scorer of continuations: a run, or pretrained weights."""


@dataclasses.dataclass(frozen=True)
class Evaluator(Config):
    """The base of evaluators. Their fields are the flags of `jaxnlp evaluate RUN NAME`."""

    default_split: ClassVar[str] = "validation"
    """The split to score when neither a split nor a file is given."""

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        """Metrics of this evaluator that the task does not have."""
        return {}

    def __call__(self, scoring: Scoring) -> Evaluation:
        raise TypeError(f"{type(self).__name__} does not define __call__()")

    def compile_ahead(self, scoring: Scoring) -> None:
        """Starts to compile the programs of `__call__` whose shapes are known; training calls it at its start.

        Here: those of `Scoring.sums`. The first evaluation compiles all others, and says so.
        """
        scoring.compile_sums()


@dataclasses.dataclass(frozen=True)
class Command(Config):
    """The base of verbs. Their fields are the flags of `jaxnlp VERB RUN`."""

    summary: ClassVar[str] = ""
    """The line of `jaxnlp --help` for a verb of several tasks, which only one of its commands has. "" = the first line
    of the docstring."""

    as_trained: ClassVar[bool] = False
    """Whether it reads the weights as trained, and refuses `--weights`."""

    def further_models(self) -> tuple[str, ...]:
        """Paths of further trained models, which `__call__` gets after the first one."""
        return ()

    def further_files(self) -> tuple[Path | None, ...]:
        """Files other than `file` with the encoding of the training files, or `--data.encoding`; None = not given."""
        return ()

    def __call__(self, trained: Trained) -> None:
        raise TypeError(f"{type(self).__name__} does not define __call__()")


@dataclasses.dataclass(frozen=True)
class Task(Config):
    """The base of tasks. Their fields are `--task.*`."""

    section: ClassVar[str] = "task"
    model_types: ClassVar[tuple[str, ...]] = ()
    """Pretrained weights that `from_pretrained` reads: by `model_type`, or by class in Transformers, which has
    priority."""
    evaluators: ClassVar[Mapping[str, type[Evaluator]]] = {}
    """By name. Training runs `validation`, with its defaults."""
    commands: ClassVar[Mapping[str, type[Command]]] = {}
    """The verbs of `jaxnlp VERB RUN`, by name."""
    methods: ClassVar[Mapping[str, Method]] = {}
    """The methods of its trained models, by name."""

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        """Every metric of the evaluator `validation` on a split, and of the training log, by name.

        Metrics that `validation` does not have are `training_only`. Names and units may depend on the processor. A
        metric that needs examples is included only if the split has examples.
        """
        del processor, split
        return {"loss": MetricKind("examples", "nats", "lower")}

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        """Raises ValueError, naming the field to change, when task, model and data do not fit together."""

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        """Raises DataError, before the first step, for options that do not fit the loaded data, such as a prompt."""

    def objective(self, model: nn.Module, corpus: Corpus) -> Objective:
        """The loss. If only a file is scored, the corpus has only a processor."""
        raise TypeError(f"{type(self).__name__} does not define objective()")

    @staticmethod
    def exports(trained: Trained) -> Mapping[str, Exportable]:
        """The functions of a trained model that `jaxnlp.tasks.export` writes as programs, by name.

        Args: trained: its model, in plain operations, with separate parameters for each block.
        """
        raise TypeError(f"{type(trained.task).__name__} does not define exports()")

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """Weights of another library as a model of this task. Raises: ValueError for other weights."""
        raise TypeError(f"{cls.__name__} cannot read pretrained weights: it does not define from_pretrained()")


def pretrained_model(task: Task, config: ModelConfig, params: Params, processor: Any, name: str) -> Trained:
    """A model with pretrained parameters, on the first device of this process."""
    params = jax.device_put(params, jax.local_devices()[0])
    return Trained(task, config.build(processor), params, processor, name)


def every_task() -> list[type[Task]]:
    """The tasks of this library, by the names of their modules.

    Raises: TypeError for a field without a default: help and pretrained weights need tasks without arguments.
    """
    modules = [importlib.import_module(info.name) for info in pkgutil.iter_modules(__path__, f"{__name__}.")]
    values = (value for module in modules for value in vars(module).values())
    tasks = [value for value in values if isinstance(value, type) and issubclass(value, Task) and value is not Task]
    for task in tasks:
        for field in dataclasses.fields(task):
            if field.default is field.default_factory is dataclasses.MISSING:
                raise TypeError(f"{task.__name__}.{field.name} needs a default, like every field of a task")
    return list(dict.fromkeys(tasks))


_EVALUATION = ("Section", "Evaluation", "Evaluator", "Metric", "MetricKind", "Scoring")
__getattr__, __dir__ = lazily(__name__, __path__, own=(*_EVALUATION, "Command", "Objective", "Task", "Trained"))
