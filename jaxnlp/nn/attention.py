"""Multi-head attention: self-attention, with a cache for decoding, and cross-attention."""

import dataclasses
from collections.abc import Callable

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal

from jaxnlp.nn.cache import LayerCache
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import INITIAL_STDDEV, Dense
from jaxnlp.nn.dropout import Dropout, dropout_key
from jaxnlp.nn.shards import first_row_of_shard
from jaxnlp.ops.attention import attention_weights, dot_product_attention, packed_attention, unpacked
from jaxnlp.ops.checks import expect
from jaxnlp.ops.devices import is_divided
from jaxnlp.ops.positions import RotaryScaling, rotary
from jaxnlp.ops.relative_attention import attend_relative
from jaxnlp.ops.relative_positions import clipped_distances, relative_buckets
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class Rotary:
    """Queries and keys are rotated by their positions; K must be even.

    Attributes:
      base, scaling: of the rates, see `ops.positions.rotary`.
    """

    base: float = 10_000.0
    scaling: RotaryScaling | None = None


@dataclasses.dataclass(frozen=True)
class RelativeBias:
    """A learned bias on each head's scores for each bucket of distances, in both directions unless `causal`.

    Attributes:
      num_buckets: N; must be even without `causal`.
      max_distance: keys at this distance or farther share the last bucket of their direction.
    """

    num_buckets: int = 32
    max_distance: int = 128


@dataclasses.dataclass(frozen=True)
class RelativeVectors:
    """Learned vectors of each distance, added to keys and to values of all heads.

    Attributes:
      max_distance: keys at this distance or farther share the last vectors of their direction.
    """

    max_distance: int = 128


Positions = Rotary | RelativeBias | RelativeVectors | None
"""Positions in self-attention; None = none."""


