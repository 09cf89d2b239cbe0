"""Lookups in a model's table of parameters for whole trees."""

from collections.abc import Callable
from typing import Any

import jax

from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import Params, PyTree

Describe = Callable[[tuple[str, ...]], Parameter]
"""A model's table: `ModelConfig.parameter`."""


def names(path: tuple[Any, ...]) -> tuple[str, ...]:
    """The keys of a path of `jax.tree_util` in nested dicts."""
    return tuple(part.key for part in path)


def map_described(function: Callable[[Parameter, Any], Any], describe: Describe, params: Params) -> PyTree:
    """The results of function(table entry, value) for each parameter, in a tree like `params`.

    Raises:
      ConfigError: when the table does not have a parameter, or has it with another number of axes.
    """

    def described(path: tuple[Any, ...], value: Any) -> Any:
        keys = names(path)
        try:
            parameter = describe(keys)
        except KeyError as error:
            raise ConfigError(f"the model's table of parameters has no entry for {'/'.join(keys)}: {error}") from error
        if len(parameter.axes) != value.ndim:
            raise ConfigError(
                f"the model's table gives {'/'.join(keys)} the {len(parameter.axes)} axes {parameter.axes!r}, but its "
                f"shape is {value.shape}"
            )
        return function(parameter, value)

    return jax.tree_util.tree_map_with_path(described, params)
