"""Cross-entropy against a sample of the vocabulary, for training where the output layer costs more than the model.

The softmax of a vocabulary of V words is mostly a sum over rare words. This loss sums all frequent words, and a sample
for the rare words:

    l_i = log(e^z_iy + sum_{v in F, v != y} e^z_iv + R / S sum_{s drawn, s != y} e^z_is) - z_iy

In this file y is the target of token i, F the frequent words, R the number of rare ones, and S the number of draws
among them, with replacement. A rare word is drawn S / R times on average, so the sum in the logarithm is right in
expectation; the target's own term is exact. The logarithm is concave: the expected loss is at most the exact one, and
approaches it as S grows.
"""

import functools

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.embeddings import embed
from jaxnlp.ops.losses import TokenLosses
from jaxnlp.ops.matrix_products import accumulator, column_sums, product, stored, transposed


def sampled_cross_entropy(
    x: jax.Array,
    w: jax.Array,
    b: jax.Array | None,
    targets: jax.Array,
    loss_mask: jax.Array | None = None,
    *,
    frequent: jax.Array,
    rare: jax.Array,
    samples: int,
    key: jax.Array,
    matmul_dtype: jax.typing.DTypeLike | None = None,
) -> TokenLosses:
    """An estimate of `losses.linear_cross_entropy` from F + S of the V words, the same ones for all tokens.

    Args:
      x: [N, D], float.
      w: [D, V].
      b: [V] or None.
      targets: [N] int, in [0, V); other targets have the loss NaN, unless they are masked.
      loss_mask: [N] bool or float weights; None = ones. A weight of 0 has gradient 0.
      frequent: [F] int, words that are always summed.
      rare: [R] int, all others, once each.
      samples: S, number of drawn rare words.
      key: random key of the sample.
      matmul_dtype: dtype that the operands of products are rounded to; None = the dtype of x.

    Returns:
      TokenLosses in float32, or in float64 for x in float64; nll is the objective. Gradients reach x, the weights, and
      w and b of summed words.

    Raises: ValueError when shapes do not fit, x, w or b is not float, targets are not int, or samples is below 1.

    Source: Bengio and Senecal 2008 for sampling the normaliser; Jozefowicz et al. 2016, section 3.1, for one sample
    shared by a batch. Differs: all frequent words are summed.
    """
    fit = (
        x.ndim == w.ndim == 2
        and x.shape == (*targets.shape, w.shape[0])
        and (b is None or b.shape == w.shape[1:])
        and (loss_mask is None or loss_mask.shape == targets.shape)
        and frequent.ndim == rare.ndim == 1
        and len(frequent) + len(rare) == w.shape[1]
        and len(rare) > 0
    )
    expected = (
        "x [N, D], w [D, V], b [V] or None, targets and loss_mask [N], frequent [F] and rare [R], F + R = V, R > 0"
    )
    arrays = {"x": x, "w": w, "b": b, "targets": targets, "loss_mask": loss_mask, "frequent": frequent, "rare": rare}
    expect(fit, expected, **arrays)
    expect_float(x=x, w=w, b=b)
    if not jnp.issubdtype(targets.dtype, jnp.integer):
        raise ValueError(f"targets must be int, got {targets.dtype}")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    wide = accumulator(x.dtype)
    weights = jnp.ones(len(targets), wide) if loss_mask is None else loss_mask.astype(wide)
    if loss_mask is not None:
        x = jnp.where(loss_mask.astype(bool)[:, None], x, jnp.zeros_like(x))  # see losses.cross_entropy
        targets = jnp.where(loss_mask.astype(bool), targets, 0)
    # JAX would count -1 from the end. Rows after the end are NaN, and so is the loss.
    targets = jnp.where(targets >= 0, targets, w.shape[1])
    drawn = rare[jax.random.randint(key, (samples,), 0, len(rare))]
    summed = jnp.concatenate([frequent, drawn])
    standing_for = jnp.log(jnp.asarray(len(rare) / samples, wide))
    offsets = jnp.concatenate([jnp.zeros(len(frequent), wide), jnp.full(samples, standing_for)])
    # With tied embeddings W^T is the table itself.
    w_summed, w_own = embed(w.T, summed), embed(w.T, targets)
    if b is not None:
        column = b.astype(wide)[:, None]
        offsets = offsets + embed(column, summed)[:, 0]
        b_own = embed(column, targets)[:, 0]
    else:
        b_own = jnp.zeros(len(targets), wide)
    dtype = jax.dtypes.canonicalize_dtype(matmul_dtype or x.dtype).name
    total = _estimate(x, w_summed, offsets, w_own, b_own, weights, summed, targets, dtype)
    return TokenLosses(total, total, weights.sum())


@functools.partial(jax.custom_vjp, nondiff_argnums=(8,))
def _estimate(x, w_summed, offsets, w_own, b_own, weights, summed, targets, dtype):
    return _forward(x, w_summed, offsets, w_own, b_own, weights, summed, targets, dtype)[0]


def _forward(x, w_summed, offsets, w_own, b_own, weights, summed, targets, dtype):
    """Computes all gradients too, as `losses.linear_cross_entropy`: logits and exponentials are not kept."""
    wide = weights.dtype
    (tokens, width), words = x.shape, len(summed)
    short_x, short_w = x.astype(dtype), w_summed.astype(dtype)
    z = product(short_x, short_w, "nd,vd->nv").astype(wide) + offsets[None]
    # A target among the summed words would count twice.
    z = jnp.where(summed[None] == targets[:, None], -jnp.inf, z)
    own = (x.astype(wide) * w_own.astype(wide)).sum(axis=-1) + b_own
    chex.assert_shape((z, own), [(tokens, words), (tokens,)])
    highest = jnp.maximum(z.max(axis=-1), own)
    exponentials = stored(jnp.exp(z - highest[:, None]))
    of_own = jnp.exp(own - highest)
    sums = exponentials.sum(axis=-1) + of_own
    losses = highest + jnp.log(sums) - own
    chex.assert_shape((highest, sums, losses), (tokens,))
    total = (losses * weights).sum()

    dz = stored((exponentials * (weights / sums)[:, None]).astype(dtype))
    d_own = weights * (of_own / sums - 1.0)
    dx = product(dz, short_w, "nv,vd->nd") + d_own[:, None] * w_own
    dw = product(transposed(short_x), dz, "dn,nv->dv").T
    chex.assert_shape((dz, dx, dw, d_own), [(tokens, words), (tokens, width), (words, width), (tokens,)])
    gradients = (
        dx.astype(x.dtype),
        dw.astype(w_summed.dtype),
        column_sums(dz).astype(offsets.dtype),
        (d_own[:, None] * x).astype(w_own.dtype),
        d_own.astype(b_own.dtype),
        jnp.where(weights != 0, losses, 0.0),
    )
    return total, gradients


def _backward(dtype, gradients, cotangent):
    del dtype
    return (*jax.tree.map(lambda g: g * cotangent.astype(g.dtype), gradients), None, None)


_estimate.defvjp(_forward, _backward)