class SelfAttention(nn.Module):
    """Each position attends to itself and earlier positions, or to all.

    Attributes:
      num_heads: H; must divide the width, unless there is a head width.
      num_key_heads: G, heads of keys and values; must divide H. Each serves H / G query heads. None = H.
      head_width: K; None = D / H.
      scale: factor on the scores; None = 1 / sqrt(K).
      causal: whether later positions are hidden.
      attention_dropout_rate: share of attention weights dropped in training.
      dropout_rate: share of outputs dropped in training.
      use_bias: whether the projections have biases.
      qkv_bias: the same for queries, keys and values; None = as `use_bias`.
      head_norm: makes the normalisations of each head's queries and keys, before the rotation; None = none.
      output_stddev: standard deviation of the output projection's initial weights.
      compute: types, and the implementation of attention over a whole sequence.
      positions: `Rotary`, `RelativeBias` or `RelativeVectors`; None = no positions.

    Parameters: qkv/kernel [D, 3, H, K]; with fewer key heads q/kernel [D, H, K] and kv/kernel [D, 2, G, K]; out/kernel
    [O, D], O = H K; and their biases. With a head norm those of q_norm and k_norm, [K]. With a relative bias also
    relative_bias [N, H]; with relative vectors relative_keys and relative_values [N, K], N = 2 max_distance + 1.

    Source: Vaswani et al. 2017, section 3.2.2; Radford et al. 2019 for the dropouts and the fused projection; Ainslie
    et al. 2023 for grouped heads; Su et al. 2021 for rotary positions; Raffel et al. 2020, section 2.1, for the
    relative bias; Shaw et al. 2018 for relative vectors; Henry et al. 2020 for the head norm. Differs: with `positions`
    each layer has its own table; layers that share one, as in T5, get its bias.
    """

    num_heads: int
    num_key_heads: int | None = None
    head_width: int | None = None
    scale: float | None = None
    causal: bool = True
    attention_dropout_rate: float = 0.0
    dropout_rate: float = 0.0
    use_bias: bool = True
    qkv_bias: bool | None = None
    head_norm: Callable[..., Callable[[jax.Array], jax.Array]] | None = None
    output_stddev: float = INITIAL_STDDEV
    compute: TransformerCompute = TransformerCompute()
    positions: Positions = None

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        *,
        deterministic: bool,
        attention_mask: jax.Array | None = None,
        bias: jax.Array | None = None,
        rotary_base: jax.Array | None = None,
        cache: LayerCache | None = None,
        cached_positions: jax.Array | int = 0,
    ) -> tuple[jax.Array, LayerCache | None]:
        """Mixes values over positions.

        Args:
          x: [B, T, D].
          deterministic: no dropout.
          attention_mask: [B or 1, H or 1, T or 1, S] bool, True = may attend; None = all that `causal` leaves. S is T,
            or with a cache its capacity.
          bias: [1, H, T, S], added to the scores, such as `relative_bias` of a shared table; not with relative
            `positions`. None = zero.
          rotary_base: [] float, replaces the base of rotary `positions`, as for each layer of a stack.
          cache: keys and values of earlier positions, [B, G, S, K] each; None: x is the whole sequence.
          cached_positions: [] int, the number of filled positions in the cache; x's positions follow them.

        Returns:
          [B, T, D], and the cache with the T positions of x added; None without a cache.

        Raises: ValueError when x has another rank; when H does not divide D or G does not divide H; for a cache without
          `causal`; for rotary positions when K is odd; for an invalid number of buckets or maximum distance
          (`relative_buckets`).
        """
        expect(x.ndim == 3, "x [B, T, D]", x=x)
        if cache is not None and not self.causal:
            raise ValueError("a cache needs causal attention; set causal=True")
        if cache is not None and not deterministic and self.attention_dropout_rate:
            raise ValueError("dropout cannot be combined with a cache; set deterministic=True")
        positions = x.shape[1]
        packed = self._project(x)
        q, k, v = unpacked(*packed)
        if self.head_norm is not None:
            norms = (self.head_norm(name="q_norm"), self.head_norm(name="k_norm"))
            q, k = (norm(part).astype(part.dtype) for norm, part in zip(norms, (q, k), strict=True))
            packed = q, k, v
        first = 0 if cache is None else cached_positions
        if isinstance(self.positions, Rotary):  # the cache stores rotated keys
            here = first + jnp.arange(positions)
            base = self.positions.base if rotary_base is None else rotary_base
            q, k = (rotary(x, here, base=base, scaling=self.positions.scaling) for x in (q, k))
            packed = q, k, v
        keys = positions if cache is None else cache[0].shape[2]
        relative = self.positions
        if bias is not None and isinstance(relative, RelativeBias | RelativeVectors):
            raise ValueError("a layer with relative positions of its own takes no bias; leave out one of them")
        if isinstance(relative, RelativeBias):
            table = self.param("relative_bias", normal(INITIAL_STDDEV), (relative.num_buckets, self.num_heads))
            bias = relative_bias(table, relative, first, positions, keys, bidirectional=not self.causal)
        if cache is not None:
            batch, _, key_heads, head_width = k.shape
            chex.assert_shape(cache, (batch, key_heads, None, head_width))
            k, v = (
                jax.lax.dynamic_update_slice_in_dim(old, new.swapaxes(1, 2).astype(old.dtype), cached_positions, axis=2)
                for old, new in zip(cache, (k, v), strict=True)
            )
            cache = (k, v)
            k, v = (part.swapaxes(1, 2) for part in cache)
        if isinstance(relative, RelativeVectors):
            y = self._attend_relative(relative, q, k, v, attention_mask, first, deterministic=deterministic)
        elif cache is None:
            y = _attend(self, packed, attention_mask, deterministic=deterministic, bias=bias, causal=self.causal)
        else:
            # Slots after the newest position are empty. No query sees them, since they come later.
            y = dot_product_attention(
                q,
                k,
                v,
                attention_mask=attention_mask,
                bias=bias,
                causal=True,
                first_query=cached_positions,
                scale=self.scale,
            )
        return _output(self, y, x.shape[-1], deterministic=deterministic), cache

    def _attend_relative(
        self,
        vectors: RelativeVectors,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        attention_mask: jax.Array | None,
        first_query: jax.Array | int,
        *,
        deterministic: bool,
    ) -> jax.Array:
        """Values [B, T, H, K] mixed by `attend_relative`, with the vectors of each distance."""
        here = first_query + jnp.arange(q.shape[1])
        distances = clipped_distances(here, jnp.arange(k.shape[1]), max_distance=vectors.max_distance)
        shape = (2 * vectors.max_distance + 1, q.shape[-1])
        tables = (self.param(name, normal(INITIAL_STDDEV), shape) for name in ("relative_keys", "relative_values"))
        drop = self.attention_dropout_rate > 0.0 and not deterministic
        y, weights = attend_relative(
            q,
            k,
            v,
            *(table[distances] for table in tables),
            attention_mask=attention_mask,
            causal=self.causal,
            first_query=first_query,
            dropout_rate=self.attention_dropout_rate,
            dropout_key=dropout_key(self) if drop else None,
            first_row=first_row_of_shard(q.shape[0]),
        )
        self.sow("intermediates", "weights", weights)
        return y

    def _project(self, x: jax.Array) -> tuple[jax.Array, ...]:
        """The arguments of `packed_attention`: [B, T, 3, H, K]; or with fewer key heads [B, T, H, K] and [B, T, 2, G,
        K]."""
        batch, positions, width = x.shape
        heads, key_heads = self.num_heads, self.num_key_heads or self.num_heads
        head_width = self.head_width or _head_width(width, heads)
        if heads % key_heads:
            raise ValueError(f"num_key_heads must divide num_heads, got {key_heads} key heads for {heads} heads")
        rows = x.reshape(batch * positions, width)
        use_bias = self.use_bias if self.qkv_bias is None else self.qkv_bias
        if key_heads == heads:
            qkv = _heads(self, rows, "qkv", 3, heads, head_width, use_bias=use_bias)
            return (qkv.reshape(batch, positions, 3, heads, head_width),)
        q = _heads(self, rows, "q", heads, head_width, use_bias=use_bias)
        kv = _heads(self, rows, "kv", 2, key_heads, head_width, use_bias=use_bias)
        return (
            q.reshape(batch, positions, heads, head_width),
            kv.reshape(batch, positions, 2, key_heads, head_width),
        )


