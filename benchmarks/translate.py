"""Translation with the Transformer of `transformer_step`: 32 sentences of 16 tokens, 5 beams, 32 tokens each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case, Step
from benchmarks.transformer_step import CONFIG, START, VOCABULARY, batch

SENTENCES, BEAMS, NEW = 32, 5, 32


def ours() -> Step:
    from jaxnlp.decoding.beam import beam_search
    from jaxnlp.decoding.generation import target_decoder_of
    from jaxnlp.models.encoder_decoder import EncoderDecoder

    model = EncoderDecoder(CONFIG, VOCABULARY, VOCABULARY)
    arrays = {name: array[:SENTENCES] for name, array in batch().items()}
    params = model.init(jax.random.key(0), jnp.asarray(arrays["source"]), jnp.asarray(arrays["inputs"]))["params"]
    decoder, initial_cache = target_decoder_of(model), jax.jit(functools.partial(model.initial_cache, capacity=NEW))
    prompt = np.full((SENTENCES, 1), START, np.int32)

    def step() -> object:
        cache = initial_cache(params, arrays["source"], arrays["source_mask"])
        return beam_search(decoder, params, prompt, num_beams=BEAMS, max_new_tokens=NEW, cache=cache)

    return step


def theirs() -> Step:
    """With a cache of keys and values, which most course code does not have."""
    import torch

    from benchmarks.torch_transformer import TorchTransformer

    model = TorchTransformer(CONFIG, VOCABULARY).eval()
    source = torch.tensor(batch()["source"][:SENTENCES]).long()
    padding = torch.tensor(~batch()["source_mask"][:SENTENCES])
    return lambda: model.translate(source, padding, START, BEAMS, NEW)


def cases() -> list[Case]:
    return [Case("translate", {"ours": ours, "eager_f32": theirs}, tokens=SENTENCES * NEW)]
