"""Losses of classifiers of one class, several classes or a number; weights, smoothing, focal loss and mixed labels."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.matrix_products import accumulator


class ClassLosses(NamedTuple):
    """Losses of classifiers, as sums over examples; differentiable scalars in float32, or in float64.

    Attributes:
      objective: sum of the weighted losses, to minimise; divide by `weight`.
      weight: sum of the examples' weights.
      nll: sum of the negative log-likelihoods of the targets in nats, without weights, smoothing or focus; divide by
        `count`. Mixed labels count in their shares. For numbers it is the sum of the squared errors.
      count: number of examples.
    """

    objective: jax.Array
    weight: jax.Array
    nll: jax.Array
    count: jax.Array  # type: ignore[assignment]  # hides tuple.count


def class_cross_entropy(
    logits: jax.Array,
    targets: jax.Array,
    loss_mask: jax.Array,
    *,
    class_weights: jax.Array | None = None,
    label_smoothing: float = 0.0,
    focal_gamma: float = 0.0,
) -> ClassLosses:
    """Cross-entropy of one class per example, with class weights, label smoothing, focal loss and mixed labels.

    q         = (1 - e) target + e / C
    objective = sum_i m_i sum_c -w_c q_ic (1 - p_ic)^gamma log p_ic,   p_i = softmax(z_i)
    weight    = sum_i m_i sum_c w_c target_ic
    nll       = sum_i m_i sum_c -target_ic log p_ic
    count     = sum_i m_i

    Args:
      logits: z [B, C], float.
      targets: [B] int, in [0, C); or [B, C] float, the shares of mixed labels, whose sum is 1.
      loss_mask: m [B] bool.
      class_weights: w [C]; None = ones. The mean loss over examples is weighted by them, as in PyTorch.
      label_smoothing: e, the share of each target that is spread evenly over the classes.
      focal_gamma: larger values give less weight to examples that are already right; 0 = cross-entropy.

    Raises: ValueError when shapes do not fit, logits are not float, e is outside [0, 1), or gamma is negative.

    Source: Szegedy et al. 2016, section 7, for e; Lin et al. 2017, eq. 4, for gamma.
    """
    mixed = targets.ndim == 2
    fit = logits.ndim == 2 and loss_mask.shape == logits.shape[:1]
    fit = fit and targets.shape == (logits.shape if mixed else logits.shape[:1])
    fit = fit and (class_weights is None or class_weights.shape == logits.shape[1:])
    expected = "logits [B, C], targets [B] or [B, C], loss_mask [B], class_weights [C] or None"
    expect(fit, expected, logits=logits, targets=targets, loss_mask=loss_mask, class_weights=class_weights)
    expect_float(logits=logits)
    _check_rates(label_smoothing, focal_gamma)
    wide, classes = accumulator(logits.dtype), logits.shape[1]
    mask = loss_mask[:, None]
    # A masked row may have any values, also NaN, which a product with 0 would pass on to the gradient.
    log_p = jax.nn.log_softmax(jnp.where(mask, logits.astype(wide), 0.0), axis=-1)
    shares = targets.astype(wide) if mixed else jax.nn.one_hot(targets, classes, dtype=wide)
    shares = jnp.where(mask, shares, 0.0)
    weights = jnp.ones((1, classes), wide) if class_weights is None else class_weights.astype(wide)[None]
    aim = shares
    if label_smoothing:
        aim = jnp.where(mask, (1.0 - label_smoothing) * shares + label_smoothing / classes, 0.0)
    focus = log_p
    if focal_gamma:
        # 1 - p, from below 1: at p = 1 the power's gradient would be infinite for gamma < 1.
        focus = log_p * jnp.maximum(-jnp.expm1(log_p), 1e-12) ** focal_gamma
    return ClassLosses(
        objective=-(weights * aim * focus).sum(),
        weight=(weights * shares).sum(),
        nll=-(shares * log_p).sum(),
        count=loss_mask.astype(wide).sum(),
    )


def several_cross_entropy(
    logits: jax.Array,
    targets: jax.Array,
    loss_mask: jax.Array,
    *,
    class_weights: jax.Array | None = None,
    label_smoothing: float = 0.0,
    focal_gamma: float = 0.0,
) -> ClassLosses:
    """Binary cross-entropy of any number of classes per example: the mean over the classes.

    q         = (1 - e) target + e / 2
    objective = -sum_b mean_c (w_c q_bc (1 - p_bc)^gamma log p_bc + (1 - q_bc) p_bc^gamma log(1 - p_bc))

    Args:
      logits: [B, C] float; p is their sigmoid.
      targets: [B, C], 1 for the classes of an example and 0 for the others.
      loss_mask: m [B] bool.
      class_weights: w [C], weights of the examples that have the class, as `pos_weight` in PyTorch; None = ones.
      label_smoothing: e, the share of each target that is spread evenly over 0 and 1.
      focal_gamma: larger values give less weight to answers that are already right; 0 = cross-entropy.

    Raises: ValueError when shapes do not fit, logits are not float, e is outside [0, 1), or gamma is negative.

    Source: Lin et al. 2017, eq. 4, for gamma.
    """
    fit = logits.ndim == 2 and targets.shape == logits.shape and loss_mask.shape == logits.shape[:1]
    fit = fit and (class_weights is None or class_weights.shape == logits.shape[1:])
    expected = "logits [B, C], targets [B, C], loss_mask [B], class_weights [C] or None"
    expect(fit, expected, logits=logits, targets=targets, loss_mask=loss_mask, class_weights=class_weights)
    expect_float(logits=logits)
    _check_rates(label_smoothing, focal_gamma)
    wide = accumulator(logits.dtype)
    mask = loss_mask[:, None]
    x = jnp.where(mask, logits.astype(wide), 0.0)
    plain = jnp.where(mask, targets.astype(wide), 0.0)
    aim = (1.0 - label_smoothing) * plain + label_smoothing / 2.0
    log_yes, log_no = jax.nn.log_sigmoid(x), jax.nn.log_sigmoid(-x)
    yes, no = log_yes, log_no
    if focal_gamma:
        # From below 1, as above.
        yes = yes * jnp.maximum(-jnp.expm1(log_yes), 1e-12) ** focal_gamma
        no = no * jnp.maximum(-jnp.expm1(log_no), 1e-12) ** focal_gamma
    weights = jnp.ones((1, logits.shape[1]), wide) if class_weights is None else class_weights.astype(wide)[None]
    losses = -(weights * aim * yes + (1.0 - aim) * no).mean(axis=1)
    plain_losses = -(plain * log_yes + (1.0 - plain) * log_no).mean(axis=1)
    count = loss_mask.astype(wide).sum()
    return ClassLosses(
        objective=jnp.where(loss_mask, losses, 0.0).sum(),
        weight=count,
        nll=jnp.where(loss_mask, plain_losses, 0.0).sum(),
        count=count,
    )


def squared_error(outputs: jax.Array, targets: jax.Array, loss_mask: jax.Array) -> ClassLosses:
    """The squares of the differences between outputs [B, 1] and targets [B], as sums over examples.

    Raises: ValueError when shapes do not fit or outputs are not float.
    """
    fit = outputs.ndim == 2 and outputs.shape[1] == 1 and targets.shape == loss_mask.shape == outputs.shape[:1]
    expect(fit, "outputs [B, 1], targets [B], loss_mask [B]", outputs=outputs, targets=targets, loss_mask=loss_mask)
    expect_float(outputs=outputs)
    wide = accumulator(outputs.dtype)
    # A masked row may have any values, also NaN, which a product with 0 would pass on to the gradient.
    difference = jnp.where(loss_mask, outputs[:, 0].astype(wide) - targets.astype(wide), 0.0)
    loss, count = jnp.square(difference).sum(), loss_mask.astype(wide).sum()
    return ClassLosses(loss, count, loss, count)


def _check_rates(label_smoothing: float, focal_gamma: float) -> None:
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing}")
    if not focal_gamma >= 0.0:
        raise ValueError(f"focal_gamma must not be negative, got {focal_gamma}")


def balanced_weights(counts: jax.Array) -> jax.Array:
    """Class weights [C] float32 from the counts of the classes [C]: N / (C counts), so that all classes weigh the same.

    An example's mean weight is 1. Source: scikit-learn's `class_weight="balanced"`.
    """
    counts = counts.astype(jnp.float32)
    return counts.sum() / (len(counts) * counts)
