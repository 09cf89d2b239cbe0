"""Losses as sums and counts, in float32 at least, which add up exactly over batches, devices and padding."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.devices import target_platform
from jaxnlp.ops.matrix_products import accumulator, column_sums, product, stored, transposed


class TokenLosses(NamedTuple):
    """Losses of tokens, as sums over positions; differentiable scalars in float32, or in float64.

    Divide by `count` for the unit: nats per token.

    Attributes:
      objective: sum of the weighted losses in nats, with label smoothing and z-loss, to minimise.
      nll: sum of the weighted negative log-likelihoods of the targets in nats, without smoothing and z-loss.
      count: sum of the weights.
    """

    objective: jax.Array
    nll: jax.Array
    count: jax.Array  # type: ignore[assignment]  # hides tuple.count


def cross_entropy(
    logits: jax.Array,
    targets: jax.Array,
    loss_mask: jax.Array | None = None,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> TokenLosses:
    """Negative log-likelihood of the targets, summed.

    objective = sum_i m_i (Z_i - (1 - e) z_i,target(i) - e mean_v z_iv + c Z_i^2),   Z_i = log sum_v exp z_iv
    nll       = sum_i m_i (Z_i - z_i,target(i))
    count     = sum_i m_i

    The gradient is that of `linear_cross_entropy`, one array [..., V] in the dtype of the logits. Autodiff would add
    the targets' part by a scatter over [..., V] in float32, which is slow on accelerators. There is no forward mode.

    Args:
      logits: scores z [..., V], float.
      targets: [...] int, in [0, V); other targets have the loss NaN, unless they are masked.
      loss_mask: [...] bool or float weights m; None = ones. A weight of 0 has gradient 0.
      label_smoothing: e, the share of the target's probability that is spread evenly over all V.
      z_loss: c, which keeps the normaliser Z near 0, where float32 is exact.

    Returns:
      TokenLosses in float32, or in float64 for logits in float64. Without e and c, nll is the objective.

    Raises: ValueError when shapes do not fit, logits are not float, targets not int, or e is outside [0, 1).

    Source: Szegedy et al. 2016, section 7, for e; Chowdhery et al. 2022, section 5, for c.
    """
    fit = logits.ndim > 0 and logits.shape[:-1] == targets.shape and _fits(loss_mask, targets)
    expect(fit, "logits [..., V], targets and loss_mask [...]", logits=logits, targets=targets, loss_mask=loss_mask)
    expect_float(logits=logits)
    _check(targets, label_smoothing)
    wide = accumulator(logits.dtype)
    if loss_mask is not None:
        # A masked position may have any values, also NaN, which a product with 0 would pass on to the gradient.
        logits = jnp.where(loss_mask.astype(bool)[..., None], logits, jnp.zeros_like(logits))
    weights = jnp.ones(targets.shape, wide) if loss_mask is None else loss_mask.astype(wide)
    return _token_losses(_sums(_losses(logits, targets, label_smoothing, z_loss), weights), weights)


def token_nll(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """The negative log-likelihood of each target in nats, as in `cross_entropy`: logits [..., V], targets [...] ->
    [...], in float32 at least."""
    _check(targets, 0.0)
    return _losses(logits, targets, 0.0, 0.0)[0]


def _fits(loss_mask, targets) -> bool:
    return loss_mask is None or loss_mask.shape == targets.shape


def _check(targets, label_smoothing) -> None:
    if not jnp.issubdtype(targets.dtype, jnp.integer):
        raise ValueError(f"targets must be int, got {targets.dtype}")
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing}")


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _losses(z, targets, label_smoothing, z_loss):
    """Each token's objective [...] and, where they differ, its negative log-likelihood [...]."""
    return _losses_forward(z, targets, label_smoothing, z_loss)[0]


def _losses_forward(z, targets, label_smoothing, z_loss):
    wide = z.astype(accumulator(z.dtype))
    log_normaliser = jax.nn.logsumexp(wide, axis=-1)
    losses = _losses_from(wide, log_normaliser, targets, label_smoothing, z_loss)
    return losses, (z, log_normaliser, targets)


def _losses_backward(label_smoothing, z_loss, residuals, cotangents):
    z, log_normaliser, targets = residuals
    g, *g_nll = cotangents
    factor, of_target = g * (1.0 + 2.0 * z_loss * log_normaliser), (1.0 - label_smoothing) * g
    for each in g_nll:  # the softmax minus the target, without smoothing and z-loss
        factor, of_target = factor + each, of_target + each
    softmax = jnp.exp(z.astype(log_normaliser.dtype) - log_normaliser[..., None])
    dz = _gradient_of_logits(softmax, factor, targets, of_target, label_smoothing / z.shape[-1] * g)
    chex.assert_equal_shape([dz, z])
    return dz.astype(z.dtype), None


