"""Multi-head attention: of a sequence to itself, with a cache for decoding, and to another."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal

from jaxnlp.nn.cache import LayerCache
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout, first_row_of_shard
from jaxnlp.ops import masks
from jaxnlp.ops.attention import Implementation, attend, attention_weights
from jaxnlp.ops.checks import expect


class SelfAttention(nn.Module):
    """Each position attends to itself and the positions before it, or to all.

    Attributes:
      num_heads: H; must divide the width.
      causal: whether later positions are hidden.
      attention_dropout_rate: share of attention weights dropped in training.
      dropout_rate: share of outputs dropped in training.
      use_bias: whether the projections have biases.
      output_stddev: standard deviation of the output projection's initial weights.
      dtype: of the computation; parameters stay float32.
      matmul_dtype: what the operands of matrix products are rounded to; None = dtype.
      implementation: of attention over a whole sequence, see `ops.attention.attend`.

    Source: Vaswani et al. 2017, section 3.2.2; Radford et al. 2019 for the dropouts and the fused projection.
    """

    num_heads: int
    causal: bool = True
    attention_dropout_rate: float = 0.0
    dropout_rate: float = 0.0
    use_bias: bool = True
    output_stddev: float = 0.02
    dtype: str = "float32"
    matmul_dtype: str | None = None
    implementation: Implementation = "auto"

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
          attention_mask: [B or 1, H or 1, T or 1, T] bool, True = may attend; None = all that `causal` leaves.
          cache: keys and values of the positions before x; None: x is the whole sequence.
          cached_positions: [] int, how many positions of the cache are filled; x's positions follow them.

        Returns:
          [B, T, D] in `dtype`, and the cache with the T positions of x added (None without a cache).

        Raises:
          ValueError: when x has another rank; when H does not divide D, the message gives both; for a cache with a
            mask, or without `causal`.
        """
        expect(x.ndim == 3, "x [B, T, D]", x=x)
        batch, positions, width = x.shape
        if width % self.num_heads:
            raise ValueError(f"num_heads must divide the width, got {self.num_heads} heads for width {width}")
        if cache is not None and (attention_mask is not None or not self.causal):
            raise ValueError("a cache serves causal attention without a further attention_mask")
        qkv = Dense(3 * width, self.use_bias, self.dtype, self.matmul_dtype, normal(0.02), name="qkv")(
            x.reshape(batch * positions, width)
        )
        # Rounded once here, not by each product: attention then keeps its weights in this type too.
        qkv = qkv.astype(self.matmul_dtype or self.dtype)
        q, k, v = (
            part.reshape(batch, positions, self.num_heads, width // self.num_heads)
            for part in jnp.split(qkv, 3, axis=-1)
        )
        if cache is None:
            y = _attend(self, q, k, v, attention_mask, deterministic=deterministic, causal=self.causal)
        else:
            k, v = (
                jax.lax.dynamic_update_slice_in_dim(old, new.swapaxes(1, 2).astype(old.dtype), cached_positions, axis=2)
                for old, new in zip(cache, (k, v), strict=True)
            )
            cache = (k, v)
            # Slots past the newest position hold nothing yet, and the causal mask hides them.
            mask = masks.causal(positions, k.shape[2], first_query=cached_positions)
            y = attend(q, k.swapaxes(1, 2), v.swapaxes(1, 2), attention_mask=mask)
        y = Dense(width, self.use_bias, self.dtype, self.matmul_dtype, normal(self.output_stddev), name="out")(
            y.reshape(batch * positions, width)
        )
        y = Dropout(self.dropout_rate)(y, deterministic=deterministic)
        return y.reshape(batch, positions, width), cache


class CrossAttention(nn.Module):
    """Each position of one sequence attends to the positions of another.

    Attributes:
      num_heads: H; must divide the width.
      attention_dropout_rate: share of attention weights dropped in training.
      dropout_rate: share of outputs dropped in training.
      use_bias: whether the projections have biases.
      output_stddev: standard deviation of the output projection's initial weights.
      dtype: of the computation; parameters stay float32.
      matmul_dtype: what the operands of matrix products are rounded to; None = dtype.
      implementation: see `ops.attention.attend`.

    Source: Vaswani et al. 2017, section 3.2.3. Keys and values come of one product.
    """

    num_heads: int
    attention_dropout_rate: float = 0.0
    dropout_rate: float = 0.0
    use_bias: bool = True
    output_stddev: float = 0.02
    dtype: str = "float32"
    matmul_dtype: str | None = None
    implementation: Implementation = "auto"

    @nn.compact
    def __call__(
        self, x: jax.Array, memory: jax.Array, *, deterministic: bool, attention_mask: jax.Array | None = None
    ) -> jax.Array:
        """Mixes the memory's values.

        Args:
          x: [B, T, D], or [1, T, D]: the same queries for all examples, computed once.
          memory: what is attended to [B, S, D].
          deterministic: no dropout.
          attention_mask: [B or 1, H or 1, T or 1, S] bool, True = may attend; None = all.

        Returns:
          [B, T, D] in `dtype`.

        Raises:
          ValueError: when H does not divide D, the message gives both; when shapes do not fit.
        """
        fit = x.ndim == memory.ndim == 3 and x.shape[0] in (1, memory.shape[0]) and x.shape[2] == memory.shape[2]
        expect(fit, "x [B or 1, T, D] and memory [B, S, D]", x=x, memory=memory)
        batch, keys, width = memory.shape
        positions = x.shape[1]
        if width % self.num_heads:
            raise ValueError(f"num_heads must divide the width, got {self.num_heads} heads for width {width}")
        head_width = width // self.num_heads
        q = Dense(width, self.use_bias, self.dtype, self.matmul_dtype, normal(0.02), name="q")(x.reshape(-1, width))
        kv = Dense(2 * width, self.use_bias, self.dtype, self.matmul_dtype, normal(0.02), name="kv")(
            memory.reshape(batch * keys, width)
        )
        # Rounded once here, as in self-attention.
        q, kv = (part.astype(self.matmul_dtype or self.dtype) for part in (q, kv))
        q = jnp.broadcast_to(
            q.reshape(-1, positions, self.num_heads, head_width), (batch, positions, self.num_heads, head_width)
        )
        k, v = (part.reshape(batch, keys, self.num_heads, head_width) for part in jnp.split(kv, 2, axis=-1))
        y = _attend(self, q, k, v, attention_mask, deterministic=deterministic)
        y = Dense(width, self.use_bias, self.dtype, self.matmul_dtype, normal(self.output_stddev), name="out")(
            y.reshape(batch * positions, width)
        )
        y = Dropout(self.dropout_rate)(y, deterministic=deterministic)
        return y.reshape(batch, positions, width)


def _attend(
    layer: SelfAttention | CrossAttention,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    attention_mask: jax.Array | None,
    *,
    deterministic: bool,
    causal: bool = False,
) -> jax.Array:
    """`attend` as the layer's attributes have it. Where somebody looks, the weights that are shown are those used."""
    drop = layer.attention_dropout_rate > 0.0 and not deterministic
    if layer.is_mutable_collection("intermediates"):
        weights = attention_weights(q, k, attention_mask=attention_mask, causal=causal)
        layer.sow("intermediates", "weights", weights)
        if not drop:
            return jnp.einsum("bhts,bshk->bthk", weights.astype(v.dtype), v)
    return attend(
        q,
        k,
        v,
        attention_mask=attention_mask,
        causal=causal,
        dropout_rate=layer.attention_dropout_rate,
        dropout_key=layer.make_rng("dropout") if drop else None,
        first_row=first_row_of_shard(q.shape[0]),
        implementation=layer.implementation,
    )
