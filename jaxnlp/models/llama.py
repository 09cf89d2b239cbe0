"""Llama: a decoder-only language model with rotary positions, and variants of it.

Source: Touvron et al. 2023 (Llama); Ainslie et al. 2023 for shared key heads; Jiang et al. 2023 (Mistral) for windows;
Yang et al. 2025 (Qwen3) for the normalisation of heads; So et al. 2021 (Primer) for ReLU squared without a gate; Zhang
et al. 2019 (Fixup) for branches that are zero at first. Otherwise as `models.gpt`. `jaxnlp.convert.decoder_weights`
reads weights of Llama, Mistral, Qwen2 and Qwen3.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Natural, Positive, ProperFraction
from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.gpt import GPT, GPTConfig
from jaxnlp.models.parameter_table import Table
from jaxnlp.nn.attention import Rotary, SelfAttention
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.feed_forward import Activation
from jaxnlp.nn.normalization import RMSNorm
from jaxnlp.nn.transformer import Layer
from jaxnlp.ops import masks
from jaxnlp.ops.positions import RotaryScaling


@dataclasses.dataclass(frozen=True)
class LlamaConfig(GPTConfig):
    """Shape of a Llama: rotary positions, root-mean-square normalisation, gated feed-forward layers, no biases."""

    context_length: Count = 2_048
    """Maximum length in tokens."""
    num_key_heads: Count | None = None
    """Heads of keys and values, G, which heads share; must divide the number of heads; None = as many as heads."""
    head_width: Count | None = None
    """Width of queries, keys and values in each head, K; None = width / num_heads."""
    activation: Activation = "silu"
    """Activation of the gate of the feed-forward layers, or of layers without one."""
    gated: bool = True
    """Whether the feed-forward layers have a gate."""
    zero_outputs: bool = False
    """Whether the last weights of each branch are zero at first, so that the initial model is only its embeddings."""
    epsilon: ProperFraction = 1e-6
    """Epsilon of the normalisations."""
    use_bias: bool = False
    """Whether dense layers have biases; must be False."""
    qkv_bias: bool = False
    """Whether queries, keys and values have biases, as in Qwen2."""
    head_norm: bool = False
    """Whether each head's queries and keys are normalised, as in Qwen3."""
    logit_cap: Positive | None = None
    """Limit c of the logits z, by c tanh(z / c), as in Gemma 2; None = no limit."""
    local_layers: tuple[Natural, ...] = ()
    """Indices, from 0, of blocks in which a token sees only a window of the last tokens, as in Mistral."""
    local_window: Count = 128
    """Window of local layers in tokens, the token itself included."""
    rotary_base: Positive = 10_000.0
    """Base of the rates of rotation; a larger base rotates more slowly, for longer texts."""
    rotary_factor: Positive = 1.0
    """Divisor of the rates of rotation, to read longer texts than in training."""
    rotary_original_length: Natural = 0
    """Length of texts in training, if the factor is only for slow rates; 0 = for all rates."""
    rotary_fewest_turns: Positive = 1.0
    """Rates with fewer turns in the original length are divided by the whole factor."""
    rotary_most_turns: Positive = 4.0
    """Rates with more turns in the original length are not divided."""

    def __post_init__(self):
        super().__post_init__()
        self.only_if(self.rotary_factor != 1.0, "a model.rotary_factor other than 1", "rotary_original_length")
        turns = ("rotary_fewest_turns", "rotary_most_turns")
        self.only_if(self.rotary_original_length, "an original length (model.rotary_original_length)", *turns)
        self.only_if(self.local_layers, "a decoder with local layers", "local_window")
        if any(layer >= self.num_layers for layer in self.local_layers):
            raise ValueError(
                f"model.local_layers must be below model.num_layers, {self.num_layers}, got {self.local_layers}"
            )
        if self.use_bias:
            raise ValueError("model.use_bias must be False for a Llama, got True")
        if self.num_heads % self.key_heads:
            raise ValueError(
                f"model.num_key_heads must divide model.num_heads, got {self.key_heads} key heads for "
                f"{self.num_heads} heads"
            )
        if self.key_width % 2:
            raise ValueError(f"model.head_width must be even for rotary positions, got {self.key_width}")
        if self.rotary_fewest_turns >= self.rotary_most_turns:
            raise ValueError(
                f"model.rotary_fewest_turns must be below model.rotary_most_turns, {self.rotary_most_turns}, got "
                f"{self.rotary_fewest_turns}"
            )

    @property
    def key_heads(self) -> int:
        return self.num_key_heads or self.num_heads

    @property
    def key_width(self) -> int:
        return self.head_width or self.width // self.num_heads

    @property
    def positions(self) -> Rotary:
        """How queries and keys are rotated."""
        if self.rotary_factor == 1.0:
            return Rotary(self.rotary_base)
        length = self.rotary_original_length or None
        turns = (self.rotary_fewest_turns, self.rotary_most_turns)
        return Rotary(self.rotary_base, RotaryScaling(self.rotary_factor, *turns, length))

    def architecture(self) -> dict[str, Any]:
        return super().architecture() | {"num_key_heads": self.key_heads, "head_width": self.key_width}

    def build(self, processor: Any) -> "Llama":
        return Llama(self, self.embeddings(processor.size))

    def layers(self, compute: TransformerCompute, mixer: Layer | None = None) -> tuple[Layer, Layer, Layer]:
        mixer, feed_forward, _ = super().layers(compute, mixer)
        norm = functools.partial(RMSNorm, self.epsilon, compute)
        mixer = functools.partial(mixer, head_norm=norm if self.head_norm else None)
        feed_forward = functools.partial(feed_forward, gated=self.gated)
        if self.zero_outputs:
            mixer, feed_forward = (functools.partial(layer, output_stddev=0.0) for layer in (mixer, feed_forward))
        return mixer, feed_forward, norm

    @property
    def mixer(self) -> Layer:
        return functools.partial(
            SelfAttention,
            num_key_heads=self.key_heads,
            head_width=self.key_width,
            qkv_bias=self.qkv_bias,
            positions=self.positions,
        )

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        axes = parameter_table.self_attention(
            grouped=self.key_heads != self.num_heads,
            use_bias=False,
            qkv_bias=self.qkv_bias,
            head_norm=self.head_norm,
        )
        blocks = parameter_table.block(axes, gated=self.gated, use_bias=False)
        table: Table = parameter_table.entries(blocks, 0, prefix=("blocks",), stacked=True)
        around = {name: entry for name, entry in self.parameters_around().items() if name != ("positions",)}
        return parameter_table.find(around | table, path)


class Llama(GPT):
    """Scores for each next token, with positions only in attention. Attributes: as `GPT`."""

    config: LlamaConfig

    def placed(self, x: jax.Array, first: jax.Array) -> jax.Array:
        del first
        return x

    def limited(self, logits: jax.Array) -> jax.Array:
        cap = self.config.logit_cap
        return logits if cap is None else cap * jnp.tanh(logits / cap)

    def layer_inputs(
        self, queries: int, keys: int, first_query: jax.Array
    ) -> Callable[[jax.Array], dict[str, Any]] | None:
        config = self.config
        if not config.local_layers:
            return None
        near = masks.local(queries, keys, before=config.local_window - 1, first_query=first_query)

        def inputs(layer: jax.Array) -> dict[str, Any]:
            return {"attention_mask": near | ~jnp.isin(layer, jnp.array(config.local_layers, jnp.int32))}

        return inputs
