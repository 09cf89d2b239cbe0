"""Stacks of recurrent layers, in one direction or both."""

import dataclasses
from typing import Any, Literal, Self

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer

from jaxnlp.nn.compute import Compute
from jaxnlp.nn.dropout import LockedDropout, dropout_key
from jaxnlp.ops.checks import expect
from jaxnlp.ops.dropout_masks import check_rate, dropout
from jaxnlp.ops.recurrent_layers import (
    GRU,
    LSTM,
    RNN_RELU,
    RNN_TANH,
    Cell,
    RecurrentImplementation,
    State,
    recurrent,
)

CellName = Literal["rnn_tanh", "rnn_relu", "gru", "lstm"]
CELLS = {"rnn_tanh": RNN_TANH, "rnn_relu": RNN_RELU, "gru": GRU, "lstm": LSTM}


@dataclasses.dataclass(frozen=True)
class RecurrentCompute(Compute):
    """Options of every layer, and of recurrent layers."""

    recurrence: RecurrentImplementation = "auto"
    """Recurrent layers by the library's scan, or by cuDNN on an Nvidia GPU; auto chooses."""

    @property
    def without_unmapped_kernels(self) -> Self:
        return dataclasses.replace(self, recurrence="scan") if self.recurrence == "auto" else self


LayerStates = tuple[State, ...]
"""One layer's states: forward, and backward if there are two directions."""


def find_cell(name: str) -> Cell:
    """The cell of that name. Raises: ValueError, with the names of all cells."""
    if name not in CELLS:
        raise ValueError(f"cell must be one of {', '.join(CELLS)}, got {name!r}")
    return CELLS[name]


def parameter_axes(
    cell: CellName, *, mogrifier_rounds: int = 0, mogrifier_rank: int | None = None
) -> dict[tuple[str, ...], str]:
    """The parameters of a `RecurrentDirection` and the glossary letters of their axes, for `ModelConfig.parameter`."""
    gates = find_cell(cell).gates
    mogrifier: dict[tuple[str, ...], str] = {
        (name,): axes
        for index in range(mogrifier_rounds)
        for name, axes in _mogrifier_axes(index, mogrifier_rank).items()
    }
    axes: dict[tuple[str, ...], str] = {
        ("kernel",): f"D{gates}K",
        ("recurrent_kernel",): f"K{gates}K",
        ("bias",): f"{gates}K",
    }
    return axes | ({("recurrent_bias",): f"{gates}K"} if cell == "gru" else {}) | mogrifier


def _mogrifier_axes(index: int, rank: int | None) -> dict[str, str]:
    """The matrix of a round of the mogrifier, or its factors, with the letters of their axes."""
    name, axes = f"mogrifier_{index + 1}", "DK" if index % 2 else "KD"
    if rank is None:
        return {f"{name}_kernel": axes}
    return {f"{name}_down_kernel": f"{axes[0]}R", f"{name}_up_kernel": f"R{axes[1]}"}


def uniform_of_width(width: int) -> Initializer:
    """Uniform in [-1 / sqrt(K), 1 / sqrt(K)], K the width of the layer's state.

    Source: PyTorch's nn.LSTM; Merity et al. 2018, section 5.
    """
    bound = width**-0.5

    def initial(key, shape, dtype=None, out_sharding=None):
        del out_sharding
        return jax.random.uniform(key, shape, dtype or jnp.float32, -bound, bound)

    return initial


class RecurrentDirection(nn.Module):
    """One layer in one direction.

    Attributes:
      cell: name of the network, see `ops.recurrent_layers`; gates are in the order of PyTorch.
      width: K, of the state and the output.
      reverse: read from the last position to the first.
      weight_dropout_rate: share of the recurrent matrix's elements dropped in training, the same ones for a whole
        batch.
      forget_bias: added to the initial bias of an LSTM's forget gate.
      compute: types, and the implementation of the recurrence.
      mogrifier_rounds: of an LSTM's mogrifier, see `ops.mogrifier`; 0 = none.
      mogrifier_rank: of the mogrifier's matrices, R; None = full.

    Parameters: kernel [D, G, K], recurrent_kernel [K, G, K], bias [G, K], and for a GRU recurrent_bias [3, K]. For each
    round i of the mogrifier mogrifier_i_kernel, [K, D] in odd rounds and [D, K] in even ones, or with a rank
    mogrifier_i_down_kernel [., R] and mogrifier_i_up_kernel [R, .].

    Source: Wan et al. 2013 (DropConnect); Merity et al. 2018, section 2, for it on recurrent matrices; Jozefowicz et
    al. 2015 for the forget gate's bias; Melis et al. 2020 for the mogrifier.
    """

    cell: CellName
    width: int
    reverse: bool = False
    weight_dropout_rate: float = 0.0
    forget_bias: float = 0.0
    compute: RecurrentCompute = RecurrentCompute()
    mogrifier_rounds: int = 0
    mogrifier_rank: int | None = None

    @nn.compact
    def __call__(
        self, x: jax.Array, state: State, *, deterministic: bool, lengths: jax.Array | None = None
    ) -> tuple[jax.Array, State]:
        """Args: x [B, T, D], state arrays [B, K], lengths [B] int. Returns: [B, T, K], and the state after it.

        Raises: ValueError for an unknown cell, a forget bias or a mogrifier with another cell than the LSTM, a rate
          outside [0, 1), shapes that do not fit.
        """
        expect(x.ndim == 3, "x [B, T, D]", x=x)
        cell, initial = find_cell(self.cell), uniform_of_width(self.width)
        check_rate(self.weight_dropout_rate)
        if self.forget_bias and self.cell != "lstm":
            raise ValueError(f"forget_bias applies only to the cell lstm, got {self.forget_bias} for cell {self.cell}")
        gates = (cell.gates, self.width)
        w_x = self.param("kernel", initial, (x.shape[-1], *gates))
        w_h = self.param("recurrent_kernel", initial, (self.width, *gates))
        b = self.param("bias", self._initial_bias, gates)
        b_h = self.param("recurrent_bias", initial, gates) if self.cell == "gru" else None
        if self.weight_dropout_rate and not deterministic:
            w_h = dropout(w_h, self.weight_dropout_rate, dropout_key(self))
        sizes: dict[str, Any] = {"D": x.shape[-1], "K": self.width, "R": self.mogrifier_rank}
        mogrifier = [
            tuple(
                self.param(name, uniform_of_width(sizes[axes[0]]), tuple(sizes[axis] for axis in axes))
                for name, axes in _mogrifier_axes(index, self.mogrifier_rank).items()
            )
            for index in range(self.mogrifier_rounds)
        ]
        outputs, state = recurrent(
            cell,
            x.astype(self.compute.activation_dtype),
            state,
            w_x=w_x,
            w_h=w_h,
            b=b,
            b_h=b_h,
            mogrifier=mogrifier,
            lengths=lengths,
            reverse=self.reverse,
            matmul_dtype=self.compute.operand_dtype,
            implementation=self.compute.recurrence,
        )
        chex.assert_shape(outputs, (*x.shape[:2], self.width))
        return outputs, state

    def _initial_bias(self, key, shape):
        bias = uniform_of_width(self.width)(key, shape)
        return bias.at[1].add(self.forget_bias) if self.cell == "lstm" else bias  # gate 1 is the forget gate


