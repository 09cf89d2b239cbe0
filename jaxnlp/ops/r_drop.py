"""R-Drop: the cross-entropy of two readings of each token with different dropout, and the divergence between them."""

import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.losses import TokenLosses, chunk_length, cross_entropy, dealt
from jaxnlp.ops.matrix_products import accumulator, product


def linear_r_drop(
    x: jax.Array,
    w: jax.Array,
    b: jax.Array | None,
    targets: jax.Array,
    loss_mask: jax.Array,
    *,
    weight: float,
    label_smoothing: float = 0.0,
    matmul_dtype: jax.typing.DTypeLike | None = None,
) -> TokenLosses:
    """The mean losses of two readings of each token, with logits z = x W + b, and the divergence of their predictions.

    objective = sum_i m_i (mean_r l(z_ir) + a / 4 (KL(p_i1 || p_i2) + KL(p_i2 || p_i1))),   p = softmax(z)

    l is the loss of a token in `cross_entropy`, and nll has only its negative log-likelihood. As in
    `linear_cross_entropy` one chunk of tokens is computed at a time; the backward pass computes its logits again.

    Args:
      x: [N, 2, D], float: two readings of each token.
      w: [D, V].
      b: [V] or None.
      targets: [N] int, in [0, V).
      loss_mask: [N] bool or float weights m. A weight of 0 has gradient 0.
      weight: a.
      label_smoothing: e, see `cross_entropy`.
      matmul_dtype: dtype that the products' operands are rounded to; None = the dtype of x.

    Returns: TokenLosses in float32, or in float64 for x in float64; count is the sum of the weights.

    Source: Liang et al. 2021, equations 2 to 4, halved.
    """
    count, vocabulary = len(targets), w.shape[1]
    fit = x.shape == (count, 2, w.shape[0]) and loss_mask.shape == (count,) and (b is None or b.shape == (vocabulary,))
    expected = "x [N, 2, D], w [D, V], b [V] or None, targets and loss_mask [N]"
    expect(fit, expected, x=x, w=w, b=b, targets=targets, loss_mask=loss_mask)
    expect_float(x=x, w=w, b=b)
    dtype, wide = matmul_dtype or x.dtype, accumulator(x.dtype)
    short_w = w.astype(dtype)

    @jax.checkpoint
    def of_chunk(x: jax.Array, targets: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        p, q = (product(x[:, reading].astype(dtype), short_w, "nd,dv->nv").astype(wide) for reading in range(2))
        if b is not None:
            p, q = (z + b.astype(wide)[None] for z in (p, q))
        first, second = (cross_entropy(z, targets, weights, label_smoothing=label_smoothing) for z in (p, q))
        divergence = (jnp.where(weights != 0, symmetric_kl(p, q), 0.0) * weights).sum()
        objective = (first.objective + second.objective) / 2.0 + weight / 4.0 * divergence
        return objective, (first.nll + second.nll) / 2.0

    chunk = max(1, chunk_length(2 * count, vocabulary) // 2)
    parts = (dealt(a, chunk) for a in (x, targets, loss_mask.astype(wide)))
    objective, nll = jax.lax.map(lambda part: of_chunk(*part), tuple(parts))
    return TokenLosses(objective.sum(), nll.sum(), loss_mask.astype(wide).sum())


def symmetric_kl(p_logits: jax.Array, q_logits: jax.Array) -> jax.Array:
    """KL(p || q) + KL(q || p) in nats, of the softmax of logits in float32: [..., V], [..., V] -> [...].

    The normalisers cancel: sum_v (p_v - q_v) (log p_v - log q_v) = sum_v (p_v - q_v) (z_v - y_v), with the logits z
    and y.
    """
    p, q = (jax.nn.softmax(z, axis=-1) for z in (p_logits, q_logits))
    return ((p - q) * (p_logits - q_logits)).sum(axis=-1)
