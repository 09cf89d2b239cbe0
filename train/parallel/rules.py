"""One table of rules: which axes of a parameter devices share.

    model   heads H and G and their outputs O, feed-forward widths F, vocabularies V: a parameter's first one of them
    data    with FSDP the longest other axis of a matrix, but for the stacked layers L

Biases, of heads too, and other vectors are whole on the devices of `data`: they are small, and each would cost a
message.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import BATCH_AXIS, MODEL_AXIS, Params, PyTree
from train.optimizer.parameters import describe, names

SHARED = {"H": "heads", "O": "outputs of the heads", "G": "key heads", "F": "feed-forward width", "V": "vocabulary"}
"""The axes that devices of `model` share, by glossary letter."""


class Placement(NamedTuple):
    """The axes of a parameter that devices share.

    Attributes:
      spec: the axis of the mesh, or None, for each axis of the parameter.
      scanned: see `Parameter`.
      note: the axes of the mesh along which the parameter is whole, unlike others, and the reason; "" = none.
    """

    spec: PartitionSpec
    scanned: bool = False
    note: str = ""


def placements(
    table: Callable[[tuple[str, ...]], Parameter], params: Params, mesh: Mapping[str, int], *, fsdp: bool
) -> PyTree:
    """The placement of each parameter, in a tree like `params`.

    Args:
      table: `ModelConfig.parameter`.
      params: arrays, or their shapes.
      mesh: the number of devices along each axis.
      fsdp: whether devices of `data` share the parameters.

    Raises: ConfigError when the devices of `model` do not divide heads or a feed-forward width; and as `describe`.
    """

    def place(path: tuple[Any, ...], parameter: Parameter, value: Any) -> Placement:
        return placement("/".join(names(path)), parameter, value.shape, mesh, fsdp=fsdp)

    return jax.tree_util.tree_map_with_path(place, describe(table, params), params)


def placement(
    name: str, parameter: Parameter, shape: tuple[int, ...], mesh: Mapping[str, int], *, fsdp: bool
) -> Placement:
    """The placement of one parameter; see `placements`."""
    spec: list[str | None] = [None] * len(shape)
    notes = []
    devices = mesh.get(MODEL_AXIS, 1)
    axis = next((n for n, letter in enumerate(parameter.axes) if letter in SHARED), None)
    if devices > 1 and axis is not None:
        if shape[axis] % devices == 0:
            spec[axis] = MODEL_AXIS
        elif parameter.axes[axis] == "V":  # the data gives it, not the config
            notes.append(f"whole along {MODEL_AXIS}: {devices} devices do not divide its vocabulary, {shape[axis]}")
        else:
            fits = math.gcd(shape[axis], devices)
            fitting = f"--mesh {BATCH_AXIS}={mesh.get(BATCH_AXIS, 1) * devices // fits},{MODEL_AXIS}={fits}"
            raise ConfigError(
                f"{devices} devices of {MODEL_AXIS} do not divide the {SHARED[parameter.axes[axis]]} of {name}, "
                f"{shape[axis]}; give {fitting if fits > 1 else '--parallel fsdp'}, or change the model"
            )
    rest = [n for n, letter in enumerate(parameter.axes) if letter != "L" and not letter.isdigit()]
    vector = len(rest) < 2 or {parameter.axes[n] for n in rest} <= {"H", "G", "K"}
    devices = mesh.get(BATCH_AXIS, 1)
    if fsdp and devices > 1 and not vector:
        shared = [n for n in rest if spec[n] is None and shape[n] % devices == 0]
        if shared:
            spec[max(shared, key=lambda n: shape[n])] = BATCH_AXIS
        else:
            notes.append(f"whole along {BATCH_AXIS}: {devices} devices divide none of its axes, {tuple(shape)}")
    return Placement(PartitionSpec(*spec), parameter.scanned, "; ".join(notes))


def by_name(tree: PyTree) -> dict[str, Placement]:
    """The placement of each parameter, by name: the keys of its path, joined by slashes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, Placement))
    return {"/".join(names(path)): one for path, one in leaves}


def notes(tree: PyTree) -> list[str]:
    """A line for each parameter that stays whole along an axis of the mesh that shares others."""
    return [f"{name} is {one.note}" for name, one in by_name(tree).items() if one.note]


def values_on_each(spec: PartitionSpec, shape: tuple[int, ...], mesh: Mapping[str, int]) -> int:
    """The number of an array's values that each device has."""
    return math.prod(shape) // math.prod(mesh[axis] for axis in spec if axis is not None)


def specs_like(tree: PyTree, params: Params, specs: PyTree) -> PyTree:
    """The specs of a tree with arrays like the parameters, such as an optimizer's moments, at the same paths.

    Args:
      tree: arrays, or their shapes.
      params: the parameters, or their shapes.
      specs: the `PartitionSpec` of each parameter, in a tree like `params`.

    Returns:
      A tree like `tree`: for each array the spec of the parameter with its shape whose path is the longest end of its
      path; `PartitionSpec()` without one.
    """
    of = {
        names(path): (value.shape, spec)
        for (path, value), spec in zip(
            jax.tree_util.tree_leaves_with_path(params),
            jax.tree.leaves(specs, is_leaf=lambda x: isinstance(x, PartitionSpec)),
            strict=True,
        )
    }

    def spec_of(path: tuple[Any, ...], value: Any) -> PartitionSpec:
        keys: list[str] = []
        found = PartitionSpec()
        for part in reversed(path):
            if not isinstance(part, jax.tree_util.DictKey):
                break
            keys.insert(0, part.key)
            shape, spec = of.get(tuple(keys), ((), None))
            if spec is not None and shape == value.shape:
                found = spec
        return found

    return jax.tree_util.tree_map_with_path(spec_of, tree)
