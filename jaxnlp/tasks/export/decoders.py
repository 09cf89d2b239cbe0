"""Decoders as programs: a text, or its continuation from a cache that the program returns."""

from collections.abc import Mapping
from typing import Any

import jax

from jaxnlp.decoding.generation import Decoder, target_decoder_of
from jaxnlp.inference.exportable import Axes, Exportable, flat
from jaxnlp.tasks import Trained
from jaxnlp.typing import Params, PyTree

_RETURNS = "logits [B, T, V] of the token after each one; and the cache with these tokens"


def read_and_step(decoder: Decoder) -> dict[str, Exportable]:
    """`read`: the start of texts; and `step`: the next tokens of the same texts, from the previous cache."""
    axes = Axes(T=(1, decoder.capacity))
    tokens = axes("B, T")

    def read(params: Params, inputs: Mapping[str, Any]) -> dict[str, PyTree]:
        return _advanced(decoder, params, inputs["tokens"], decoder.empty_cache(inputs["tokens"].shape[0]))

    cache = jax.eval_shape(lambda tokens: decoder.empty_cache(tokens.shape[0]), tokens)
    return {"read": Exportable(_RETURNS, read, axes, {"tokens": tokens}), "step": step(decoder, axes, cache)}


def step(decoder: Decoder, axes: Axes, cache: PyTree, labels: Any = None) -> Exportable:
    """The next tokens of texts, from a cache of this shape."""
    leaves, unflatten = flat(cache)

    def apply(params: Params, inputs: Mapping[str, Any]) -> dict[str, PyTree]:
        return _advanced(decoder, params, inputs["tokens"], unflatten(inputs["cache"]))

    most = "" if decoder.capacity is None else f"; a text may have {decoder.capacity:,} tokens"
    return Exportable(_RETURNS + most, apply, axes, {"tokens": axes("B, T"), "cache": leaves}, labels)


def _advanced(decoder: Decoder, params: Params, tokens: jax.Array, cache: PyTree) -> dict[str, PyTree]:
    logits, cache = decoder.read(decoder.prepare(params), tokens, cache, None)
    return {"logits": logits, "cache": flat(cache)[0]}


def encode_and_step(trained: Trained) -> dict[str, Exportable]:
    """`encode`: the cache of sources; and `step`: the next tokens of their targets, from the start symbol on.

    Args: trained: its model has `initial_cache`, as a `SequenceToSequenceConfig` says.
    """
    model: Any = trained.model
    start, end, *_ = trained.processor.symbols
    decoder, longest = target_decoder_of(model), model.config.max_length
    axes = Axes(S=(1, longest))

    def encode(params: Params, inputs: Mapping[str, Any]) -> dict[str, PyTree]:
        cache = model.initial_cache(params, inputs["source"], inputs["source_mask"])
        return {"cache": flat(cache)[0]}

    def sources(axes: Axes) -> dict[str, jax.ShapeDtypeStruct]:
        return {"source": axes("B, S"), "source_mask": axes("B, S", bool)}

    of_step = Axes(S=(1, longest), T=(1, decoder.capacity))
    shapes = sources(of_step)
    cache = jax.eval_shape(model.initial_cache, trained.params, shapes["source"], shapes["source_mask"])
    return {
        "encode": Exportable("the cache of sources, for step", encode, axes, sources(axes)),
        "step": step(decoder, of_step, cache, {"start": start, "end": end}),
    }