def relative_bias(
    table: jax.Array,
    buckets: RelativeBias,
    first_query: jax.Array | int,
    queries: int,
    keys: int,
    *,
    bidirectional: bool,
) -> jax.Array:
    """The bias on the scores of queries first_query.. and keys 0..: [1, H, T, S].

    Args:
      table: [N, H].
      buckets: N and the maximum distance.
      first_query: [] int.
      queries: T.
      keys: S.
      bidirectional: whether queries see later keys, see `relative_buckets`.
    """
    bucket_ids = relative_buckets(
        first_query + jnp.arange(queries),
        jnp.arange(keys),
        num_buckets=buckets.num_buckets,
        max_distance=buckets.max_distance,
        bidirectional=bidirectional,
    )
    bias = table[bucket_ids].transpose(2, 0, 1)[None]
    chex.assert_shape(bias, (1, table.shape[1], queries, keys))
    return bias


class CrossAttention(nn.Module):
    """Each position of one sequence attends to the positions of another. Attributes: see `SelfAttention`.

    Parameters: q/kernel [D, H, K], kv/kernel [D, 2, H, K], out/kernel [O, D], O = H K, and their biases.

    Source: Vaswani et al. 2017, section 3.2.3. Keys and values are computed in one product.
    """

    num_heads: int
    head_width: int | None = None
    scale: float | None = None
    attention_dropout_rate: float = 0.0
    dropout_rate: float = 0.0
    use_bias: bool = True
    output_stddev: float = INITIAL_STDDEV
    compute: TransformerCompute = TransformerCompute()

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        memory: jax.Array | LayerCache,
        *,
        deterministic: bool,
        attention_mask: jax.Array | None = None,
    ) -> jax.Array:
        """Mixes the memory's values.

        Args:
          x: [B, T, D], or [1, T, D] for the same queries in all examples.
          memory: the sequence to attend to [B, S, D]; or its `keys_and_values`.
          deterministic: no dropout.
          attention_mask: [B or 1, H or 1, T or 1, S] bool, True = may attend; None = all.

        Returns:
          [B, T, D].

        Raises: ValueError when H does not divide D; when shapes do not fit.
        """
        if not isinstance(memory, tuple):
            fit = x.ndim == memory.ndim == 3 and x.shape[0] in (1, memory.shape[0]) and x.shape[2] == memory.shape[2]
            expect(fit, "x [B or 1, T, D] and memory [B, S, D]", x=x, memory=memory)
        chex.assert_rank(x, 3)
        _, positions, width = x.shape
        head_width = self.head_width or _head_width(width, self.num_heads)
        q = _heads(self, x.reshape(-1, width), "q", self.num_heads, head_width, use_bias=self.use_bias)
        packed: tuple[jax.Array, ...]
        if isinstance(memory, tuple):
            packed = tuple(part.swapaxes(1, 2) for part in memory)
            chex.assert_shape(packed, (None, None, self.num_heads, head_width))
        else:
            rows = memory.reshape(-1, width)
            kv = _heads(self, rows, "kv", 2, self.num_heads, head_width, use_bias=self.use_bias)
            packed = (kv.reshape(*memory.shape[:2], 2, self.num_heads, head_width),)
        batch = packed[0].shape[0]
        q = jnp.broadcast_to(
            q.reshape(-1, positions, self.num_heads, head_width), (batch, positions, self.num_heads, head_width)
        )
        y = _attend(self, (q, *packed), attention_mask, deterministic=deterministic)
        return _output(self, y, width, deterministic=deterministic)

    def keys_and_values(self, params: Params, memory: jax.Array) -> LayerCache:
        """The keys and values of a memory [B, S, D], computed once for all decoding steps: two arrays [B, H, S, K].

        Args: params: of this module.
        """
        chex.assert_rank(memory, 3)
        batch, keys, width = memory.shape
        head_width = self.head_width or _head_width(width, self.num_heads)
        dense = Dense((2, self.num_heads, head_width), self.use_bias, compute=self.compute, parent=None)
        kv = jnp.asarray(dense.apply({"params": params["kv"]}, memory.reshape(batch * keys, width)))
        kv = kv.astype(self.compute.operand_dtype or self.compute.activation_dtype)
        k, v = (part.reshape(batch, keys, -1, head_width).swapaxes(1, 2) for part in jnp.split(kv, 2, axis=-1))
        return k, v


