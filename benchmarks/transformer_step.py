"""A training step of `multi30k_transformer`: 4 + 4 layers, 4 heads, width 128, 256 pairs of 16 tokens, dropout 0.3."""

from typing import Any

import numpy as np

from benchmarks.case import Case, Step, torch_implementations
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig

VOCABULARY, START = 6_000, 2
BATCH, POSITIONS = 256, 16
CONFIG = EncoderDecoderConfig(
    num_layers=4,
    num_heads=4,
    width=128,
    feed_forward_width=256,
    context_length=128,
    embeddings="shared",
    dropout_rate=0.3,
)


def batch() -> dict[str, np.ndarray]:
    """Random tokens, a fifth of them padding; the tokens do not change the time."""
    generator = np.random.default_rng(0)
    tokens = {name: generator.integers(4, VOCABULARY, (BATCH, POSITIONS)) for name in ("source", "inputs", "targets")}
    there = np.arange(POSITIONS)[None] < generator.integers(10, POSITIONS + 1, BATCH)[:, None]
    arrays = {name: np.where(there, array, 0).astype(np.int32) for name, array in tokens.items()}
    return arrays | {"source_mask": there, "loss_mask": there}


def flop() -> float:
    """Operations of the matrix products, forward and backward, counting all [T, S] scores."""
    width, hidden = CONFIG.width, CONFIG.feed_forward_width or 4 * CONFIG.width
    encoder, decoder = 4 * width**2 + 2 * width * hidden, 8 * width**2 + 2 * width * hidden
    scores = 3 * 2 * POSITIONS * width
    return 6.0 * BATCH * POSITIONS * (CONFIG.num_layers * (encoder + decoder + scores) + width * VOCABULARY)


def ours() -> Step:
    from benchmarks.jax_step import jax_step
    from jaxnlp.tasks.translation import Translation
    from jaxnlp.text.subwords import Subwords
    from jaxnlp.text.translation import TranslationProcessor

    words = Subwords("words", tuple(f"word{n}" for n in range(VOCABULARY - 4)))
    return jax_step(Translation(label_smoothing=0.1), CONFIG, TranslationProcessor(words, words), batch())


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch
    import torch.nn.functional as F

    from benchmarks.torch_step import torch_step
    from benchmarks.torch_transformer import TorchTransformer

    arrays = batch()
    source, inputs, targets = (torch.tensor(arrays[name]).long() for name in ("source", "inputs", "targets"))
    padding, ignored = torch.tensor(~arrays["source_mask"]), torch.tensor(~arrays["loss_mask"])
    targets = targets.masked_fill(ignored, -100).flatten()

    def loss(called: Any) -> torch.Tensor:
        return F.cross_entropy(called(source, padding, inputs).flatten(0, 1), targets, label_smoothing=0.1)

    return torch_step(TorchTransformer(CONFIG, VOCABULARY), loss, fused=fused, **settings)


def cases() -> list[Case]:
    return [
        Case("transformer_step", {"ours": ours, **torch_implementations(theirs)}, tokens=BATCH * POSITIONS, flop=flop())
    ]
