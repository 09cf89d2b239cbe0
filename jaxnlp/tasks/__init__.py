"""Tasks: what a model is trained to do and how it is scored. One task a file; the core knows only this file.

A task turns a model config and a processor into a module (`build`), a module into a loss (`objective`), and parameters
into numbers, predictions and blocks of the report (`evaluators`). Its `commands` are what `jaxnlp VERB RUN` can do.
"""

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import flax.linen as nn
import jax

from jaxnlp.config import Config
from jaxnlp.corpus import Corpus, DataFacts, Split
from jaxnlp.models import ModelConfig
from jaxnlp.public_names import lazily
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree

T = TypeVar("T")


class MetricKind(NamedTuple):
    """What a metric means, declared before it is measured.

    Attributes:
      of: what its count counts: tokens, questions, examples.
      unit: of its value, since metrics of one unit share a chart: nats; points, of a score of the whole corpus such as
        BLEU; choices, of a perplexity: as many equally likely tokens are as hard; "" = none, as of shares.
      better: whether lower or higher values are better.
      training_only: whether only training measures it, as an objective that differs from the loss.
    """

    of: str = "examples"
    unit: str = ""
    better: Literal["lower", "higher"] = "higher"
    training_only: bool = False


class Metric(NamedTuple):
    """A measured value, and the number of tokens or examples that it is over."""

    value: float
    count: int  # type: ignore[assignment]  # tuple has a method of this name


def no_carry(rows: int) -> PyTree:
    """What most models carry from batch to batch: nothing."""
    del rows
    return ()


@dataclasses.dataclass(frozen=True)
class Objective:
    """The loss, in training with a key and in evaluation with None.

    Attributes:
      loss: (params, batch, key, carry) -> (scalar, (metrics, carry)). The scalar is what is minimised. The metrics,
        named (sum, count) pairs, hold the plain `loss`, and the scalar as `objective` where a regulariser makes them
        differ; the count of `objective`, or else of `loss`, is the weight of the batch among shards and parts.
      progress: the metric whose count drives token schedules and throughput.
      is_mean: whether the scalar is a mean over its count. Only then is the gradient of a batch the mean of those of
        its shards and accumulation parts; otherwise devices do not map over it (pmap), and it is not accumulated.
      empty_carry: rows -> what a recurrent model carries into its first batch. Where that has leaves, rows carry their
        state: gradients are not accumulated, and devices divide the rows.
      combine: {part: gradients}, key -> gradients, where a step takes a batch of each part; None = their sum. Parts are
        sorted; part n has the key fold_in(key, n), combine has fold_in(key, number of parts).
    """

    loss: Callable[[Params, Batch, PRNGKey | None, PyTree], tuple[Array, tuple[Metrics, PyTree]]]
    progress: str = "loss"
    is_mean: bool = True
    empty_carry: Callable[[int], PyTree] = no_carry
    combine: Callable[[Mapping[str, PyTree], PRNGKey], PyTree] | None = None


class Block(NamedTuple):
    """Something that the report page draws.

    Attributes:
      name: its heading; a later block of the same name replaces it.
      content: a `jaxnlp.blocks` dataclass: Table, Lines, HeatMap, MarkedText or Picture.
      keep: whether the page shows only the latest step's, or those of all steps, as samples are.
    """

    name: str
    content: Any
    keep: Literal["latest", "all"] = "latest"