_losses.defvjp(_losses_forward, _losses_backward)


def _gradient_of_logits(exponentials, factor, targets, of_target, of_all):
    """factor exponentials - of_target onehot(target) - of_all, [..., V], without a scatter; the factors are [...]."""
    # In int32, since V may exceed what the targets' dtype holds.
    words = jax.lax.broadcasted_iota(jnp.int32, exponentials.shape, exponentials.ndim - 1)
    onehot = words == targets.astype(jnp.int32)[..., None]
    aim = jnp.where(onehot, (of_target + of_all)[..., None], of_all[..., None])
    return exponentials * factor[..., None] - aim


def _losses_from(z, log_normaliser, targets, label_smoothing, z_loss, vocabulary=None):
    """`_losses` of logits [..., V] or more: columns from V = `vocabulary` on are padding."""
    vocabulary = vocabulary or z.shape[-1]
    target = jnp.take_along_axis(z, targets[..., None], axis=-1)[..., 0]
    # JAX would count -1 from the end. -100, which means "no target" in PyTorch, belongs in the loss_mask.
    target = jnp.where((targets >= 0) & (targets < vocabulary), target, jnp.nan)
    aim = target
    if label_smoothing:
        aim = (1.0 - label_smoothing) * target + label_smoothing * z[..., :vocabulary].mean(axis=-1)
    losses = log_normaliser - aim
    if z_loss:
        losses = losses + z_loss * jnp.square(log_normaliser)
    return (losses, log_normaliser - target) if label_smoothing or z_loss else (losses,)


def _sums(losses, weights):
    """Weighted sums of what `_losses` returns."""
    return tuple((each * weights).sum() for each in _counted(losses, weights))


def _counted(losses, weights):
    # A masked target may be outside [0, V), where its loss is NaN.
    return tuple(jnp.where(weights != 0, each, 0.0) for each in losses)


def _token_losses(sums, weights) -> TokenLosses:
    return TokenLosses(sums[0], sums[-1], weights.sum())


def linear_cross_entropy(
    x: jax.Array,
    w: jax.Array,
    b: jax.Array | None,
    targets: jax.Array,
    loss_mask: jax.Array | None = None,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    chunk: int | None = None,
    matmul_dtype: jax.typing.DTypeLike | None = None,
) -> TokenLosses:
    """`cross_entropy` of logits = x W + b, for large vocabularies: the logits are never all in memory.

    One chunk of tokens is computed at a time, forward and backward together: the gradient of a chunk's logits is

        dz = m ((1 + 2 c Z) softmax(z) - (1 - e) onehot(target) - e / V)

    and becomes dx, dW and db before the next chunk's logits. So the forward pass computes all gradients; the backward
    scales them by the loss's cotangent. With e or c, a program that differentiates nll needs a second pass.

    Args:
      x: [N, D], float.
      w: [D, V].
      b: [V] or None.
      targets: [N] int, in [0, V).
      loss_mask: [N] bool or float weights m; None = ones. A weight of 0 has gradient 0.
      label_smoothing: e.
      z_loss: c.
      chunk: number of tokens in a chunk; None: see `chunk_length`. The extra memory is about two arrays [chunk, V] in
        float32, and W rounded to `matmul_dtype`. The last chunk is padded with weight 0.
      matmul_dtype: dtype that the products' operands are rounded to; None = the dtype of x.

    Returns:
      TokenLosses in float32, or in float64 for x in float64.

    Raises: ValueError when shapes do not fit, x, w or b is not float, targets are not int, e is outside [0, 1), or
      chunk is below 1.

    Source: as `cross_entropy`; Wijmans et al. 2025 for the loss without all logits in memory.
    """
    fit = (
        x.ndim == w.ndim == 2
        and x.shape == (*targets.shape, w.shape[0])
        and (b is None or b.shape == w.shape[1:])
        and _fits(loss_mask, targets)
    )
    expected = "x [N, D], w [D, V], b [V] or None, targets and loss_mask [N]"
    expect(fit, expected, x=x, w=w, b=b, targets=targets, loss_mask=loss_mask)
    expect_float(x=x, w=w, b=b)
    _check(targets, label_smoothing)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1 token, got {chunk}")
    count = x.shape[0]
    wide = accumulator(x.dtype)
    weights = jnp.ones(count, wide) if loss_mask is None else loss_mask.astype(wide)
    if loss_mask is not None:
        x = jnp.where(loss_mask.astype(bool)[:, None], x, jnp.zeros_like(x))  # see cross_entropy
    vocabulary = w.shape[1]
    chunk = chunk_length(count, vocabulary) if chunk is None else max(1, min(count, chunk))
    if target_platform() != "cpu":
        # Once, for products that are fast. XLA would do it for each chunk, and cut each chunk's logits again.
        padding = -vocabulary % 128
        w = jnp.pad(w, [(0, 0), (0, padding)])
        b = None if b is None else jnp.pad(b, (0, padding))

    dtype = jax.dtypes.canonicalize_dtype(matmul_dtype or x.dtype).name
    chunks_of = (dealt(x, chunk), w, b, dealt(targets, chunk), dealt(weights, chunk))
    objective, *nll = _linear_cross_entropy(*chunks_of, vocabulary, label_smoothing, z_loss, dtype)
    sums = (objective, *(_nll(jax.lax.stop_gradient(each), *chunks_of, vocabulary, dtype) for each in nll))
    return _token_losses(sums, weights)


