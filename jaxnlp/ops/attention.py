"""Scaled dot-product attention over several heads, with its gradient derived by hand.

Forward, for one head, with queries Q [T, K], keys K and values V [S, K]:

    Z = Q K^T / sqrt(K) + P      scores         [T, S], P an optional bias, such as one of relative positions
    A = softmax(Z)               weights        [T, S], each row sums to 1
    Y = A V                      mixed values   [T, K]

Backward, from dY, the gradient of a loss with respect to Y:

    dV = A^T dY                                  product rule of Y = A V, right factor
    dA = dY V^T                                  left factor
    dZ = A * (dA - sum_s(A * dA))                each row times the softmax's Jacobian, diag(a) - a a^T, never built
    dQ = dZ K / sqrt(K)                          product rule of Z, left factor
    dK = dZ^T Q / sqrt(K)                        right factor
    dP = dZ                                      summed over the axes along which P is broadcast

Dropout multiplies A by M, zeros and 1 / (1 - rate), on its way to V: then dV = (A * M)^T dY and dA = M * (dY V^T).

On a CPU the forward pass keeps only A of the three [T, S] arrays. On an accelerator it keeps none, and A is computed
again: there memory is scarcer than arithmetic. Since Y = A V, the sum over s is a sum over k of small arrays, also
under dropout: sum_s(A * dA) = sum_k(Y * dY). M is computed again.

On Nvidia GPUs and TPUs `ops.flash_attention` and cuDNN serve most calls, without an array [T, S] in memory.
"""

import functools
from typing import Any, Literal, NamedTuple, get_args

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.ops import masks
from jaxnlp.ops.attention_kernels import attend_cudnn, attend_flash, moved, why_not_cudnn, why_not_flash
from jaxnlp.ops.checks import UnavailableError, expect, expect_float
from jaxnlp.ops.devices import is_divided, target_platform
from jaxnlp.ops.dropout_masks import check_rate, keep_mask, scaled
from jaxnlp.ops.matrix_products import accumulator, product, row_major, transposed

Implementation = Literal["auto", "vjp", "xla", "cudnn", "flash"]

QUERY_BLOCK = 64
"""Number of queries in a block of causal attention, whose products leave out later keys."""
MAX_QUERY_BLOCKS = 8
"""Maximum number of blocks, which bounds the size of the program. 8 blocks save 7/16 of the work, of at most 1/2."""


def dot_product_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    attention_mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    causal: bool = False,
    first_query: int | jax.Array = 0,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    dropout_key: jax.Array | None = None,
    first_row: int | jax.Array = 0,
    implementation: Implementation = "auto",
) -> jax.Array:
    """Values mixed by how well their keys match each query.

    Y = softmax(Q K^T * scale + bias) V

    Args:
      q: queries [B, T, H, K], float.
      k: keys [B, S, G, K]; G divides H: each key head serves H / G query heads. G = H: multi-head attention; G = 1:
        multi-query attention.
      v: values [B, S, G, K].
      attention_mask: [B or 1, H or 1, T or 1, S] bool, True = may attend; None = all. `masks.from_additive` converts
        masks of 0 and -inf.
      bias: [B or 1, H or 1, T or 1, S or 1] float, finite, added to the scaled scores, with a gradient; None = zero. To
        hide keys use attention_mask.
      causal: query t sees only the keys 0..first_query + t, without a mask.
      first_query: position of the first query among the keys, at least 0, for `causal`: the number of earlier keys in a
        cache. With a Python int the products leave out keys after a block's last query; with an array [] int all keys
        are multiplied.
      scale: factor on the scores; None = 1 / sqrt(K). A Python number; only "xla" takes a traced one.
      dropout_rate: share of the weights dropped, in [0, 1).
      dropout_key: random key for it; None = no dropout.
      first_row: position in the whole batch of this shard's first example (see `ops.dropout_masks`).
      implementation: one of
        "vjp": the gradient of this module's docstring. It has no forward mode: JAX "can't apply forward-mode autodiff
        (jvp)" to it.
        "xla": autodiff, which also serves `jax.jvp`, `jax.jacfwd`, `jax.linearize` and second derivatives.
        "cudnn": JAX's fused attention on an Nvidia GPU, in bfloat16 or float16, without dropout and bias.
        "flash": `ops.flash_attention` on an Nvidia GPU or a TPU, with dropout and a mask of keys [B or 1, 1, 1, S],
        without bias.
        "auto": "cudnn" where it is available, for attention_mask None and first_query 0; then "flash" where it takes
        the call; else "vjp".

    Returns:
      [B, T, H, K], dtype of q. A fully masked row is zero, and so is its gradient.

    Raises:
      ValueError: when shapes do not fit, arrays are not float, the rate is outside [0, 1), or the implementation does
        not support the call.
      TypeError: for a traced scale with another implementation than "xla".

    Source: Vaswani et al. 2017, section 3.2.1, eq. 1; Shazeer 2019 for fewer key heads. Differs: softmax in float32.
    """
    return _attend(
        (q, k, v),
        attention_mask=attention_mask,
        bias=bias,
        causal=causal,
        first_query=first_query,
        scale=scale,
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        first_row=first_row,
        implementation=implementation,
    )


