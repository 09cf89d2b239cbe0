"""Dropout as Linen modules."""

import chex
import flax.linen as nn
import jax

from jaxnlp.nn.shards import first_row_of_shard
from jaxnlp.ops.dropout_masks import check_rate, dropout, keep_mask, locked_dropout, scaled


class Dropout(nn.Module):
    """Drops elements in training. The mask of a batch does not depend on the number of devices.

    Attributes:
      rate: share dropped, in [0, 1).

    Source: Srivastava et al. 2014, section 4. Differs: counter-based masks (see `jaxnlp.ops.dropout_masks`).
    """

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        """Args: x [B, ...]. Returns: same shape and dtype. Needs the random stream `dropout` in training.

        Raises:
          ValueError: when rate is outside [0, 1), also outside training.
        """
        chex.assert_shape(x, (None, ...))
        check_rate(self.rate)
        if deterministic or self.rate == 0.0:
            return x
        return dropout(x, self.rate, self.make_rng("dropout"), first_row=first_row_of_shard(x.shape[0]))


class LockedDropout(nn.Module):
    """Drops features of whole sequences in training: the same ones at all positions.

    Attributes:
      rate: share of the (sequence, feature) pairs dropped, in [0, 1).

    Source: Gal and Ghahramani 2016, section 4; Merity et al. 2018, section 4.2.
    """

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        """Args: x [B, T, D]. Returns: same shape and dtype. Needs the random stream `dropout` in training.

        Raises:
          ValueError: when rate is outside [0, 1), also outside training.
        """
        chex.assert_rank(x, 3)
        check_rate(self.rate)
        if deterministic or self.rate == 0.0:
            return x
        return locked_dropout(x, self.rate, self.make_rng("dropout"), first_row=first_row_of_shard(x.shape[0]))


class LayerDropout(nn.Module):
    """Drops a whole branch of an example in training: the example skips the layer (stochastic depth).

    Attributes:
      rate: share of the examples, in [0, 1).

    Source: Huang et al. 2016, section 3. Differs: the same rate for all layers, and kept branches are scaled up in
    training, instead of down in evaluation.
    """

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        """Args: x [B, ...]. Returns: same shape and dtype. Needs the random stream `dropout` in training.

        Raises:
          ValueError: when rate is outside [0, 1), also outside training.
        """
        chex.assert_shape(x, (None, ...))
        check_rate(self.rate)
        if deterministic or self.rate == 0.0:
            return x
        shape = (len(x),) + (1,) * (x.ndim - 1)
        kept = keep_mask(self.make_rng("dropout"), shape, self.rate, first_row=first_row_of_shard(len(x)))
        return scaled(x, kept, self.rate)
