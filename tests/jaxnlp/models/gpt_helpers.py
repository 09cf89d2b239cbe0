"""Shared by the tests of GPT, Perceiver and Synthesizer."""

import dataclasses
import functools

import jax
import numpy as np
import optax

from jaxnlp.models import parameter_shapes
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.llama import LlamaConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.nn.compute import TransformerCompute
from tests.processors import sized

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, BATCH = 2, 2, 8, 10, 13, 3
TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, size=(BATCH, CONTEXT)).astype(np.int32)
TARGETS = np.random.default_rng(1).integers(0, VOCABULARY, size=(BATCH, CONTEXT)).astype(np.int32)
LATENTS = 4
COMPUTE = {field.name for field in dataclasses.fields(TransformerCompute)}
VARIANTS = {
    "vanilla": {},
    "synthesizer": {"kind": SynthesizerConfig},
    "llama": {
        "kind": LlamaConfig,
        "num_key_heads": 1,
        "head_norm": True,
        "qkv_bias": True,
        "local_layers": (1,),
        "local_window": 3,
    },
    "prefix": {"kind": PerceiverConfig, "num_layers": 4, "num_latents": LATENTS},
    "along": {"kind": PerceiverConfig, "num_layers": 4, "num_latents": LATENTS, "latent_placement": "along"},
}


def make_model(*, vocabulary_size=VOCABULARY, kind=GPTConfig, **changes):
    """A small model that loops over its layers, which compiles in half the time; a test shows that it may.

    Fields of `Compute` are taken among those of the model.
    """
    compute = {"scan_layers": True} | {name: changes.pop(name) for name in COMPUTE & changes.keys()}
    settings = {"num_layers": LAYERS, "num_heads": HEADS, "width": WIDTH, "context_length": CONTEXT}
    return kind(**(settings | changes), compute=TransformerCompute(**compute)).build(sized(vocabulary_size))


def make_key(seed):
    return jax.random.key(seed, impl="rbg")  # compiles faster than the default


def shapes_of(model):
    return parameter_shapes(model, np.zeros((1, 1), np.int32))


@functools.partial(jax.jit, static_argnums=0)
def initial_params(model, key):
    return model.init(key, np.zeros((1, 1), np.int32))["params"]


def random_params(model):
    """Weights of ordinary size, so that every part matters; none is zero or one."""
    generator = np.random.default_rng(2)
    draw = {
        "kernel": lambda shape: 0.4 * generator.normal(size=shape),
        "bias": lambda shape: 0.4 * generator.normal(size=shape),
        "scale": lambda shape: 1.0 + 0.4 * generator.normal(size=shape),
    }
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.float32(draw.get(path[-1].key, draw["kernel"])(leaf.shape)), shapes_of(model)
    )


@functools.partial(jax.jit, static_argnums=0, static_argnames="deterministic")
def apply(model, params, tokens, *, deterministic=True, dropout_key=None, cache=None, count=None):
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    return model.apply({"params": params}, tokens, deterministic=deterministic, rngs=rngs, cache=cache, count=count)


@jax.jit
def mean_loss(logits):
    return optax.softmax_cross_entropy_with_integer_labels(logits, TARGETS).mean()