def packed_attention(*packed: jax.Array, **settings: Any) -> jax.Array:
    """`dot_product_attention` of the packed output of a projection, which kernels read without unpacking.

    Args:
      packed: qkv [B, T, 3, H, K]; or q [B, T, H, K] and kv [B, S, 2, G, K].
      settings: as for `dot_product_attention`.

    Returns: [B, T, H, K].
    """
    return _attend(packed, **settings)


def unpacked(*packed: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """q [B, T, H, K], k and v [B, S, G, K] from the arrays of `packed_attention`."""
    parts = list[jax.Array]()
    for x in packed:
        if x.ndim == 5 and is_divided():  # devices may share the heads
            parts += [x[:, :, part] for part in range(x.shape[2])]
        elif x.ndim == 5:
            # As rows: XLA on CPU splits these as it splits any other.
            rows = jnp.split(x.reshape(x.shape[0] * x.shape[1], -1), x.shape[2], axis=-1)
            parts += [part.reshape(*x.shape[:2], *x.shape[3:]) for part in rows]
        else:
            parts.append(x)
    expect(len(parts) == 3, "qkv [B, T, 3, H, K], or q [B, T, H, K] and kv [B, S, 2, G, K]", packed=packed[-1])
    return parts[0], parts[1], parts[2]


def _attend(
    packed,
    *,
    attention_mask=None,
    bias=None,
    causal=False,
    first_query=0,
    scale=None,
    dropout_rate=0.0,
    dropout_key=None,
    first_row=0,
    implementation="auto",
):
    q, k, v = unpacked(*packed)
    _check(q, k, v, attention_mask, bias, first_query)
    check_rate(dropout_rate)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if isinstance(scale, jax.core.Tracer) and implementation != "xla":
        raise TypeError(
            f"implementation={implementation!r} takes a scale that is a number, got a traced array; multiply q by it "
            "and pass scale=1.0, or use 'xla'"
        )
    if dropout_key is None or dropout_rate == 0.0:
        dropout_key, dropout_rate = None, 0.0
    refusals = {
        "cudnn": why_not_cudnn(q, dropout_key, bias),
        "flash": why_not_flash(q, k, attention_mask, bias, causal, first_query),
    }
    if refusals.get(implementation) is not None:
        raise UnavailableError(f"implementation={implementation!r} {refusals[implementation]}; use 'auto' or 'vjp'")
    if implementation not in get_args(Implementation):
        names = ", ".join(get_args(Implementation)[:-1])
        raise ValueError(f"implementation must be {names} or {get_args(Implementation)[-1]}, got {implementation!r}")
    if implementation == "auto":
        unmasked = attention_mask is None and not (causal and moved(first_query))
        usable = [name for name, refusal in refusals.items() if refusal is None and (name == "flash" or unmasked)]
        implementation = usable[0] if usable else "vjp"
    if implementation == "cudnn":
        return attend_cudnn(q, k, v, attention_mask, causal, first_query, scale)
    first_row = jnp.asarray(first_row, jnp.uint32)
    if implementation == "flash":
        return attend_flash(
            packed, attention_mask, causal, first_query, scale, dropout_rate, dropout_key, first_row=first_row
        )

    if k.shape[2] != q.shape[2]:
        k, v = (jnp.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    # One transposition each, instead of one inside every product.
    q, k, v = (row_major(x.swapaxes(1, 2)) for x in (q, k, v))
    attend_heads = _attend_xla if implementation == "xla" else _attend_vjp
    traced = not isinstance(first_query, int | np.integer)
    known, traced_query = (None, jnp.asarray(first_query)) if traced else (int(first_query), None)
    settings = _Settings(causal, known, scale, dropout_rate, target_platform() == "cpu")
    y = attend_heads(q, k, v, bias, attention_mask, dropout_key, first_row, traced_query, settings)
    return y.swapaxes(1, 2)


def attention_weights(
    q: jax.Array,
    k: jax.Array,
    *,
    attention_mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    causal: bool = False,
    first_query: int | jax.Array = 0,
    scale: float | None = None,
) -> jax.Array:
    """The attention weights of `dot_product_attention`, before dropout, for inspection.

    A = softmax(Q K^T * scale + bias)

    Args:
      q, k, attention_mask, bias, causal, first_query, scale: as for `dot_product_attention`.

    Returns:
      [B, H, T, S], float32 at least; each row sums to 1, and a fully masked one is zero.

    Raises: ValueError when shapes do not fit, or arrays are not float.
    """
    _check(q, k, k, attention_mask, bias, first_query)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    k = jnp.repeat(k, q.shape[2] // k.shape[2], axis=2)
    visible = _visible(attention_mask, causal, first_query, _Block(0, q.shape[1], k.shape[1]))
    return _weights(q.swapaxes(1, 2), k.swapaxes(1, 2), bias, visible, scale)


def _check(q, k, v, attention_mask, bias, first_query) -> None:
    fit = (
        q.ndim == k.ndim == 4
        and k.shape == v.shape
        and (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3])
        and k.shape[2] > 0
        and q.shape[2] % k.shape[2] == 0
    )
    expect(fit, "q [B, T, H, K] and k, v [B, S, G, K] with H divisible by G", q=q, k=k, v=v)
    expect_float(q=q, k=k, v=v)
    if attention_mask is not None and attention_mask.dtype != jnp.bool_:
        raise ValueError(f"attention_mask must be bool, got {attention_mask.dtype}; see masks.from_additive")
    expect_float(bias=bias)
    full = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    for name, array in (("an attention_mask", attention_mask), ("a bias", bias)):
        if array is not None and (
            array.ndim != 4 or any(m not in (1, n) for m, n in zip(array.shape, full, strict=True))
        ):
            raise ValueError(f"expected {name} that broadcasts to {full}, got {array.shape}")
    if jnp.shape(first_query) != () or not jnp.issubdtype(jnp.result_type(first_query), jnp.integer):
        raise ValueError(
            f"first_query must be one int, got {jnp.result_type(first_query)} of shape {jnp.shape(first_query)}"
        )
    if isinstance(first_query, int | np.integer) and first_query < 0:
        raise ValueError(f"first_query must be at least 0, got {first_query}")


class _Block(NamedTuple):
    """A run of queries, and the number of keys that they may see."""

    start: int
    stop: int
    keys: int


class _Settings(NamedTuple):
    """Static arguments. `first_query` is None where it is an array. `for_cpu`: blocks of queries, and kept weights."""

    causal: bool
    first_query: int | None
    scale: float
    dropout_rate: float
    for_cpu: bool


def _visible(attention_mask, causal: bool, first_query, block: _Block) -> jax.Array | None:
    """Whether the block's queries see its keys; None = all do."""
    past = None
    if causal:
        past = masks.causal(block.stop - block.start, block.keys, first_query=first_query + block.start)
    if attention_mask is None:
        return past
    visible = _part(attention_mask, block)
    return visible if past is None else visible & past


def _part(x, block: _Block):
    """The block's rows and columns of an array that broadcasts to [B, H, T, S]."""
    rows = slice(None) if x.shape[2] == 1 else slice(block.start, block.stop)
    columns = slice(None) if x.shape[3] == 1 else slice(0, block.keys)
    return x[:, :, rows, columns]


def _weights(q, k, bias, visible, scale):
    """The weights A [B, H, T, S] in float32 at least; `visible` masks the keys of each query."""
    wide = accumulator(q.dtype)
    # The factor goes to the scores, where one loop does it together with the mask.
    scores = product(q, k, "bhtk,bhsk->bhts") * jnp.asarray(scale, wide)
    if bias is not None:
        scores = scores + bias.astype(wide)
    if visible is None:
        return jax.nn.softmax(scores, axis=-1)
    weights = jax.nn.softmax(jnp.where(visible, scores, jnp.finfo(wide).min), axis=-1)
    # The softmax of a fully masked row is uniform over keys that it must not see.
    return jnp.where(visible, weights, jnp.zeros((), wide))


def _attend_xla(q, k, v, bias, attention_mask, dropout_key, first_row, traced_query, settings):
    first_query = traced_query if settings.first_query is None else settings.first_query
    visible = _visible(attention_mask, settings.causal, first_query, _Block(0, q.shape[2], k.shape[2]))
    weights = _weights(q, k, bias, visible, settings.scale)
    if dropout_key is not None:  # not `dropout`, which has no forward-mode derivative
        kept = keep_mask(dropout_key, weights.shape, settings.dropout_rate, first_row=first_row)
        weights = jnp.where(kept, weights * jnp.asarray(1.0 / (1.0 - settings.dropout_rate), weights.dtype), 0)
    return jnp.einsum("bhts,bhsk->bhtk", weights.astype(v.dtype), v)


def _blocks(queries: int, keys: int, settings: _Settings) -> list[_Block]:
    if not settings.for_cpu or not settings.causal or settings.first_query is None or queries == 0:
        return [_Block(0, queries, keys)]
    size = -(-queries // min(MAX_QUERY_BLOCKS, -(-queries // QUERY_BLOCK)))
    runs = [(start, min(start + size, queries)) for start in range(0, queries, size)]
    return [_Block(start, stop, min(settings.first_query + stop, keys)) for start, stop in runs]


def _drop(x, block, shape, rate, key, first_row):
    """Dropout of a block of the weights of `shape`: a window of the mask of `ops.dropout_masks`."""
    if key is None:
        return x
    kept = keep_mask(key, x.shape, rate, first_row=first_row, whole=shape, offset=(0, block.start, 0))
    return scaled(x, kept, rate)


@functools.partial(jax.custom_vjp, nondiff_argnums=(8,))
def _attend_vjp(q, k, v, bias, attention_mask, dropout_key, first_row, traced_query, settings):
    return _forward(q, k, v, bias, attention_mask, dropout_key, first_row, traced_query, settings)[0]


def _forward(q, k, v, bias, attention_mask, dropout_key, first_row, traced_query, settings):
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    chex.assert_shape((k, v), (batch, heads, keys, width))
    shape = (batch, heads, queries, keys)
    first_query = traced_query if settings.first_query is None else settings.first_query
    ys, kept = [], []
    for block in _blocks(queries, keys, settings):
        visible = _visible(attention_mask, settings.causal, first_query, block)
        block_bias = None if bias is None else _part(bias, block)
        block_q, block_k = q[:, :, block.start : block.stop], k[:, :, : block.keys]
        weights = _weights(block_q, block_k, block_bias, visible, settings.scale)
        chex.assert_shape(weights, (batch, heads, block.stop - block.start, block.keys))
        dropped = _drop(weights, block, shape, settings.dropout_rate, dropout_key, first_row).astype(v.dtype)
        ys.append(product(dropped, v[:, :, : block.keys], "bhts,bhsk->bhtk"))
        kept.append(weights.astype(v.dtype) if settings.for_cpu else None)
    y = _joined(ys).astype(q.dtype)
    chex.assert_shape(y, (batch, heads, queries, width))
    # The backward pass needs only the shape and the dtype of the bias. An empty array has both.
    like_bias = None if bias is None else jnp.zeros((0, *bias.shape), bias.dtype)
    again = None if settings.for_cpu else (bias, attention_mask, traced_query)
    return y, (q, k, v, y, kept, again, like_bias, dropout_key, first_row)


def _backward(settings, residuals, dy):
    q, k, v, y, kept, again, like_bias, dropout_key, first_row = residuals
    wide = accumulator(q.dtype)
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    shape = (batch, heads, queries, keys)
    dy = row_major(dy)
    if again is not None:
        # Without the barrier, XLA would find that the forward pass has computed the weights, and keep those.
        q, k, dy = jax.lax.optimization_barrier((q, k, dy))
        bias, attention_mask, traced_query = again
        first_query = traced_query if settings.first_query is None else settings.first_query
        [block] = _blocks(queries, keys, settings)
        visible = _visible(attention_mask, settings.causal, first_query, block)
        kept = [_weights(q, k, bias, visible, settings.scale).astype(v.dtype)]
    delta = (y.astype(wide) * dy.astype(wide)).sum(axis=-1, keepdims=True)
    chex.assert_shape(delta, (batch, heads, queries, 1))
    dq, dk, dv, dz_sums = [], [], [], []
    for block, weights in zip(_blocks(queries, keys, settings), kept, strict=True):
        rows, columns = slice(block.start, block.stop), slice(0, block.keys)
        dropped = _drop(weights, block, shape, settings.dropout_rate, dropout_key, first_row)
        dv.append(product(transposed(dy[:, :, rows]), dropped, "bhkt,bhts->bhks"))
        da = product(dy[:, :, rows], v[:, :, columns], "bhtk,bhsk->bhts")
        da = _drop(da, block, shape, settings.dropout_rate, dropout_key, first_row)
        dz = weights.astype(wide) * (da - delta[:, :, rows])
        chex.assert_shape(dz, (batch, heads, block.stop - block.start, block.keys))
        if like_bias is not None:
            dz_sums.append(_summed_over_broadcast(dz, like_bias.shape[1:], keys))
        dz = dz.astype(q.dtype)
        dq.append(product(dz, k[:, :, columns], "bhts,bhsk->bhtk"))
        dk.append(product(transposed(q[:, :, rows]), dz, "bhkt,bhts->bhks"))
    # The factor last, in float32: bfloat16 operands would be rounded once more.
    dq = _joined(dq) * jnp.asarray(settings.scale, wide)
    dk = _summed(dk, keys) * jnp.asarray(settings.scale, wide)
    dv = _summed(dv, keys)
    dk, dv = dk.swapaxes(2, 3), dv.swapaxes(2, 3)
    chex.assert_shape(dq, (batch, heads, queries, width))
    chex.assert_shape((dk, dv), (batch, heads, keys, width))
    dbias = None
    if like_bias is not None:
        dbias = (sum(dz_sums) if like_bias.shape[3] == 1 else _joined(dz_sums)).astype(like_bias.dtype)
        chex.assert_shape(dbias, like_bias.shape[1:])
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), dbias, None, None, None, None


_attend_vjp.defvjp(_forward, _backward)


def _joined(parts):
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=2)


def _summed(parts, keys: int):
    """The sum of arrays [B, H, K, s], whose last axis has only the first s of the keys."""
    return sum(jnp.pad(part, [(0, 0)] * 3 + [(0, keys - part.shape[3])]) for part in parts)


def _summed_over_broadcast(dz, shape: tuple[int, ...], keys: int):
    """A block's part of the gradient of a bias [B or 1, H or 1, T or 1, S or 1]: dz [B, H, t, s] summed over the
    broadcast axes, with 0 for the keys that the block leaves out."""
    dz = dz.sum(axis=tuple(axis for axis in range(4) if shape[axis] == 1), keepdims=True)
    return dz if shape[3] == 1 else _summed([dz], keys)
