"""Weights of PyTorch's nn.RNN, nn.GRU and nn.LSTM as parameters of `jaxnlp.nn.recurrent.Recurrent`, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxnlp.nn.recurrent import CELLS, CellName, find_cell
from jaxnlp.ops.checks import expect_float
from jaxnlp.typing import Params

THEIR_PARTS = {"kernel": "weight_ih", "recurrent_kernel": "weight_hh", "bias": "bias_ih", "recurrent_bias": "bias_hh"}
"""Our names and PyTorch's names. We have a separate axis for the gates: kernel [D, G, K], bias [G, K]. PyTorch has [G
K, D] and [G K], with the gates in the same order."""


def from_torch(
    state_dict: Mapping[str, Any], *, cell: CellName, num_layers: int, bidirectional: bool = False, prefix: str = ""
) -> Params:
    """Parameters of a `Recurrent` that computes the same function.

    PyTorch adds two biases to each gate. A GRU keeps both; other cells store their sum, which `to_torch` splits
    differently.

    Args:
      state_dict: arrays or tensors by PyTorch's names, weight_ih_l0 and so on. Missing biases, as with bias=False, are
        0. Names without `prefix` are ignored.
      cell: "rnn_tanh" and "rnn_relu" for nn.RNN, "gru", "lstm".
      num_layers, bidirectional: as PyTorch's arguments.
      prefix: of the names, as in "encoder.rnn.".

    Returns:
      {layer_0_forward: {kernel, recurrent_kernel, bias, and recurrent_bias for a GRU}, ...}, copies with the
      dtypes of the arrays.

    Raises: ValueError naming tensors that are missing, unknown, not floats, in bfloat16 (which NumPy does not read), or
      have other shapes; and for the projections of nn.LSTM(proj_size=...), which `Recurrent` does not have.
    """
    arrays = {name: _as_array(name, array) for name, array in state_dict.items() if name.startswith(prefix)}
    projections = [name for name in arrays if name.removeprefix(prefix).startswith("weight_hr_")]
    if projections:
        raise ValueError(f"projections of the state (proj_size) are not supported: {', '.join(projections)}")
    layers = _layers(cell, num_layers, bidirectional)
    names = {
        (*layer, part): f"{prefix}{name}_{_their(*layer)}" for layer in layers for part, name in THEIR_PARTS.items()
    }
    if not any(name.removeprefix(prefix).startswith("bias_") for name in arrays):  # PyTorch's bias=False
        arrays |= {
            names[*layer, bias]: np.zeros_like(arrays[names[*layer, "kernel"]][..., 0])
            for layer in layers
            for bias in ("bias", "recurrent_bias")
            if names[*layer, "kernel"] in arrays
        }
    _check(arrays, names, cell, theirs=True)

    params = {}
    for layer in layers:
        weights = {part: _from_their_layout(arrays[names[*layer, part]], CELLS[cell].gates) for part in THEIR_PARTS}
        if cell != "gru":
            weights["bias"] = weights["bias"] + weights.pop("recurrent_bias")
        params[_our(*layer)] = weights
    return params


def _as_array(name: str, array: Any) -> np.ndarray:
    """An array unchanged, or a tensor as an array, also if it requires gradients in PyTorch."""
    try:
        return np.asarray(array.detach() if hasattr(array, "detach") else array)
    except TypeError as error:
        raise ValueError(f"{name} cannot be converted to NumPy ({error}); give it in float32") from error


def to_torch(
    params: Params, *, cell: CellName, num_layers: int, bidirectional: bool = False, prefix: str = ""
) -> dict[str, np.ndarray]:
    """The state_dict of the PyTorch layer that computes the same function; `from_torch` converts it back.

    The second bias is zero, except in a GRU.

    Args:
      params: parameters of a `Recurrent` whose layers all have the same width.
      cell, num_layers, bidirectional, prefix: as for `from_torch`.

    Returns:
      Copies of the arrays, by PyTorch's names, with the same dtypes.

    Raises: ValueError naming parameters that are missing, unknown, not floats or of other shapes.
    """
    arrays = {f"{layer}/{part}": np.asarray(array) for layer, parts in params.items() for part, array in parts.items()}
    layers = _layers(cell, num_layers, bidirectional)
    parts = [part for part in THEIR_PARTS if cell == "gru" or part != "recurrent_bias"]
    names = {(*layer, part): f"{_our(*layer)}/{part}" for layer in layers for part in parts}
    _check(arrays, names, cell, theirs=False)

    state_dict = {}
    for layer in layers:
        weights = {part: arrays[names[*layer, part]] for part in parts}
        weights.setdefault("recurrent_bias", np.zeros_like(weights["bias"]))
        for part, name in THEIR_PARTS.items():
            state_dict[f"{prefix}{name}_{_their(*layer)}"] = _to_their_layout(weights[part])
    return state_dict


def _from_their_layout(array: np.ndarray, gates: int) -> np.ndarray:
    """[G K, D] -> [D, G, K], and a bias [G K] -> [G, K]; a copy in row-major order."""
    split = array.reshape(gates, array.shape[0] // gates, *array.shape[1:])
    return np.array(np.moveaxis(split, 2, 0) if split.ndim == 3 else split, order="C")


def _to_their_layout(array: np.ndarray) -> np.ndarray:
    """[D, G, K] -> [G K, D], and a bias [G, K] -> [G K]; a copy in row-major order."""
    moved = np.moveaxis(array, 0, 2) if array.ndim == 3 else array
    return np.array(moved.reshape(-1, *moved.shape[2:]), order="C")


Layer = tuple[int, str]
"""Index and direction of a layer."""


def _layers(cell: str, num_layers: int, bidirectional: bool) -> list[Layer]:
    find_cell(cell)
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}")
    directions = ("forward", "backward") if bidirectional else ("forward",)
    return [(index, direction) for index in range(num_layers) for direction in directions]


def _our(index: int, direction: str) -> str:
    return f"layer_{index}_{direction}"


def _their(index: int, direction: str) -> str:
    return f"l{index}" if direction == "forward" else f"l{index}_reverse"


def _check(
    arrays: dict[str, np.ndarray], names: dict[tuple[int, str, str], str], cell: CellName, *, theirs: bool
) -> None:
    """Raises ValueError unless `arrays` have these names, are floats, and have the shapes of one network.

    The first layer's matrices define the widths D and K; each further layer reads the output of the layer below it.
    """
    missing, unknown = [name for name in names.values() if name not in arrays], sorted(arrays.keys() - names.values())
    if missing or unknown:
        lists = [f"{kind}: {', '.join(of)}" for kind, of in (("missing", missing), ("unknown", unknown)) if of]
        raise ValueError(f"these are not the weights of {cell} layers with this shape; {'; '.join(lists)}")
    expect_float(**arrays)  # type: ignore[arg-type]

    width_in, width = (
        np.atleast_2d(arrays[names[0, "forward", part]]).shape[-1 if theirs else 0]
        for part in ("kernel", "recurrent_kernel")
    )
    gates, directions = CELLS[cell].gates, len({direction for _, direction, _ in names})
    wrong = []
    for (index, _, part), name in names.items():
        below = directions * width if index else width_in
        read = {"kernel": (below,), "recurrent_kernel": (width,)}.get(part, ())
        expected = (gates * width, *read) if theirs else (*read, gates, width)
        if arrays[name].shape != expected:
            wrong.append(f"{name} {arrays[name].shape}, expected {expected}")
    if wrong:
        raise ValueError(f"these shapes do not fit {cell} layers of width {width}: {'; '.join(wrong)}")
