"""Multi-head Synthesizer attention, with a cache for decoding."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal, zeros

from jaxnlp.nn.cache import LayerCache
from jaxnlp.nn.compute import Compute
from jaxnlp.nn.dense import INITIAL_STDDEV, Dense
from jaxnlp.nn.dropout import Dropout, dropout_key
from jaxnlp.nn.shards import first_row_of_shard
from jaxnlp.ops.checks import expect
from jaxnlp.ops.synthesizer import synthesize, synthesizer_weights

INITIAL_SCORE = 0.001


def _near_zero(key, shape, dtype=jnp.float32):
    return jax.random.uniform(key, shape, dtype, -INITIAL_SCORE, INITIAL_SCORE)


class SynthesizerAttention(nn.Module):
    """Each position mixes the values up to itself, by weights that are computed only from itself.

    Y_h = softmax(ReLU(X A_h + b_1h) B + b_2) X V_h, for head h of H; out = [Y_1 ... Y_H] W. A_h and V_h are D x K; B
    [K, S] and b_2 are shared by the heads. The weights do not depend on the tokens that a position attends to.

    Attributes:
      num_heads: H; must divide the width.
      context_length: S, columns of B: the maximum length.
      attention_dropout_rate: share of attention weights dropped in training.
      dropout_rate: share of outputs dropped in training.
      use_bias: whether the projections and the scores have biases.
      output_stddev: standard deviation of the output projection's initial weights.
      compute: types; attention's gradient is always the one by hand.

    Source: Tay et al. 2021, section 3.1.1, as in CS224N, assignment 5. B is initialised in (-0.001, 0.001), so
    that the initial weights are nearly uniform.

    Parameters: zv/kernel [D, 2, H, K], kernel B [K, S], bias b_2 [S], out/kernel [D, D], and biases.
    """

    num_heads: int
    context_length: int
    attention_dropout_rate: float = 0.0
    dropout_rate: float = 0.0
    use_bias: bool = True
    output_stddev: float = INITIAL_STDDEV
    compute: Compute = Compute()

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        *,
        deterministic: bool,
        attention_mask: jax.Array | None = None,
        cache: LayerCache | None = None,
        cached_positions: jax.Array | int = 0,
    ) -> tuple[jax.Array, LayerCache | None]:
        """Mixes values over positions.

        Args:
          x: [B, T, D].
          deterministic: no dropout.
          attention_mask: as for `nn.attention.SelfAttention`.
          cache: values of earlier positions [B, H, S, K]; None: x is the whole sequence.
          cached_positions: [] int, the number of filled positions in the cache; x's positions follow them.

        Returns:
          [B, T, D], and the cache with the T positions of x added; None without a cache.

        Raises: ValueError when H does not divide D, or T exceeds the context length; when x has another rank.
        """
        expect(x.ndim == 3, "x [B, T, D]", x=x)
        batch, positions, width = x.shape
        if width % self.num_heads:
            raise ValueError(f"num_heads must divide the width, got {self.num_heads} heads for width {width}")
        head_width = width // self.num_heads
        zv = Dense((2, self.num_heads, head_width), self.use_bias, compute=self.compute, name="zv")(
            x.reshape(batch * positions, width)
        )
        # Rounded once here, as in self-attention.
        zv = zv.astype(self.compute.operand_dtype or self.compute.activation_dtype)
        z, v = (part.reshape(batch, positions, self.num_heads, head_width) for part in jnp.split(zv, 2, axis=-1))
        chex.assert_shape([z, v], (batch, positions, self.num_heads, head_width))
        kernel = self.param("kernel", _near_zero, (head_width, self.context_length))
        bias = self.param("bias", zeros, (self.context_length,)) if self.use_bias else None
        scores = {"w_b": kernel.astype(zv.dtype), "b_2": bias}
        if cache is None:
            drop = self.attention_dropout_rate > 0.0 and not deterministic
            y = synthesize(
                z,
                v,
                **scores,
                attention_mask=attention_mask,
                dropout_rate=self.attention_dropout_rate,
                dropout_key=dropout_key(self) if drop else None,
                first_row=first_row_of_shard(batch),
            )
            if self.is_mutable_collection("intermediates"):
                self.sow(
                    "intermediates",
                    "weights",
                    synthesizer_weights(z, positions, **scores, attention_mask=attention_mask),
                )
        else:
            (values,) = cache
            chex.assert_shape(values, (batch, self.num_heads, None, head_width))
            v = v.swapaxes(1, 2).astype(values.dtype)
            values = jax.lax.dynamic_update_slice_in_dim(values, v, cached_positions, axis=2)
            cache = (values,)
            # Slots after the newest position are empty. No query sees them, since they come later.
            y = synthesize(
                z, values.swapaxes(1, 2), **scores, attention_mask=attention_mask, first_query=cached_positions
            )
        y = Dense(width, self.use_bias, normal(self.output_stddev), self.compute, name="out")(
            y.reshape(batch * positions, width)
        )
        y = Dropout(self.dropout_rate)(y, deterministic=deterministic)
        return y.reshape(batch, positions, width), cache