MAX_LOGITS = {"cpu": 2**24, "gpu": 2**27, "tpu": 2**27}
"""Maximum number of logits in a default chunk of `linear_cross_entropy`: two arrays in float32 take 128 MiB, or 1
GiB."""


def chunk_length(tokens: int, vocabulary: int) -> int:
    """The default number of tokens in a chunk of `linear_cross_entropy`, about `MAX_LOGITS` / V at most.

    Each chunk reads W, and reads and writes its gradient. On a CPU that is cheap next to a chunk's products, and short
    chunks stay in the caches. On an accelerator it costs as much as the products of about 200 tokens, so chunks are
    long: 16,384 tokens, D = 768 and V = 50,304 take an H100 18.3 ms with 2^24 logits in a chunk, 11.9 with 2^27 and
    11.7 with 2^29, as estimated from the compiled program. They are also equal, and a multiple of 8 tokens, which
    bfloat16 products need.
    """
    platform = target_platform()
    longest = max(1, MAX_LOGITS[platform] // vocabulary)
    if platform == "cpu" or tokens <= longest:
        return max(1, min(tokens, longest))
    equal = -(-tokens // -(-tokens // longest))
    return min(tokens, equal + -equal % 8)


def dealt(x: jax.Array, chunk: int) -> jax.Array:
    """[N, ...] in chunks with zeros at the end: [chunks, chunk, ...].

    Token i is in chunk i modulo the number of chunks: if devices share the tokens, each has a part of every chunk.
    """
    chunks = -(-len(x) // chunk)
    padded = jnp.pad(x, [(0, chunks * chunk - len(x))] + [(0, 0)] * (x.ndim - 1))
    return padded.reshape(chunk, chunks, *x.shape[1:]).swapaxes(0, 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6, 7, 8))
def _linear_cross_entropy(x, w, b, targets, weights, vocabulary, label_smoothing, z_loss, dtype):
    short_w = w.astype(dtype)

    def add_chunk(totals, chunk):
        x, targets, weights = chunk
        z = _without_padding(_logits(x, short_w, b, dtype), vocabulary)
        losses = _losses_from(z, jax.nn.logsumexp(z, axis=-1), targets, label_smoothing, z_loss, vocabulary)
        return _added(totals, _sums(losses, weights)), None

    return jax.lax.scan(add_chunk, _no_losses(label_smoothing, z_loss, weights.dtype), (x, targets, weights))[0]


def _no_losses(label_smoothing, z_loss, dtype):
    return tuple(jnp.zeros((), dtype) for _ in range(2 if label_smoothing or z_loss else 1))


def _added(totals, sums):
    return tuple(total + more for total, more in zip(totals, sums, strict=True))


def _logits(x, short_w, b, dtype):
    wide = accumulator(x.dtype)
    z = product(x.astype(dtype), short_w, "nd,dv->nv").astype(wide)
    return z if b is None else z + b.astype(wide)[None]


def _without_padding(z, vocabulary):
    """Logits with -inf in the padding, the columns from V on: their probabilities are exactly 0."""
    if z.shape[-1] == vocabulary:
        return z
    words = jax.lax.broadcasted_iota(jnp.int32, z.shape, z.ndim - 1)
    return jnp.where(words < vocabulary, z, -jnp.inf)


def _row_bounds(scores, b):
    """An upper bound on the logits scores + b of each row, [N], at most `LOOSE` above the highest of them.

    On CPU it is the row's highest score plus the highest bias, if the biases are within `LOOSE` of each other. For the
    exact maximum XLA would write scores + b to memory, as slowly as the product.
    """
    if b is None:
        return scores.max(axis=-1)
    if target_platform() != "cpu":
        return (scores + b[None]).max(axis=-1)
    return jax.lax.cond(
        b.max() - b.min() < LOOSE,
        lambda: scores.max(axis=-1) + b.max(),
        lambda: (scores + b[None]).max(axis=-1),
    )


LOOSE = 32.0
"""If the highest exponential is exp(-32), no relevant term underflows. In float32 exponents of this size are rounded to
1e-6, and so is the loss of a token."""


def _linear_forward(x, w, b, targets, weights, vocabulary, label_smoothing, z_loss, dtype):
    short_w = w.astype(dtype)
    width, columns = w.shape  # V, or more on accelerators

    def add_chunk(carry, chunk):
        totals, dw, db = carry
        x, targets, weights = chunk
        tokens = len(targets)
        scores = _without_padding(_logits(x, short_w, None, dtype), vocabulary)
        chex.assert_shape(scores, (tokens, columns))
        bias = None if b is None else b.astype(scores.dtype)
        z = scores if bias is None else scores + bias[None]
        highest = _row_bounds(scores, bias)
        exponentials = stored(jnp.exp(z - highest[:, None]))
        sums = exponentials.sum(axis=-1)
        log_normaliser = highest + jnp.log(sums)
        chex.assert_shape((highest, sums, log_normaliser), (tokens,))
        losses = _losses_from(z, log_normaliser, targets, label_smoothing, z_loss, vocabulary)
        factor = weights * (1.0 + 2.0 * z_loss * log_normaliser) / sums
        of_target, of_all = (share * weights for share in (1.0 - label_smoothing, label_smoothing / vocabulary))
        dz = stored(_gradient_of_logits(exponentials, factor, targets, of_target, of_all).astype(dtype))
        chex.assert_shape((exponentials, dz), (tokens, columns))
        dx = product(dz, short_w, "nv,dv->nd").astype(x.dtype)
        dw = dw + product(transposed(x.astype(dtype)), dz, "dn,nv->dv")
        if db is not None:
            db = db + column_sums(dz)
            chex.assert_shape(db, (columns,))
        chex.assert_shape((dx, dw), [(tokens, width), (width, columns)])
        return (_added(totals, _sums(losses, weights)), dw, db), (dx, _counted(losses, weights)[0])

    wide = accumulator(dtype)
    no_losses = _no_losses(label_smoothing, z_loss, weights.dtype)
    zeros = (no_losses, jnp.zeros(w.shape, wide), None if b is None else jnp.zeros(b.shape, wide))
    (totals, dw, db), (dx, dweights) = jax.lax.scan(add_chunk, zeros, (x, targets, weights))
    return totals, (dx, dw.astype(w.dtype), None if db is None else db.astype(b.dtype), None, dweights)


def _linear_backward(vocabulary, label_smoothing, z_loss, dtype, gradients, cotangents):
    del vocabulary, label_smoothing, z_loss, dtype
    return _scaled(gradients, cotangents[0])  # the negative log-likelihood has its gradient from `_nll`


def _scaled(gradients, cotangent):
    return jax.tree.map(lambda g: g * cotangent.astype(g.dtype), gradients)


_linear_cross_entropy.defvjp(_linear_forward, _linear_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def _nll(value, x, w, b, targets, weights, vocabulary, dtype):
    """The negative log-likelihood, with a known value. A program that differentiates it computes all logits again."""
    del x, w, b, targets, weights, vocabulary, dtype
    return value


def _nll_forward(value, x, w, b, targets, weights, vocabulary, dtype):
    del vocabulary, dtype
    return value, (x, w, b, targets, weights)


def _nll_backward(vocabulary, dtype, arguments, cotangent):
    x, w, b, targets, weights = arguments
    _, gradients = _linear_forward(x, w, b, targets, weights, vocabulary, 0.0, 0.0, dtype)
    return None, *_scaled(gradients, cotangent)


_nll.defvjp(_nll_forward, _nll_backward)
