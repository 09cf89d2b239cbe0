"""Losses as (sum, count): they add up exactly over batches, devices and padding."""

import jax
import jax.numpy as jnp


def cross_entropy(
    logits: jax.Array, targets: jax.Array, loss_mask: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Negative log-likelihood of the targets, summed.

    sum_i m_i (log sum_v exp z_iv - z_i,target(i)),   sum_i m_i

    Args:
      logits: scores z [..., V], float.
      targets: [...] int, in [0, V).
      loss_mask: [...] bool or float weights m; None = ones.

    Returns:
      Sum of the losses in nats (unit after division: nats per token) and sum of the weights, both float32 scalars.
    """
    logits = logits.astype(jnp.float32)
    if loss_mask is not None:
        # A masked position may hold anything, also NaN, which a product with 0 would pass on to the gradient.
        logits = jnp.where(loss_mask.astype(bool)[..., None], logits, jnp.zeros_like(logits))
    log_normaliser = jax.nn.logsumexp(logits, axis=-1)
    target_logits = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    losses = log_normaliser - target_logits
    weights = jnp.ones_like(losses) if loss_mask is None else loss_mask.astype(jnp.float32)
    return jnp.where(weights > 0, losses * weights, 0.0).sum(), weights.sum()
