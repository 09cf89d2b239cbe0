"""Transformer blocks and stacks of them.

Only attention mixes an example's positions; everything else is computed on rows, [B * T, D]. XLA on CPU fuses
elementwise work into one loop, which needs a division for each element if arrays have two and three axes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.nn.cache import LayerCache
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dropout import LayerDropout
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.shards import gathered_in

Layer = Callable[..., Any]
"""Makes a module with a given `name`, such as `functools.partial(SelfAttention, num_heads=4)`."""


def rows(x: jax.Array) -> jax.Array:
    """[B, T, D] as [B * T, D]; any axes before the last become one."""
    return x.reshape(-1, x.shape[-1])


class TransformerBlock(nn.Module):
    """A mixer of positions and a feed-forward layer, each added to its input and normalised before or after.

        pre:   x = x + Mixer(LayerNorm(x));  x = x + FeedForward(LayerNorm(x))
        post:  x = LayerNorm(x + Mixer(x));  x = LayerNorm(x + FeedForward(x))

    With `cross`, attention to a memory is between the two.

    Attributes:
      mixer: makes the module that mixes positions: `nn.attention.SelfAttention`, `nn.synthesizer.SynthesizerAttention`,
        or one with the same arguments that returns [B, T, D] and its cache.
      feed_forward: makes the module that transforms each position.
      norm: makes a normalisation.
      cross: makes the attention to a memory; None = no memory.
      order: normalise before each branch (pre), which leaves the last output unnormalised, or after each sum (post).
      layer_dropout_rate: share of the examples that skip a branch in training, see `LayerDropout`.

    Source: Vaswani et al. 2017, section 3.1 (post); Radford et al. 2019, section 2.3 (pre); Xiong et al. 2020.
    """

    mixer: Layer
    feed_forward: Layer
    norm: Layer = LayerNorm
    cross: Layer | None = None
    order: Literal["pre", "post"] = "pre"
    layer_dropout_rate: float = 0.0

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        *,
        deterministic: bool,
        attention_mask: jax.Array | None = None,
        bias: jax.Array | None = None,
        rotary_base: jax.Array | None = None,
        normalised: jax.Array | None = None,
        memory: jax.Array | None = None,
        memory_mask: jax.Array | None = None,
        cache: LayerCache | None = None,
        cached_positions: jax.Array | int = 0,
    ) -> tuple[jax.Array, LayerCache | None]:
        """Mixes positions, then transforms each.

        Args:
          x: [B, T, D].
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
          attention_mask, bias, rotary_base: of the mixer, see `nn.attention.SelfAttention`; it gets the last two only
            if not None.
          normalised: [] bool, whether the mixer of order pre reads x itself, which is normalised already. None = no.
          memory: [B, S, D], for `cross`.
          memory_mask: [B or 1, H or 1, T or 1, S] bool, True = may attend to the memory; None = all.
          cache: the mixer's; with `cross`, followed by `CrossAttention.keys_and_values`, which replace `memory`.
          cached_positions: [] int, the number of filled positions in the cache.

        Returns:
          [B, T, D], and the cache with the positions of x added; None without a cache.

        Raises: ValueError for an unknown order; for a memory without `cross`; for neither or both of a memory and a
          cache with `cross`; and as the layers.
        """
        chex.assert_rank(x, 3)
        if self.order not in ("pre", "post"):
            raise ValueError(f"order must be pre or post, got {self.order!r}")
        if self.cross is None and (memory is not None or memory_mask is not None):
            raise ValueError("this block reads no memory; leave out memory and memory_mask, or give it cross")
        if self.cross is not None and (memory is None) == (cache is None):
            raise ValueError(
                "this block reads a memory; pass memory [B, S, D], or a cache that ends with the memory's keys and "
                f"values; got {'neither' if memory is None else 'both'}"
            )
        shape = x.shape

        def add(x: jax.Array, branch: Callable[[jax.Array], jax.Array], name: str) -> jax.Array:
            """Adds a branch to rows [B * T, D]."""
            norm = self.norm(name=f"{name}_norm")
            read = norm(x) if self.order == "pre" else x
            if name == "attention" and normalised is not None:
                read = jnp.where(normalised, x, read)
            y = branch(read.reshape(shape))
            x = x + rows(LayerDropout(self.layer_dropout_rate)(y, deterministic=deterministic))
            return x if self.order == "pre" else norm(x)

        mixed: LayerCache | None = None

        def mix(x: jax.Array) -> jax.Array:
            nonlocal mixed
            own = cache[:-2] if cache is not None and self.cross is not None else cache
            read = {"attention_mask": attention_mask, "cache": own, "cached_positions": cached_positions}
            further = {"bias": bias, "rotary_base": rotary_base}
            read |= {name: value for name, value in further.items() if value is not None}
            y, mixed = self.mixer(name="attention")(x, deterministic=deterministic, **read)
            return y

        x = add(rows(x), mix, "attention")
        if self.cross is not None:
            attend = self.cross(name="cross_attention")
            kept = memory if cache is None else cache[-2:]
            x = add(x, lambda x: attend(x, kept, deterministic=deterministic, attention_mask=memory_mask), attend.name)
            mixed = None if mixed is None or cache is None else (*mixed, *cache[-2:])
        feed_forward = self.feed_forward(name="feed_forward")
        x = add(x, lambda x: feed_forward(x, deterministic=deterministic), "feed_forward")
        return x.reshape(shape), mixed


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
    block: Layer,
    layers: int,
    compute: TransformerCompute,
    x: jax.Array,
    *,
    deterministic: bool,
    attention_mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    memory: jax.Array | None = None,
    memory_mask: jax.Array | None = None,
    layer_inputs: Callable[[jax.Array], dict[str, Any]] | None = None,
    caches: tuple[LayerCache | None, ...] | None = None,
    cached_positions: jax.Array | int = 0,
    return_layers: bool = False,
) -> StackOutput:
    """Applies blocks one after the other; to be called inside a module's compact method.

    The parameters of the blocks are always stacked on their first axis, under `blocks`: `scan_layers` and `remat`
    change only the computation, so checkpoints stay valid, and random streams stay the same. Inference may give each
    block its own parameters, `block_0`, `block_1`, ... (see `unstacked`); with caches it must.

    Args:
      block: makes a `TransformerBlock`.
      layers: L.
      compute: whether to scan, and whether to recompute blocks in the backward pass.
      x: [B, T, D].
      deterministic, attention_mask, bias, memory, memory_mask: see `TransformerBlock`.
      layer_inputs: index [] int of a block -> its further or changed arguments; None = all blocks get the same.
      caches: one for each block, if x continues earlier positions; a block without one reads x as a whole sequence.
      cached_positions: [] int, the number of filled positions in the caches.
      return_layers: also return what each block returns. Not with caches.

    Raises: ValueError for another number of caches than L; for return_layers with caches; and as the blocks.
    """
    chex.assert_rank(x, 3)
    if caches is not None and len(caches) != layers:
        raise ValueError(f"expected caches of {layers} layers, got {len(caches)}; pass None for a layer without one")
    if caches is not None and return_layers:
        raise ValueError("return_layers cannot be combined with caches; leave out one of them")
    read = {"attention_mask": attention_mask, "bias": bias, "memory": memory, "memory_mask": memory_mask}
    own = layer_inputs or (lambda layer: {})
    if layers == 0:
        return StackOutput(x, None, None if caches is None else ())
    first = block(name="block_0")
    module: Any = first.parent
    if caches is not None or module.has_variable("params", "block_0"):
        blocks = [first, *(block(name=f"block_{index}") for index in range(1, layers))]
        kept, layer_outputs = [], []
        for layer, (one, cache) in enumerate(zip(blocks, caches or [None] * layers, strict=True)):
            inputs = read | own(jnp.asarray(layer))
            x, cache = one(x, deterministic=deterministic, **inputs, cache=cache, cached_positions=cached_positions)
            kept.append(cache)
            layer_outputs.append(x)
        stacked = jnp.stack(layer_outputs) if return_layers else None
        return StackOutput(x, stacked, None if caches is None else tuple(kept))

    def body(
        module: TransformerBlock, x: jax.Array, read: dict[str, Any], layer: jax.Array | None
    ) -> tuple[jax.Array, jax.Array | None]:
        inputs = read if layer is None else read | own(layer)
        x = gathered_in(
            module,
            lambda module, x: module(x, deterministic=deterministic, **inputs)[0],
            x,
            activations=compute.activation_dtype,
        )
        return x, x if return_layers else None

    # A loop draws the same parameters, and a program that draws them for one block compiles several times as fast.
    loop = compute.loops or module.is_initializing()
    scanned = nn.scan(
        nn.remat(body, prevent_cse=not loop) if compute.remat else body,
        variable_axes={"params": 0, "intermediates": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=(nn.broadcast, 0),
        length=layers,
        unroll=1 if loop else layers,
        # This check traces the block once more. It stays where random numbers are drawn: it decides which ones.
        check_constancy_invariants=not deterministic or module.is_initializing(),
    )
    x, outputs = scanned(block(name="blocks"), x, read, None if layer_inputs is None else jnp.arange(layers))
    return StackOutput(x, outputs, None)


def unstacked(params: Any) -> Any:
    """Parameters of a model for inference: each block has its own, `block_0`, `block_1`, ..., instead of `blocks`.

    XLA copies a slice of the stack before a product; with few rows, that takes longer than the product.

    Args: params: a tree of any depth. Separate blocks and all other parameters stay.
    """
    separate: dict[str, Any] = {}
    for name, value in params.items():
        if name == "blocks":
            layers = len(jax.tree.leaves(value)[0])
            separate |= {
                f"block_{index}": jax.tree.map(lambda x, index=index: x[index], value) for index in range(layers)
            }
        else:
            separate[name] = unstacked(value) if isinstance(value, Mapping) else value
    return separate
