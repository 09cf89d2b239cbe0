"""Transformer blocks and stacks of them.

Only attention mixes an example's positions; everything else is computed on rows, [B * T, D]. XLA on CPU fuses
elementwise work into one loop. A loop over arrays of two and of three axes needs a division for each element.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.nn.attention import CrossAttention, Positions, SelfAttention
from jaxnlp.nn.cache import LayerCache
from jaxnlp.nn.compute import Compute
from jaxnlp.nn.dropout import LayerDropout
from jaxnlp.nn.feed_forward import Activation, FeedForward
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.synthesizer import SynthesizerAttention

Mixer = Literal["dot", "synthesizer", "memory"]

UNREAD: dict[Mixer, tuple[str, ...]] = {
    "dot": ("context_length", "normalise_queries"),
    "synthesizer": ("num_key_heads", "causal", "positions", "num_buckets", "max_distance", "normalise_queries"),
    "memory": (
        "cross",
        "context_length",
        "num_key_heads",
        "causal",
        "norm",
        "positions",
        "num_buckets",
        "max_distance",
    ),
}
"""The attributes of a block that its mixer does not read. They must keep their defaults."""


def rows(x: jax.Array) -> jax.Array:
    """[B, T, D] as [B * T, D]; any axes before the last become one."""
    return x.reshape(-1, x.shape[-1])


class TransformerBlock(nn.Module):
    """Attention and a feed-forward layer, each added to its input and normalised before or after.

        pre:   x = x + Attention(LayerNorm(x));  x = x + FeedForward(LayerNorm(x))
        post:  x = LayerNorm(x + Attention(x));  x = LayerNorm(x + FeedForward(x))

    With `cross`, attention to a memory is between the two in the same way.

    Attributes:
      num_heads: H.
      feed_forward_width: F.
      mixer: how positions are mixed: dot-product attention (dot); attention without dot products (synthesizer); or only
        attention to the memory, with no self-attention (memory). `UNREAD` lists the attributes that each does not read.
      cross: whether attention to a memory follows the self-attention.
      context_length: maximum length of the synthesizer.
      num_key_heads: G; None = H. Only for dot-product self-attention.
      causal: whether self-attention hides later positions.
      norm: normalise before each branch (pre) or after each sum (post). With pre, the output of the last block is not
        normalised. The mixer `memory` has pre only.
      normalise_queries: with the mixer `memory`, whether queries are normalised.
      epsilon: of the normalisations.
      activation: of the feed-forward layer.
      use_bias: whether dense and normalisation layers have biases.
      residual_stddev: standard deviation of the initial weights that write to the residual stream.
      attention_dropout_rate: share of attention weights dropped in training.
      residual_dropout_rate: share of each branch's outputs dropped in training.
      layer_dropout_rate: share of the examples that skip a branch in training, see `LayerDropout`.
      compute: types and implementations.
      positions: of dot-product self-attention: none, rotary, relative_bias or relative_vectors, see
        `nn.attention.SelfAttention`.
      num_buckets: of a relative bias.
      max_distance: of relative positions.

    Source: Vaswani et al. 2017, section 3.1 (post); Radford et al. 2019, section 2.3 (pre); Xiong et al. 2020 for the
    effect of the order.
    """

    num_heads: int
    feed_forward_width: int
    mixer: Mixer = "dot"
    cross: bool = False
    context_length: int | None = None
    num_key_heads: int | None = None
    causal: bool = True
    norm: Literal["pre", "post"] = "pre"
    normalise_queries: bool = True
    epsilon: float = 1e-5
    activation: Activation = "gelu_tanh"
    use_bias: bool = True
    residual_stddev: float = 0.02
    attention_dropout_rate: float = 0.0
    residual_dropout_rate: float = 0.0
    layer_dropout_rate: float = 0.0
    compute: Compute = Compute()
    positions: Positions = "none"
    num_buckets: int = 32
    max_distance: int = 128

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        *,
        deterministic: bool,
        attention_mask: jax.Array | None = None,
        memory: jax.Array | None = None,
        memory_mask: jax.Array | None = None,
        cache: LayerCache | None = None,
        cached_positions: jax.Array | int = 0,
    ) -> tuple[jax.Array, LayerCache | None]:
        """Mixes positions, then transforms each.

        Args:
          x: [B, T, D]; with the mixer `memory` also [1, T, D], the same for all examples.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
          attention_mask: of self-attention, see `nn.attention.SelfAttention`.
          memory: [B, S, D], for `cross` and the mixer `memory`.
          memory_mask: [B or 1, H or 1, T or 1, S] bool, True = may attend to the memory; None = all.
          cache: the self-attention's; with `cross`, followed by the memory's keys and values
            (`CrossAttention.keys_and_values`), which then take the place of `memory`.
          cached_positions: [] int, the number of filled positions in the cache.

        Returns:
          [B, T, D], and the cache with the positions of x added (None without a cache).

        Raises:
          ValueError: for attributes that the mixer does not read, unless they have their defaults; for arguments that
            the block does not read, and for missing arguments; and as the layers.
        """
        chex.assert_rank(x, 3)
        self._check_attributes()
        self._check_arguments(attention_mask, memory, memory_mask, cache)
        shape, x = x.shape, rows(x)
        if self.mixer == "memory":
            x = self._read(x.reshape(shape), memory, memory_mask, deterministic)
            shape, x = x.shape, rows(x)
        else:
            own = None if cache is None else cache[: len(cache) - 2 * self.cross]
            attention_norm = self._norm("attention_norm")
            branch, new = self._self_attention()(
                (attention_norm(x) if self.norm == "pre" else x).reshape(shape),
                deterministic=deterministic,
                attention_mask=attention_mask,
                cache=own,
                cached_positions=cached_positions,
            )
            x = x + rows(self._kept(branch, deterministic))
            x = x if self.norm == "pre" else attention_norm(x)
            if self.cross:
                kept = memory if cache is None else cache[-2:]
                x = self._cross(x.reshape(shape), kept, memory_mask, deterministic)
            cache = None if cache is None or new is None else (*new, *cache[len(new) :])
        feed_forward_norm = self._norm("feed_forward_norm")
        feed_forward = FeedForward(
            feed_forward_width=self.feed_forward_width,
            dropout_rate=self.residual_dropout_rate,
            activation=self.activation,
            use_bias=self.use_bias,
            output_stddev=self.residual_stddev,
            compute=self.compute,
            name="feed_forward",
        )
        branch = feed_forward_norm(x) if self.norm == "pre" else x
        branch = feed_forward(branch.reshape(shape), deterministic=deterministic)
        x = x + rows(self._kept(branch, deterministic))
        x = x if self.norm == "pre" else feed_forward_norm(x)
        return x.reshape(shape), cache

    def _check_attributes(self) -> None:
        if self.mixer not in UNREAD:
            raise ValueError(f"mixer must be one of {', '.join(UNREAD)}, got {self.mixer!r}")
        if self.norm not in ("pre", "post"):
            raise ValueError(f"norm must be pre or post, got {self.norm!r}")
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in UNREAD[self.mixer]:
            value, default = getattr(self, name), defaults[name]
            if value != default:
                raise ValueError(
                    f"mixer={self.mixer!r} takes no {name}={value!r}; leave {name} at {default!r}, or set another mixer"
                )
        if self.mixer == "synthesizer" and self.context_length is None:
            raise ValueError("mixer='synthesizer' needs context_length; set it to the maximum length")

    def _check_arguments(self, attention_mask: Any, memory: Any, memory_mask: Any, cache: Any) -> None:
        if self.mixer == "memory" and (attention_mask is not None or cache is not None):
            raise ValueError("mixer='memory' has no self-attention; leave out attention_mask and cache")
        if not self.cross and self.mixer != "memory":
            if memory is not None or memory_mask is not None:
                raise ValueError("this block reads no memory; leave out memory and memory_mask, or set cross=True")
        elif (memory is None) == (cache is None):
            raise ValueError(
                "this block reads a memory; pass memory [B, S, D], or a cache that ends with the memory's keys and "
                f"values; got {'neither' if memory is None else 'both'}"
            )
        arrays = (1 if self.mixer == "synthesizer" else 2) + 2 * self.cross
        if cache is not None and len(cache) != arrays:
            raise ValueError(
                f"expected a cache of {arrays} arrays, got {len(cache)}; with cross=True the last two are those of "
                "CrossAttention.keys_and_values"
            )

    def _read(self, x: jax.Array, memory: Any, memory_mask: jax.Array | None, deterministic: bool) -> jax.Array:
        """x [B or 1, T, D] plus what it reads in the memory, without self-attention: [B, T, D]."""
        branch = self._norm("query_norm")(rows(x)).reshape(x.shape) if self.normalise_queries else x
        memory = self._norm("memory_norm")(rows(memory)).reshape(memory.shape)
        attention = self._attention(CrossAttention, "attention")
        branch = attention(branch, memory, deterministic=deterministic, attention_mask=memory_mask)
        x = jnp.broadcast_to(x, branch.shape)
        return (rows(x) + rows(self._kept(branch, deterministic))).reshape(branch.shape)

    def _cross(self, x: jax.Array, memory: Any, memory_mask: jax.Array | None, deterministic: bool) -> jax.Array:
        """x [B, T, D] plus what it reads in the memory: rows [B * T, D]."""
        norm = self._norm("cross_attention_norm")
        branch = norm(rows(x)).reshape(x.shape) if self.norm == "pre" else x
        attention = self._attention(CrossAttention, "cross_attention")
        branch = attention(branch, memory, deterministic=deterministic, attention_mask=memory_mask)
        y = rows(x) + rows(self._kept(branch, deterministic))
        return y if self.norm == "pre" else norm(y)

    def _self_attention(self) -> SelfAttention | SynthesizerAttention:
        if self.mixer == "synthesizer":
            return self._attention(SynthesizerAttention, "attention", context_length=self.context_length)
        return self._attention(
            SelfAttention,
            "attention",
            causal=self.causal,
            num_key_heads=self.num_key_heads,
            positions=self.positions,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )

    def _attention(self, kind: Any, name: str, **more: Any) -> Any:
        return kind(
            num_heads=self.num_heads,
            attention_dropout_rate=self.attention_dropout_rate,
            dropout_rate=self.residual_dropout_rate,
            use_bias=self.use_bias,
            output_stddev=self.residual_stddev,
            compute=self.compute,
            name=name,
            **more,
        )

    def _kept(self, branch: jax.Array, deterministic: bool) -> jax.Array:
        """A branch [B, T, D], with zeros for the examples that skip it."""
        return LayerDropout(self.layer_dropout_rate)(branch, deterministic=deterministic)

    def _norm(self, name: str) -> LayerNorm:
        return LayerNorm(self.epsilon, self.use_bias, self.compute, name=name)


class StackOutput(NamedTuple):
    """The outputs of a stack of blocks.

    Attributes:
      hidden: after the last block [B, T, D].
      layers: after each block [L, B, T, D]; None without `return_layers`.
      caches: of each block; None without caches.
    """

    hidden: jax.Array
    layers: jax.Array | None
    caches: tuple[LayerCache | None, ...] | None


def stack(
    block: Callable[..., TransformerBlock],
    layers: int,
    compute: Compute,
    x: jax.Array,
    *,
    deterministic: bool,
    attention_mask: jax.Array | None = None,
    memory: jax.Array | None = None,
    memory_mask: jax.Array | None = None,
    caches: tuple[LayerCache | None, ...] | None = None,
    cached_positions: jax.Array | int = 0,
    return_layers: bool = False,
) -> StackOutput:
    """Applies blocks one after the other; to be called inside a module's compact method.

    The parameters of the blocks are stacked on their first axis, under `blocks`, whether the blocks are looped over or
    unrolled: `scan_layers` and `remat` change only how the function is computed. Checkpoints stay valid, and random
    streams stay the same. Inference may give each block its own parameters, `block_0`, `block_1`, ... (see
    `unstacked`); with caches it must.

    Args:
      block: makes a block with a given `name`, such as `functools.partial(TransformerBlock, num_heads=4, ...)`.
      layers: L.
      compute: whether to scan, and whether to recompute blocks in the backward pass.
      x: [B, T, D].
      deterministic, attention_mask, memory, memory_mask: see `TransformerBlock`.
      caches: one for each block, if x continues earlier positions; a block without one reads x as a whole sequence.
      cached_positions: [] int, the number of filled positions in the caches.
      return_layers: also return what each block returns. Not with caches.

    Raises:
      ValueError: for another number of caches than L; for return_layers with caches; and as the blocks.
    """
    chex.assert_rank(x, 3)
    if caches is not None and len(caches) != layers:
        raise ValueError(f"expected caches of {layers} layers, got {len(caches)}; pass None for a layer without one")
    if caches is not None and return_layers:
        raise ValueError("return_layers cannot be combined with caches; leave out one of them")
    read = {"attention_mask": attention_mask, "memory": memory, "memory_mask": memory_mask}
    if layers == 0:
        return StackOutput(x, None, None if caches is None else ())
    first = block(name="block_0")
    module: Any = first.parent
    if caches is not None or module.has_variable("params", "block_0"):
        blocks = [first, *(block(name=f"block_{number}") for number in range(1, layers))]
        kept, layer_outputs = [], []
        for one, cache in zip(blocks, caches or [None] * layers, strict=True):
            x, cache = one(x, deterministic=deterministic, **read, cache=cache, cached_positions=cached_positions)
            kept.append(cache)
            layer_outputs.append(x)
        found = jnp.stack(layer_outputs) if return_layers else None
        return StackOutput(x, found, None if caches is None else tuple(kept))

    def body(module: TransformerBlock, x: jax.Array, read: dict[str, Any]) -> tuple[jax.Array, jax.Array | None]:
        x, _ = module(x, deterministic=deterministic, **read)
        return x, x if return_layers else None

    scanned = nn.scan(
        nn.remat(body, prevent_cse=not compute.scan_layers) if compute.remat else body,
        variable_axes={"params": 0, "intermediates": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=nn.broadcast,
        length=layers,
        unroll=1 if compute.scan_layers else layers,
    )
    x, outputs = scanned(block(name="blocks"), x, read)
    return StackOutput(x, outputs, None)


def unstacked(params: Any) -> Any:
    """Parameters of a model for inference: each block has its own, `block_0`, `block_1`, ..., in place of `blocks`.

    XLA copies a slice of the stack before it multiplies by it. With few rows, this takes longer than the product.

    Args:
      params: a tree of any depth. Blocks that are separate already, and all other parameters, stay the same.
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        if name == "blocks":
            layers = len(jax.tree.leaves(value)[0])
            found |= {
                f"block_{number}": jax.tree.map(lambda x, number=number: x[number], value) for number in range(layers)
            }
        else:
            found[name] = unstacked(value) if isinstance(value, Mapping) else value
    return found
