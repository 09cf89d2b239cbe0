"""Formulas: the bytes that each device of a mesh holds, and those that it exchanges in a step.

jit      sums the gradients of all parameters along `data`
fsdp     gathers the shared parameters, in the backward pass again where layers are scanned with remat, and scatters
         the sums of their gradients; it sums the gradients of the others
tensor   sums activations along `model`: in a Transformer two of each layer forward and two backward, one more of
         each with remat, and those of the embedding and of the logits' gradient
"""

import math
from typing import NamedTuple

import jax

from jaxnlp.typing import BATCH_AXIS, MODEL_AXIS, Params, PyTree
from train.parallel.rules import by_name, values_on_each
from train.programs.hlo import Transfer


class Costs(NamedTuple):
    """Bytes on each device.

    Attributes:
      state: parameters with the arrays like them: moments, averages.
      summed: gradients that are added up along `data`.
      gathered: parameters, after they are gathered along `data`.
      scattered: gradients, before their sums are scattered along `data`.
      activations: activations that are added up along `model`.
      mesh: the number of devices along `data` and along `model`.
    """

    state: int
    summed: int
    gathered: int
    scattered: int
    activations: int
    mesh: tuple[int, int]

    @property
    def sent(self) -> float:
        """The bytes that each device sends in a step, in rings."""
        data, model = self.mesh
        transfers = [
            Transfer("all-reduce", self.summed, data, 1),
            Transfer("all-gather", self.gathered, data, 1),
            Transfer("reduce-scatter", self.scattered, data, 1),
            Transfer("all-reduce", self.activations, model, 1),
        ]
        return sum(one.link_bytes for one in transfers)


def costs(
    placed: PyTree,
    params: Params,
    mesh: dict[str, int],
    *,
    copies: int = 3,
    regathered: bool = False,
    of_kernels: int | None = None,
    activations: int = 0,
) -> Costs:
    """The costs of a step.

    Args:
      placed: the placement of each parameter, see `train.parallel.rules.placements`.
      params: the shapes of the parameters.
      mesh: the number of devices along each axis.
      copies: of arrays like the parameters in the state: 3 for Adam without an average.
      regathered: whether layers are scanned with remat: the backward pass gathers their parameters again.
      of_kernels: bytes of a value of activations, to which kernels of stacked blocks are rounded before they are
        gathered; None = those of the parameters.
      activations: of `transformer_activations`.
    """
    data, model = mesh.get(BATCH_AXIS, 1), mesh.get(MODEL_AXIS, 1)
    state = summed = gathered = scattered = 0
    for (name, one), x in zip(by_name(placed).items(), jax.tree.leaves(params), strict=True):
        of_row = math.prod(x.shape) * x.dtype.itemsize // (model if MODEL_AXIS in one.spec else 1)
        rounded = of_kernels is not None and one.scanned and name.endswith("/kernel")
        state += copies * values_on_each(one.spec, x.shape, mesh) * x.dtype.itemsize
        if BATCH_AXIS in one.spec:
            values = of_row // x.dtype.itemsize
            size = of_kernels if rounded else x.dtype.itemsize
            gathered += values * size * (2 if regathered and one.scanned else 1)
            scattered += of_row
        elif data > 1:
            summed += of_row
    return Costs(state, summed, gathered, scattered, activations if model > 1 else 0, (data, model))


def transformer_activations(rows: int, positions: int, width: int, layers: int, itemsize: int, *, remat: bool) -> int:
    """The bytes of activations of a Transformer that devices of `model` add up in a step.

    Args:
      rows: of the batch, on each device of `data`.
      positions: T.
      width: D.
      layers: L.
      itemsize: bytes of a value.
      remat: whether the backward pass computes each layer again.
    """
    return ((5 if remat else 4) * layers + 2) * rows * positions * width * itemsize