class Recurrent(nn.Module):
    """A stack of recurrent layers, each of which reads the previous layer's outputs.

    Attributes:
      widths: K of each layer, first to last.
      bidirectional: two directions a layer, outputs concatenated.
      hidden_dropout_rate: share of the features between layers dropped in training, the same ones at all positions.

    Other attributes: see `RecurrentDirection`.

    Source: Gal and Ghahramani 2016, section 4, for dropout that is the same at all positions.
    """

    cell: CellName
    widths: tuple[int, ...]
    bidirectional: bool = False
    hidden_dropout_rate: float = 0.0
    weight_dropout_rate: float = 0.0
    forget_bias: float = 0.0
    compute: RecurrentCompute = RecurrentCompute()
    mogrifier_rounds: int = 0
    mogrifier_rank: int | None = None

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        states: tuple[LayerStates, ...] | None = None,
        *,
        deterministic: bool,
        lengths: jax.Array | None = None,
    ) -> tuple[jax.Array, tuple[LayerStates, ...]]:
        """Reads a batch of sequences.

        Args:
          x: [B, T, D].
          states: as returned here; None = zeros.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
          lengths: [B] int, number of real positions of each sequence; None = T. Padding keeps the states, and has
            output 0. The backward direction starts at the last real position.

        Returns:
          Outputs [B, T, K], or [B, T, 2 K] of both directions; and each layer's states after the sequence.

        Raises: ValueError for no layers, x of another rank, states of another number of layers or directions, and as
          `RecurrentDirection`.
        """
        expect(x.ndim == 3, "x [B, T, D]", x=x)
        if not self.widths:
            raise ValueError("widths needs at least one layer, got none")
        if states is None:
            states = empty_states(
                self.cell,
                self.widths,
                x.shape[0],
                bidirectional=self.bidirectional,
                dtype=self.compute.activation_dtype,
            )
        directions = ("forward", "backward") if self.bidirectional else ("forward",)
        if [len(layer) for layer in states] != [len(directions)] * len(self.widths):
            raise ValueError(
                f"expected states of {len(self.widths)} layers in {len(directions)} directions, "
                f"got {[len(layer) for layer in states]} directions of each layer"
            )
        after: list[LayerStates] = []
        for index, (width, layer_states) in enumerate(zip(self.widths, states, strict=True)):
            if index:
                x = LockedDropout(self.hidden_dropout_rate)(x, deterministic=deterministic)
            results = [
                RecurrentDirection(
                    self.cell,
                    width,
                    direction == "backward",
                    self.weight_dropout_rate,
                    self.forget_bias,
                    self.compute,
                    self.mogrifier_rounds,
                    self.mogrifier_rank,
                    name=f"layer_{index}_{direction}",
                )(x, state, deterministic=deterministic, lengths=lengths)
                for direction, state in zip(directions, layer_states, strict=True)
            ]
            x = results[0][0] if len(results) == 1 else jnp.concatenate([outputs for outputs, _ in results], axis=-1)
            after.append(tuple(state for _, state in results))
        return x, tuple(after)


def empty_states(
    cell: CellName, widths: tuple[int, ...], batch: int, *, bidirectional: bool = False, dtype: str = "float32"
) -> tuple[LayerStates, ...]:
    """States before any sequence: zeros, each array [B, K]."""
    directions = 2 if bidirectional else 1
    return tuple(
        tuple(tuple(jnp.zeros((batch, width), dtype) for _ in range(find_cell(cell).states)) for _ in range(directions))
        for width in widths
    )
