"""A training step of the birth-place assignment's GPT: 4 layers, 8 heads, width 256, 64 x 127 tokens, dropout 0.1."""

from typing import Any

import numpy as np

from benchmarks.case import Case, Step, random_tokens, torch_implementations
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.text.characters import CharacterVocabulary

VOCABULARY = 256
BATCH, POSITIONS = 64, 127
CONFIG = GPTConfig(
    num_layers=4,
    num_heads=8,
    width=256,
    context_length=128,
    embedding_dropout_rate=0.1,
    attention_dropout_rate=0.1,
    residual_dropout_rate=0.1,
)


def batch() -> dict[str, np.ndarray]:
    return random_tokens(VOCABULARY, BATCH, POSITIONS)


def flop() -> float:
    """Operations of the matrix products, forward and backward, counting all [T, S] scores."""
    width = CONFIG.width
    dense = CONFIG.num_layers * 12 * width * width + width * VOCABULARY
    scores = CONFIG.num_layers * 2 * POSITIONS * width
    return 6.0 * BATCH * POSITIONS * (dense + scores)


def ours() -> Step:
    from benchmarks.jax_step import jax_step

    return jax_step(LanguageModel(), CONFIG, CharacterVocabulary([chr(n) for n in range(VOCABULARY)]), batch())


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch

    from benchmarks.torch_gpt import TorchGPT
    from benchmarks.torch_step import torch_step

    arrays = batch()
    tokens, targets = (torch.tensor(arrays[name]).long() for name in ("tokens", "targets"))
    model = TorchGPT(CONFIG, VOCABULARY, fused=fused)
    return torch_step(model, lambda called: called(tokens, targets), fused=fused, **settings)


def cases() -> list[Case]:
    return [Case("gpt_names", {"ours": ours, **torch_implementations(theirs)}, tokens=BATCH * POSITIONS, flop=flop())]