def _head_width(width: int, heads: int) -> int:
    if width % heads:
        raise ValueError(f"num_heads must divide the width, got {heads} heads for width {width}")
    return width // heads


def _heads(
    layer: SelfAttention | CrossAttention, rows: jax.Array, name: str, *features: int, use_bias: bool
) -> jax.Array:
    """The projection of rows [N, D] under `name`: [N, F], F the product of `features`; or [N, *features]."""
    y = Dense(features, use_bias, compute=layer.compute, joined=not is_divided(), name=name)(rows)
    # Rounded once here, not by each product: attention then keeps its weights in this type too.
    return y.astype(layer.compute.operand_dtype or layer.compute.activation_dtype)


def _output(layer: SelfAttention | CrossAttention, y: jax.Array, width: int, *, deterministic: bool) -> jax.Array:
    """Mixed values [B, T, H, K] through the output projection [B, T, D]. Args: width: D."""
    batch, positions, heads, head_width = y.shape
    y = y.reshape(-1, heads * head_width)
    y = Dense(width, layer.use_bias, normal(layer.output_stddev), layer.compute, name="out")(y)
    y = Dropout(layer.dropout_rate)(y, deterministic=deterministic)
    return y.reshape(batch, positions, width)


def _attend(
    layer: SelfAttention | CrossAttention,
    packed: tuple[jax.Array, ...],
    attention_mask: jax.Array | None,
    *,
    deterministic: bool,
    bias: jax.Array | None = None,
    causal: bool = False,
) -> jax.Array:
    """`packed_attention` with the layer's attributes; puts the weights into collected `intermediates`."""
    drop = layer.attention_dropout_rate > 0.0 and not deterministic
    if layer.is_mutable_collection("intermediates"):
        q, k, v = unpacked(*packed)
        weights = attention_weights(q, k, attention_mask=attention_mask, bias=bias, causal=causal, scale=layer.scale)
        layer.sow("intermediates", "weights", weights)
        if not drop:
            groups = q.shape[2] // k.shape[2]
            return jnp.einsum("bhts,bshk->bthk", weights.astype(v.dtype), jnp.repeat(v, groups, axis=2))
    return packed_attention(
        *packed,
        attention_mask=attention_mask,
        bias=bias,
        causal=causal,
        scale=layer.scale,
        dropout_rate=layer.attention_dropout_rate,
        dropout_key=dropout_key(layer) if drop else None,
        first_row=first_row_of_shard(packed[0].shape[0]),
        implementation=layer.compute.attention,
    )
