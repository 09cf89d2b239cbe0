"""Dropout as Linen modules, and the key of a module's mask."""

import hashlib

import chex
import flax.errors
import flax.linen as nn
import jax
import numpy as np

from jaxnlp.nn.shards import first_row_of_shard
from jaxnlp.ops.dropout_masks import check_rate, dropout, keep_mask, locked_dropout, scaled


def dropout_key(module: nn.Module) -> jax.Array:
    """The key of a module's next mask: that of the stream `dropout`, XOR a hash of the module's path and of its draws.

    `make_rng` mixes the hash in by a threefry for each module. The masks of `ops.dropout_masks` mix a key themselves,
    so an XOR is enough: the step of `multi30k_transformer` has a quarter fewer operations to compile
    (tests/guards/programs.json).

    Args:
      module: a bound module; a second call gives another key. Without the stream `dropout` the stream `params` replaces
        it, as in `make_rng`.

    Returns:
      [] typed, for `ops.dropout_masks` and never for `jax.random`: the keys of two modules differ by a constant.

    Raises:
      flax.errors.InvalidRngError: when both streams are missing.
      ValueError: when the module is not bound.
    """
    name = "dropout" if module.has_rng("dropout") else "params"
    if not module.has_rng(name):
        raise flax.errors.InvalidRngError(f'{module.name or type(module).__name__} needs PRNG for "dropout"')
    scope = module.scope
    assert scope is not None  # the module is bound
    scope.rng_counters[name] += 1
    stream = scope.rngs[name].rng  # without Flax's suffix, whose place the path takes
    words = jax.random.key_data(stream)
    digest = hashlib.sha256(repr((scope.path, scope.rng_counters[name])).encode()).digest()
    constant = np.frombuffer(digest, "<u4", count=words.size)
    return jax.random.wrap_key_data(words ^ constant, impl=jax.random.key_impl(stream))


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

        Raises: ValueError when rate is outside [0, 1), also outside training.
        """
        chex.assert_shape(x, (None, ...))
        check_rate(self.rate)
        if deterministic or self.rate == 0.0:
            return x
        return dropout(x, self.rate, dropout_key(self), first_row=first_row_of_shard(x.shape[0]))


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

        Raises: ValueError when rate is outside [0, 1), also outside training.
        """
        chex.assert_rank(x, 3)
        check_rate(self.rate)
        if deterministic or self.rate == 0.0:
            return x
        return locked_dropout(x, self.rate, dropout_key(self), first_row=first_row_of_shard(x.shape[0]))


class LayerDropout(nn.Module):
    """Drops a whole branch of an example in training: the example skips the layer (stochastic depth).

    Attributes:
      rate: share of the examples, in [0, 1).

    Source: Huang et al. 2016, section 3. Differs: one rate for all layers, and kept branches are scaled up in training,
    instead of down in evaluation.
    """

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        """Args: x [B, ...]. Returns: same shape and dtype. Needs the random stream `dropout` in training.

        Raises: ValueError when rate is outside [0, 1), also outside training.
        """
        chex.assert_shape(x, (None, ...))
        check_rate(self.rate)
        if deterministic or self.rate == 0.0:
            return x
        shape = (len(x),) + (1,) * (x.ndim - 1)
        kept = keep_mask(dropout_key(self), shape, self.rate, first_row=first_row_of_shard(len(x)))
        return scaled(x, kept, self.rate)
