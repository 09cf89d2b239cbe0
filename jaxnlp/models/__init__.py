"""Model families, one a file: its frozen Config and its Module."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import Config
from jaxnlp.corpus import Corpus
from jaxnlp.nn.compute import Compute
from jaxnlp.public_names import lazily
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class Parameter:
    """Description of one of a model's parameters; layer-wise rates, Muon, weight decay and sharding read it.

    Attributes:
      axes: glossary letters (`jaxnlp.typing`), one a dimension; a digit is a small stacked axis: "LD3HK" is the kernel
        of queries, keys and values of all blocks. A matrix has its input axis first, after L.
      depth: the index of its block, from 0; "below" or "above" the blocks. Ignored with an axis L.
      matrix: whether it maps inputs to outputs. Then weight decay applies, and Muon unless `head`.
      head: whether it maps to the model's outputs.
      scanned: whether `nn.transformer.stack` applies it, and so gathers a layer's shard where it is applied.
      dense: whether it is the kernel of a `nn.dense.Dense`.
    """

    axes: str
    depth: int | Literal["below", "above"] = "above"
    matrix: bool = False
    head: bool = False
    scanned: bool = False
    dense: bool = False


class Adopted(NamedTuple):
    """The parts of pretrained weights that a model uses.

    Attributes:
      config: the model's config with the pretrained shape.
      params: the model's parameters in the weights, at their paths; others are initialised at random.
      processor: the pretrained model's tokenizer; None = the data set makes its own.
      notes: messages for the user, such as heads that the weights do not have.
      matching_heads: the pretrained heads that fit the run's processor, by labels for example; None = no heads.
    """

    config: "ModelConfig"
    params: Params
    processor: Any = None
    notes: tuple[str, ...] = ()
    matching_heads: Callable[[Any], Params] | None = None


def is_own(name: str) -> bool:
    """Whether a field keeps its value when a config adopts a pretrained architecture."""
    return name == "compute" or name.endswith("dropout_rate")


def with_own_fields(theirs: Any, ours: Any) -> Any:
    """A pretrained config with the dropout rates and the `compute` of ours."""
    own = {field.name: getattr(ours, field.name) for field in dataclasses.fields(ours) if is_own(field.name)}
    return dataclasses.replace(theirs, **own)


def transformer_note(part: str, config: Any, name: str) -> str:
    """A message for the user: the shape of a pretrained Transformer, and its source."""
    return f"{part} from {name}: {config.num_layers} layers, {config.width} wide, {config.num_heads} heads"


def padded_rows(tokens: int, padded: int | None, field: str) -> int:
    """Number of rows, V, of a table of tokens that a field of a config may pad; None = no padding.

    Raises: ConfigError when the padded table has fewer rows than tokens.
    """
    if padded is not None and padded < tokens:
        raise ConfigError(f"{field} must be at least the tokenizer's {tokens} tokens, got {padded}")
    return padded or tokens


@dataclasses.dataclass(frozen=True)
class ModelConfig(Config):
    """The base of every family's config: frozen, hashable, and able to build its module.

    A processor turns raw inputs into arrays: `Corpus.processor`, or `Trained.processor`.
    """

    section: ClassVar[str] = "model"
    length_field: ClassVar[str] = "context_length"
    """The field for `max_length`, if the model has one."""
    reads: ClassVar[tuple[str, ...]] = ("tokens",)
    """Names of a batch's arrays that the module reads, in the order of its arguments."""
    compute: Compute = dataclasses.field(default_factory=Compute, kw_only=True)
    """Options of the computation, which do not change the model. A family declares the class with its layers'
    options."""

    def __post_init__(self):
        super().__post_init__()
        kind: Any = type(self).__dataclass_fields__["compute"].default_factory
        if not isinstance(self.compute, kind):
            raise ValueError(f"model.compute must be a {kind.__name__}, got {type(self.compute).__name__}")

    @property
    def usual(self) -> tuple[str, ...]:
        return ("width", "num_layers")

    @property
    def max_length(self) -> int | None:
        """Maximum length of an input in tokens; None = any length."""
        return None

    @property
    def attends(self) -> bool:
        """Whether the model has attention weights to show."""
        return False

    def check(self, processor: Any) -> None:
        """Raises ValueError when the model cannot read the processor's arrays; the message says what to change."""

    def build(self, processor: Any) -> nn.Module:
        """The module for the vocabulary, the labels or the images of a processor."""
        raise TypeError(f"{type(self).__name__} cannot build a model: it does not define build()")

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes of the arrays that initialise the module: those of one small example."""
        del processor
        return (jax.ShapeDtypeStruct((1, 1), jnp.int32),)

    def initial_params(self, corpus: Corpus) -> Params:
        """The parameters that are not initialised at random, such as word vectors, at their paths.

        Raises: ValueError, FileNotFoundError for a file that is missing, damaged, or does not fit the model.
        """
        del corpus
        return {}

    def frozen(self, path: tuple[str, ...]) -> bool:
        """Whether training keeps a parameter unchanged. Args: path: such as `("blocks", "attention", "qkv",
        "kernel")`."""
        del path
        return False

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        """Axes, depth and role of the parameter at a path. Raises: KeyError for a path that the model does not have."""
        raise TypeError(f"{type(self).__name__} does not describe its parameters: it does not define parameter()")

    def architecture(self) -> dict[str, Any]:
        """The fields that define the model's function, by name: all except `compute` and dropout rates. Runs with equal
        fields can use each other's parameters."""
        rest = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in rest.items() if not is_own(name)}

    def adopt(self, pretrained: Any) -> Adopted:
        """The parts of a pretrained model that this model uses: by default all parameters, with its architecture.

        Dropout rates and `compute` stay those of this config. Training refuses other fields that the user has set
        differently.

        Args:
          pretrained: a `jaxnlp.tasks.Trained`.

        Raises: ValueError for a model of another class, and for an architecture that does not fit this config's other
          fields.
        """
        theirs = pretrained.model.config
        if type(theirs) is not type(self):
            raise ValueError(
                f"its model is a {type(theirs).__name__}, expected {type(self).__name__}; give a run with such a model"
            )
        config: Any = self
        for _ in range(2):  # a field that is derived from others, such as the width, may differ only after the first
            now = config.architecture()
            names = [name for name, value in theirs.architecture().items() if value != now[name]]
            config = dataclasses.replace(config, **{name: getattr(theirs, name) for name in names})
        found = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        fields = {name: value for name, value in found.items() if value != getattr(self, name)}
        values = ", ".join(f"model.{name} {value}" for name, value in fields.items())
        notes = (f"from {pretrained.name}: {values}",) if fields else ()
        return Adopted(config, pretrained.params, pretrained.processor, notes)


def parameter_shapes(model: nn.Module, *inputs: Any, **options: Any) -> Any:
    """The parameters of a model as jax.ShapeDtypeStructs, cached for equal models.

    Args:
      inputs, options: of the model's `__call__`; the inputs may be shapes, as from `ModelConfig.inputs`.
    """
    return _init.eval_shape(model, jax.random.key(0), *inputs, **options)["params"]


@functools.partial(jax.jit, static_argnums=0, static_argnames=("compute", "deterministic"))
def _init(model: nn.Module, *arguments: Any, **options: Any) -> Any:
    return model.init(*arguments, **options)


__getattr__, __dir__ = lazily(__name__, __path__, own=("Adopted", "ModelConfig", "Parameter"))