class Evaluation(NamedTuple):
    """What an evaluator found.

    Attributes:
      metrics: declared by the task, or by the evaluator.
      predictions: the texts of prediction files, by their names.
      blocks: for the report.
      remarks: what else the ledger says of these numbers.
    """

    metrics: Mapping[str, Metric]
    predictions: Mapping[str, str] = {}
    blocks: Sequence[Block] = ()
    remarks: Mapping[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model ready to use: what `load_run` and `load_pretrained` return, and every command and evaluator takes.

    The functions of its task are its methods: `run.predict(["A gripping film."])`, `run.generate("ROMEO:")`. `dir(run)`
    lists them.

    Attributes:
      task: what it was trained to do.
      model: the Linen module.
      params: its parameters: the moving average where the run kept one.
      processor: between raw inputs and arrays.
      name: the recipe's, or the pretrained model's.
      folder: of the run; None = it is not a run.
      step: of the checkpoint; None = it is not a run.
      config: the run's whole config, as JSON.
    """

    task: "Task"
    model: nn.Module
    params: Params
    processor: Any
    name: str = ""
    folder: Path | None = None
    step: int | None = None
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        """A function of the task, with this model as its first argument."""
        if name.startswith("__") or name in self.__dataclass_fields__:  # of a copy that has no fields yet
            raise AttributeError(name)
        functions = self.task.functions()
        if name not in functions:
            known = f"it has: {', '.join(functions)}" if functions else "it has no functions"
            raise AttributeError(f"a model of the task {type(self.task).__name__} has no {name!r}; {known}")
        bound = functools.partial(functions[name], self)
        return functools.update_wrapper(bound, functions[name])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.task.functions()]

    def __repr__(self) -> str:
        count = sum(x.size for x in jax.tree.leaves(self.params))
        parts = [self.name, type(self.task).__name__, f"{type(self.model).__name__} of {count:,} parameters"]
        if self.step is not None:
            parts.append(f"step {self.step}")
        return f"Trained({', '.join(filter(None, parts))}; {', '.join(self.task.functions()) or 'no functions'})"


class Scoring(Protocol):
    """What an evaluator is given. Devices, padding, processes and compilation are dealt with behind it."""

    @property
    def trained(self) -> Trained:
        """What is scored."""

    @property
    def split(self) -> Split:
        """What it is scored on."""

    @property
    def split_name(self) -> str:
        """Its name, or that of the file."""

    @property
    def training(self) -> Split | None:
        """The training examples; None where only a file is scored and no corpus was loaded."""

    def sums(self) -> dict[str, Metric]:
        """The objective's own metrics, without those of training only; exact over the whole split, {} without one."""

    def outputs(self, function: Callable[[Params, Batch], PyTree]) -> PyTree:
        """`function`, jitted, of every batch: one row an example, in the order of `split.examples`, on the host."""

    def fold(self, step: Callable[[Params, Batch, PyTree], tuple[PyTree, Metrics]], empty: PyTree) -> dict[str, Metric]:
        """Sums over batches in order, with a carry of its own."""

    def part(self, name: str) -> "Scoring":
        """The same for one part of the split."""

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned the first time in this process: a decoder is compiled once, not at each evaluation."""

    def params_here(self) -> Params:
        """All parameters, whole, on the local device, for a decoder that drives its own loop."""

    def load_run(self, place: str) -> Trained:
        """Another trained model, such as a scorer of continuations."""


@dataclasses.dataclass(frozen=True)
class Evaluator(Config):
    """A way to score: its fields are the flags of `python -m train.evaluate RUN NAME`."""

    default_split: ClassVar[str] = "validation"
    """What is scored when neither a split nor a file is given."""

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        """Metrics that only this evaluator has, beyond the task's."""
        return {}

    def __call__(self, scoring: Scoring) -> Evaluation:
        raise TypeError(f"{type(self).__name__} does not define __call__()")


@dataclasses.dataclass(frozen=True)
class Command(Config):
    """A verb of `jaxnlp`: its fields are the flags of `jaxnlp VERB RUN`."""

    def further_models(self) -> tuple[str, ...]:
        """Places of further trained models that the verb uses; they are loaded, and follow the first one in a call."""
        return ()

    def __call__(self, trained: Trained) -> None:
        raise TypeError(f"{type(self).__name__} does not define __call__()")


@dataclasses.dataclass(frozen=True)
class Task(Config):
    """What a model is trained to do and how it is scored. Its fields are `--task.*`."""

    section: ClassVar[str] = "task"
    model_types: ClassVar[tuple[str, ...]] = ()
    """The `model_type`s of pretrained weights that are models of this task: those that `from_pretrained` reads."""

    def metrics(self, processor: Any, split: Split) -> Mapping[str, MetricKind]:
        """Every metric that the evaluator `validation` gives of a split, and that training logs, by name.

        Those that `validation` does not give are `training_only`.

        Names and units may depend on the processor, which knows parts, labels and tokens; a metric that needs examples
        is there only where the split has some.
        """
        del processor, split
        return {"loss": MetricKind("examples", "nats", "lower")}

    def check(self, model: ModelConfig, data: DataFacts) -> None:
        """Raises ValueError when the three do not fit together; the message says which field to change."""

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        """Raises DataError for what only the data can tell, such as a prompt, before the first step."""

    def build(self, model: ModelConfig, processor: Any) -> tuple[nn.Module, tuple[jax.ShapeDtypeStruct, ...]]:
        """The module, and the inputs that it is initialised with."""
        raise TypeError(f"{type(self).__name__} does not define build()")

    def begin(self, model: nn.Module, corpus: Corpus) -> Params:
        """Parameters that are not initialised at random, such as word vectors. Unknown paths and shapes are refused."""
        del model, corpus
        return {}

    def objective(self, model: nn.Module, corpus: Corpus | None) -> Objective:
        """`corpus` is None where only a file is scored: nothing of the training data is needed then."""
        raise TypeError(f"{type(self).__name__} does not define objective()")

    def evaluators(self) -> Mapping[str, type[Evaluator]]:
        """By name; `validation`, at its defaults, is what training runs."""
        raise TypeError(f"{type(self).__name__} does not define evaluators()")

    def commands(self) -> Mapping[str, type[Command]]:
        """Verbs of `jaxnlp`, by name."""
        return {}

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """What a trained model does in Python, by name: functions whose first argument is the trained model."""
        return {}

    @classmethod
    def from_pretrained(cls, place: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """Weights that another library wrote, as a model of this task. Raises: ValueError when they are not."""
        raise TypeError(f"{cls.__name__} takes no pretrained weights: it does not define from_pretrained()")


def every_task() -> list[type[Task]]:
    """The tasks of this library, by the names of their modules.

    Raises: TypeError for a field without a default: help and pretrained weights make a task without arguments.
    """
    modules = [importlib.import_module(found.name) for found in pkgutil.iter_modules(__path__, f"{__name__}.")]
    values = (value for module in modules for value in vars(module).values())
    found = [value for value in values if isinstance(value, type) and issubclass(value, Task) and value is not Task]
    for task in found:
        for field in dataclasses.fields(task):
            if field.default is field.default_factory is dataclasses.MISSING:
                raise TypeError(f"{task.__name__}.{field.name} needs a default, as every field of a task does")
    return list(dict.fromkeys(found))


_EVALUATION = ("Block", "Evaluation", "Evaluator", "Metric", "MetricKind", "Scoring")
__getattr__, __dir__ = lazily(__name__, __path__, own=(*_EVALUATION, "Command", "Objective", "Task", "Trained"))
