"""Recurrent layers over whole sequences: Elman's network, GRU and LSTM, with the gradients of their weights by hand.

With h_t the output at position t, each cell is a function of two products, u_t = x_t W_x + b and v_t = h_{t-1} W_h +
b_h:

    RNN    h_t = tanh(u_t + v_t), or ReLU
    GRU    r, z, n = u_t;  r', z', n' = v_t
           h_t = (1 - s(z + z')) tanh(n + s(r + r') n') + s(z + z') h_{t-1}
    LSTM   i, f, g, o = u_t + v_t;  c_t = s(f) c_{t-1} + s(i) tanh(g);  h_t = s(o) tanh(c_t)

with s the logistic function. u of all time steps is one product, before the scan. The gradients of the weights are one
product each, after the scan. With du_t and dv_t the gradients of a cell's products, and dh_t = dy_t + dv_{t+1} W_h^T,
they are

    dx = du W_x^T,   dW_x = x^T du,   db = sum(du),   dW_h = h_before^T dv,   db_h = sum(dv)

over all positions and the batch. Autodiff of a scan would add up T products of small matrices instead.

Which implementation computes what:

    platform        layer                                           auto    products
    CPU, TPU        all                                             scan    in `matmul_dtype`
    all             LSTM with a mogrifier                           scan    the same
    Nvidia GPU      LSTM, several positions, float32 or bfloat16    cuDNN   TF32
    Nvidia GPU      others, or a single position                    scan    `matmul_dtype`; TF32 in float32
    shared `model`  all, on GPUs that share this axis               scan    the same

cuDNN launches far fewer kernels: a training step of AWD-LSTM (1,150, 1,150 and 400 wide, batch 80 x 70) took an H100 48
ms with the scan of an early commit (9e239c394564) in bfloat16, and 28 ms with cuDNN, called from PyTorch, in TF32. JAX
calls cuDNN only in float32; TF32 keeps 10 bits of a fraction, bfloat16 7. XLA cannot divide a call of cuDNN among
devices: each device would compute the whole batch. On GPUs all widths are padded with zeros to multiples of 8, once,
outside the scan. That is exact: a unit without weights stays 0 in every cell.

Sources: Elman 1990; Cho et al. 2014 in the form of cuDNN and PyTorch, which applies r after the product; Hochreiter and
Schmidhuber 1997, and Gers et al. 2000 for the forget gate, without peepholes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax.experimental import rnn

from jaxnlp.ops.checks import UnavailableError, expect, expect_float
from jaxnlp.ops.devices import cuda_capability, gpu_count, is_divided, target_platform
from jaxnlp.ops.lstm import lstm_cell
from jaxnlp.ops.matrix_products import accumulator, column_sums, product, transposed
from jaxnlp.ops.mogrifier import Gate, mogrified_lstm

State = tuple[jax.Array, ...]
"""The state of a layer, arrays [B, K]; the output h first."""

RecurrentImplementation = Literal["auto", "scan", "cudnn"]


class Cell(NamedTuple):
    """One step of a recurrent network.

    Attributes:
      step: (u + v [B, G K], state) -> state if the cell is a function of the sum, else (u, v, state) -> state.
      gates: G, number of gates.
      states: number of arrays in the state.
      additive: whether the cell is a function of u + v.
    """

    step: Callable[..., State]
    gates: int
    states: int
    additive: bool


def _elman(z: jax.Array, state: State, *, nonlinearity: Callable[[jax.Array], jax.Array]) -> State:
    del state
    return (nonlinearity(z),)


def _gru(u: jax.Array, v: jax.Array, state: State) -> State:
    (h,) = state
    width = h.shape[-1]
    r, z = jnp.split(jax.nn.sigmoid(u[:, : 2 * width] + v[:, : 2 * width]), 2, axis=-1)
    n = jnp.tanh(u[:, 2 * width :] + r * v[:, 2 * width :])
    return (n + z * (h - n),)


def _lstm(z: jax.Array, state: State) -> State:
    return lstm_cell(z, state[1])


RNN_TANH = Cell(functools.partial(_elman, nonlinearity=jnp.tanh), gates=1, states=1, additive=True)
RNN_RELU = Cell(functools.partial(_elman, nonlinearity=jax.nn.relu), gates=1, states=1, additive=True)
GRU = Cell(_gru, gates=3, states=1, additive=False)
"""Gates in the order of PyTorch: reset, update, candidate."""
LSTM = Cell(_lstm, gates=4, states=2, additive=True)
"""Gates in the order of PyTorch: input, forget, candidate, output. States: h and c."""


def recurrent(
    cell: Cell,
    x: jax.Array,
    state: State,
    *,
    w_x: jax.Array,
    w_h: jax.Array,
    b: jax.Array,
    b_h: jax.Array | None = None,
    mogrifier: Sequence[Gate] = (),
    lengths: jax.Array | None = None,
    reverse: bool = False,
    matmul_dtype: jax.typing.DTypeLike | None = None,
    implementation: RecurrentImplementation = "auto",
) -> tuple[jax.Array, State]:
    """One layer over a whole sequence, see this module's docstring.

    Args:
      cell: RNN_TANH, RNN_RELU, GRU or LSTM.
      x: [B, T, D], float.
      state: before the sequence, each array [B, K].
      w_x: [D, G, K].
      w_h: [K, G, K].
      b: [G, K].
      b_h: [G, K], added to the product with h, which matters only in the GRU's candidate; None = zero.
      mogrifier: the gates of an LSTM with a mogrifier, see `ops.mogrifier`; () = none.
      lengths: [B] int, from 0 to T: number of real positions of each sequence; None = T. Padding keeps the state, and
        has output 0.
      reverse: read from each sequence's last position to its first.
      matmul_dtype: dtype that the products' operands are rounded to, see `ops.matrix_products`; None = the dtype of x.
      implementation: "scan"; "cudnn": cuDNN's LSTM on an Nvidia GPU, which vmap cannot map; its products are in TF32,
        or in float32 where `jax_default_matmul_precision` is "highest"; "auto": see this module's docstring.

    Returns:
      The outputs [B, T, K], dtype of x, each at its position, and the state after the sequence.

    Raises: ValueError for shapes that do not fit, and for cudnn where it is not available.
    """
    _check(cell, x, state, w_x, w_h, b, b_h, lengths)
    refusal = "has no mogrifier" if mogrifier else _why_not_cudnn(cell, (x, *state, w_x, w_h, b, b_h), matmul_dtype)
    if implementation == "cudnn" and refusal is not None:
        raise UnavailableError(f"implementation='cudnn' {refusal}; use 'auto' or 'scan'")
    if implementation not in ("auto", "scan", "cudnn"):
        raise ValueError(f"implementation must be auto, scan or cudnn, got {implementation!r}")
    if lengths is not None:  # padding may have any values, also NaN, which a product with 0 would pass on
        x = jnp.where((jnp.arange(x.shape[1])[None, :] < lengths[:, None])[:, :, None], x, jnp.zeros_like(x))
    if mogrifier:
        if cell is not LSTM:
            raise ValueError("a mogrifier applies only to an LSTM, got another cell")
        options: dict[str, Any] = {"lengths": lengths, "reverse": reverse, "matmul_dtype": matmul_dtype}
        return mogrified_lstm(x, state, mogrifier, w_x=w_x, w_h=w_h, b=b if b_h is None else b + b_h, **options)
    # For a single position, packing all weights takes too long; and cuDNN refuses empty sequences.
    if implementation == "auto" and refusal is None and x.shape[1] > 1 and x.shape[0] > 0 and not is_divided():
        implementation = "cudnn"
    if implementation == "cudnn":
        run = functools.partial(_cudnn_lstm, lengths=lengths, reverse=reverse)
    else:
        run = functools.partial(_by_scan, cell, lengths=lengths, reverse=reverse, matmul_dtype=matmul_dtype)
    arguments = (x, state, w_x, w_h, b, b_h)
    return _with_padded_widths(run, *arguments) if target_platform() == "gpu" else run(*arguments)


def _with_padded_widths(run, x, state, w_x, w_h, b, b_h):
    """`run` with D and K padded to multiples of 8, which fast products need on a GPU."""
    width = w_h.shape[0]

    def padded(array: jax.Array, *axes: int) -> jax.Array:
        return jnp.pad(array, [(0, -size % 8 if axis in axes else 0) for axis, size in enumerate(array.shape)])

    biases = (None if bias is None else padded(bias, 1) for bias in (b, b_h))
    state = tuple(padded(array, 1) for array in state)
    outputs, state = run(padded(x, 2), state, padded(w_x, 0, 2), padded(w_h, 0, 2), *biases)
    return outputs[:, :, :width], tuple(array[:, :width] for array in state)


def _by_scan(cell, x, state, w_x, w_h, b, b_h, lengths, reverse, matmul_dtype):
    positions = x.shape[1]
    valid = None if lengths is None else (jnp.arange(positions)[:, None] < lengths[None, :])[:, :, None]
    dtype = jnp.dtype(matmul_dtype or x.dtype).name
    # One matrix product computes all gates; in row-major order the reshape moves nothing in memory.
    columns = w_h.shape[1] * w_h.shape[2]
    w_x, w_h, b = w_x.reshape(x.shape[2], columns), w_h.reshape(w_h.shape[0], columns), b.reshape(columns)
    b_h = None if b_h is None else b_h.reshape(columns)
    return _recurrent(x, state, w_x, w_h, b, b_h, valid, cell, reverse, dtype)


def _check(cell, x, state, w_x, w_h, b, b_h, lengths) -> None:
    arrays = {"x": x, "w_x": w_x, "w_h": w_h, "b": b, "b_h": b_h} | {f"state_{i}": a for i, a in enumerate(state)}
    gates, count = cell.gates, cell.states
    fits = (
        x.ndim == 3
        and w_h.ndim == 3
        and len(state) == count
        and all(array.shape == (x.shape[0], w_h.shape[0]) for array in state)
        and w_h.shape[1:] == (gates, w_h.shape[0])
        and w_x.shape == (x.shape[2], *w_h.shape[1:])
        and b.shape == w_h.shape[1:]
        and (b_h is None or b_h.shape == b.shape)
        and (lengths is None or (lengths.shape == x.shape[:1] and jnp.issubdtype(lengths.dtype, jnp.integer)))
    )
    expected = f"x [B, T, D], w_x [D, {gates}, K], w_h [K, {gates}, K], b and b_h [{gates}, K], {count} states [B, K]"
    expect(fits, expected + ("" if lengths is None else ", lengths [B] int"), **arrays, lengths=lengths)
    expect_float(**arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(7, 8, 9))
def _recurrent(x, state, w_x, w_h, b, b_h, valid, cell, reverse, dtype):
    return _scan(x, state, w_x, w_h, b, b_h, valid, cell, reverse, dtype, cell_vjp=False)[0]


def _forward(x, state, w_x, w_h, b, b_h, valid, cell, reverse, dtype):
    return _scan(x, state, w_x, w_h, b, b_h, valid, cell, reverse, dtype, cell_vjp=True)


def _scan(x, state, w_x, w_h, b, b_h, valid, cell, reverse, dtype, *, cell_vjp):
    batch, positions, input_width = x.shape
    width, columns = w_h.shape  # K, G K
    wide = accumulator(x.dtype)
    # Time first, so that each step of the scan reads one block of memory.
    rows = x.swapaxes(0, 1).reshape(positions * batch, input_width).astype(dtype)
    short_w_h = w_h.astype(dtype)
    # Where the cell adds both products, both biases can be added here.
    early, late = (b, b_h) if b_h is None or not cell.additive else (b + b_h, None)
    u = product(rows, w_x.astype(dtype), "nd,dg->ng") + early.astype(wide)[None]
    u = u.reshape(positions, batch, columns)

    def step(state: State, now: Any) -> tuple[State, Any]:
        u, valid = now
        v = product(state[0].astype(dtype), short_w_h, "bk,kg->bg")
        if late is not None:
            v = v + late.astype(wide)[None]
        chex.assert_shape((u, v), (batch, columns))
        arguments = (u + v, state) if cell.additive else (u, v, state)
        # The pull-back is a tree of arrays, so the scan can keep the residuals of the cell. On an accelerator it keeps
        # the arguments: each array that is kept is a kernel in each time step, and the cell costs little.
        kept: Any = arguments[-2:] if cell_vjp else None
        if cell_vjp and target_platform() == "cpu":
            new, kept = jax.vjp(cell.step, *arguments)
        else:
            new = cell.step(*arguments)
        if valid is not None:
            new = tuple(jnp.where(valid, after, before) for after, before in zip(new, state, strict=True))
        return new, (new[0], kept)

    first = tuple(array.astype(wide) for array in state)
    final, (h, residuals) = jax.lax.scan(step, first, (u, valid), reverse=reverse)
    chex.assert_shape(h, (positions, batch, width))
    outputs = h if valid is None else jnp.where(valid, h, jnp.zeros_like(h))
    result = (
        outputs.swapaxes(0, 1).astype(x.dtype),
        tuple(a.astype(s.dtype) for a, s in zip(final, state, strict=True)),
    )
    given_u = None if target_platform() == "cpu" or cell.additive else u
    likes = (x[:0], tuple(array[:0] for array in state))
    return result, (rows, first[0], h, (given_u, residuals), w_x, w_h, b, b_h, valid, *likes)


def _backward(cell, reverse, dtype, residuals, cotangents):
    rows, first_h, h, kept_by_cell, w_x, w_h, b, b_h, valid, like_x, like_state = residuals
    d_outputs, d_final = cotangents
    positions, batch, width = h.shape
    input_width, columns = w_x.shape  # D, G K
    wide = h.dtype
    back_w_h = transposed(w_h.astype(dtype))

    def step(d_state: State, now: Any) -> tuple[State, Any]:
        dy, (u, kept), valid = now
        if target_platform() == "cpu":
            pull = kept
        else:
            _, pull = jax.vjp(cell.step, *(kept if u is None else (u, *kept)))
        d_new = (d_state[0] + dy, *d_state[1:])
        if valid is not None:
            d_new = tuple(jnp.where(valid, d, jnp.zeros_like(d)) for d in d_new)
        *d_products, d_before = pull(d_new)
        dv = d_products[-1]
        chex.assert_shape(d_products, (batch, columns))
        d_before = (d_before[0] + product(dv.astype(dtype), back_w_h, "bg,gk->bk"), *d_before[1:])
        if valid is not None:
            d_before = tuple(jnp.where(valid, before, after) for before, after in zip(d_before, d_state, strict=True))
        return d_before, tuple(d_products)

    last = tuple(d.astype(wide) for d in d_final)
    dy = d_outputs.swapaxes(0, 1).astype(wide)
    d_state, d_products = jax.lax.scan(step, last, (dy, kept_by_cell, valid), reverse=not reverse)
    # The gradients of the weights and of the input are one product each, for all time steps.
    du, dv = (d.reshape(positions * batch, columns) for d in (d_products[0], d_products[-1]))
    before = jnp.concatenate([h, first_h[None]])[1:] if reverse else jnp.concatenate([first_h[None], h])[:positions]
    before = before.reshape(positions * batch, width)
    short_du = du.astype(dtype)
    short_dv = short_du if cell.additive else dv.astype(dtype)
    dx = product(short_du, w_x.astype(dtype), "ng,dg->nd").reshape(positions, batch, input_width).swapaxes(0, 1)
    dw_x = product(transposed(rows), short_du, "dn,ng->dg")
    dw_h = product(transposed(before.astype(dtype)), short_dv, "kn,ng->kg")
    db = column_sums(du)
    chex.assert_shape(dx, (batch, positions, input_width))
    chex.assert_shape((dw_x, dw_h, db), [(input_width, columns), (width, columns), (columns,)])
    db_h = None
    if b_h is not None:
        db_h = (db if cell.additive else column_sums(dv)).astype(b_h.dtype)
    return (
        dx.astype(like_x.dtype),
        tuple(d.astype(like.dtype) for d, like in zip(d_state, like_state, strict=True)),
        dw_x.astype(w_x.dtype),
        dw_h.astype(w_h.dtype),
        db.astype(b.dtype),
        db_h,
        None,
    )


_recurrent.defvjp(_forward, _backward)


def _why_not_cudnn(cell: Cell, arrays: tuple[jax.Array | None, ...], matmul_dtype: Any) -> str | None:
    """Why cuDNN cannot compute this call; None = it can."""
    if cuda_capability() is None:
        return f"needs an Nvidia GPU, and the program is for the platform {target_platform()}"
    if not gpu_count():
        return "asks the GPU for the memory that it needs, and this machine has none"
    if cell is not LSTM:
        return "supports only LSTMs here"
    dtypes = {str(array.dtype) for array in arrays if array is not None}
    dtypes |= set() if matmul_dtype is None else {jnp.dtype(matmul_dtype).name}
    if not dtypes <= {"float32", "bfloat16"}:
        return f"computes in TF32 or float32, got {', '.join(sorted(dtypes))}"
    return None


def _cudnn_lstm(x, state, w_x, w_h, b, b_h, lengths, reverse):
    batch, positions, width = x.shape
    lengths = jnp.full(batch, positions, jnp.int32) if lengths is None else lengths.astype(jnp.int32)
    if reverse:
        x = _reversed(x, lengths)
    none, before = (lengths == 0)[:, None], state
    # The layout of cuDNN: W_x as [G, K, D], W_h as [G, K, K], then both biases.
    matrices = [jnp.moveaxis(w, 0, -1) for w in (w_x, w_h)]
    biases = [b, jnp.zeros_like(b) if b_h is None else b_h]
    weights = jnp.concatenate([array.reshape(-1).astype(jnp.float32) for array in (*matrices, *biases)])
    h, c = (array[None].astype(jnp.float32) for array in state)
    exact = jax.config.jax_default_matmul_precision in ("highest", "float32")  # type: ignore[attr-defined]
    precision = jax.lax.Precision.HIGHEST if exact else jax.lax.Precision.HIGH
    # cuDNN needs at least one position of each sequence.
    sizes = (jnp.maximum(lengths, 1), width, w_h.shape[0], 1, 0.0, False)
    y, h, c = rnn.lstm(x.astype(jnp.float32), h, c, weights, *sizes, precision)
    y = jnp.where(none[:, :, None], jnp.zeros_like(y), y).astype(x.dtype)
    after = tuple(jnp.where(none, old, new[0].astype(old.dtype)) for old, new in zip(before, (h, c), strict=True))
    return (_reversed(y, lengths) if reverse else y), after


def _reversed(x: jax.Array, lengths: jax.Array) -> jax.Array:
    """[B, T, D] with the first `lengths` positions of each sequence reversed, and the others unchanged."""
    positions = jnp.arange(x.shape[1])[None, :]
    indices = jnp.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)
    return jnp.take_along_axis(x, indices[:, :, None], axis=1)
