"""A task's description of a function of its models that `jaxnlp export` writes as a program for other libraries."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.export
import numpy as np

from jaxnlp.typing import Params, PyTree


class Axes:
    """The axes of variable size in a program, each with a letter of the glossary.

    >>> axes = Axes(T=(1, 512))
    >>> axes("B, 2, T", bool)
    ShapeDtypeStruct(shape=(B, 2, T), dtype=bool)

    Args:
      limits: the smallest and the largest size of each of these axes; None = no largest size. An input must have
        each of them. Other axes have any size from 1.
    """

    def __init__(self, **limits: tuple[int, int | None]):
        self.limits = limits
        least = [f"{letter} >= {least}" for letter, (least, _) in limits.items()]
        most = [f"{letter} <= {most}" for letter, (_, most) in limits.items() if most is not None]
        self._scope = jax.export.SymbolicScope([*least, *most])

    def __call__(self, sizes: str, dtype: Any = "int32") -> jax.ShapeDtypeStruct:
        """The shape of an array. Args: sizes: its axes: letters, and digits for fixed sizes."""
        return jax.ShapeDtypeStruct(jax.export.symbolic_shape(sizes, scope=self._scope), dtype)


def axes_of_batches(
    batch: Callable[[int, int], Mapping[str, Any]], names: Sequence[str], *, longest: int, shortest: int = 1
) -> tuple[Axes, dict[str, jax.ShapeDtypeStruct]]:
    """The shapes of arrays of a batch, by name, with variable rows B and positions T.

    Args:
      batch: (rows, length) -> a batch; axes that change with these are B and T.
      names: of the arrays.
      longest, shortest: limits of T.
    """
    small, large = batch(1, 2), batch(3, 4)

    def sizes(name: str) -> str:
        pairs = zip(np.shape(small[name]), np.shape(large[name]), strict=True)
        return ", ".join(str(a) if a == b else "B" if (a, b) == (1, 3) else "T" for a, b in pairs)

    found = {name: sizes(name) for name in names}
    axes = Axes(T=(shortest, longest)) if any("T" in axes for axes in found.values()) else Axes()
    return axes, {name: axes(sizes, large[name].dtype) for name, sizes in found.items()}


class Exportable(NamedTuple):
    """A function of a trained model to write as a program.

    Attributes:
      returns: its results, in words.
      apply: (params, inputs) -> outputs; both are trees of arrays by name, of dicts, lists and tuples: see `flat`.
      axes: the axes of variable size.
      inputs: the shape of each input.
      labels: the names of ids and scores, as JSON; None = none.
      onnx: whether the converter to ONNX knows its operations.
    """

    returns: str
    apply: Callable[[Params, Mapping[str, Any]], Mapping[str, PyTree]]
    axes: Axes
    inputs: Mapping[str, PyTree]
    labels: Any = None
    onnx: bool = True


def flat(tree: PyTree) -> tuple[list[Any], Callable[[Any], PyTree]]:
    """The leaves of a tree such as a cache, and the function that rebuilds the tree."""
    leaves, structure = jax.tree.flatten(tree)
    return leaves, lambda others: jax.tree.unflatten(structure, list(others))
