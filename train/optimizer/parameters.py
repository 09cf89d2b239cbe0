"""Descriptions of the parameters of whole trees, from a model's table."""

from collections.abc import Callable
from typing import Any

import jax

from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import Params, PyTree

Describe = Callable[[Params], PyTree]
"""Parameters -> the `Parameter` of each, in a tree like them."""


def names(path: tuple[Any, ...]) -> tuple[str, ...]:
    """The keys of a path of `jax.tree_util` in nested dicts, whose leaves may have several arrays as attributes."""
    return tuple(part.key for part in path if isinstance(part, jax.tree_util.DictKey))


def describe(table: Callable[[tuple[str, ...]], Parameter], params: Params) -> PyTree:
    """The entry of a model's table, `ModelConfig.parameter`, for each parameter, in a tree like `params`.

    Raises: ConfigError when the table does not have a parameter, or has it with another number of axes.
    """

    def entry(path: tuple[Any, ...], value: Any) -> Parameter:
        keys = names(path)
        try:
            parameter = table(keys)
        except KeyError as error:
            raise ConfigError(f"the model's table of parameters has no entry for {'/'.join(keys)}: {error}") from error
        if len(parameter.axes) != value.ndim:
            raise ConfigError(
                f"the model's table gives {'/'.join(keys)} the {len(parameter.axes)} axes {parameter.axes!r}, but its "
                f"shape is {value.shape}"
            )
        return parameter

    return jax.tree_util.tree_map_with_path(entry, params)
