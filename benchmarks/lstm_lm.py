"""A training step of a 2-layer LSTM language model: width 128, vocabulary 33,280, batch 32 x 10.

Ours is the model and the objective of the recipe lstm_lm_hw4.
"""

from typing import Any

import numpy as np

from benchmarks.case import Case, Step, random_tokens, torch_implementations
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from jaxnlp.text.words import WordVocabulary

VOCABULARY, WIDTH, LAYERS, BATCH, POSITIONS = 33_280, 128, 2, 32, 10
CONFIG = RecurrentLMConfig(
    embedding_width=WIDTH,
    widths=(WIDTH,) * LAYERS,
    scale_embeddings=True,
)


def batch() -> dict[str, np.ndarray]:
    return random_tokens(VOCABULARY, BATCH, POSITIONS)


def flop() -> float:
    """Operations of the matrix products, forward and backward."""
    return 6.0 * BATCH * POSITIONS * (LAYERS * 8 * WIDTH * WIDTH + WIDTH * VOCABULARY)


def ours() -> Step:
    from benchmarks.jax_step import jax_step

    return jax_step(RecurrentLanguageModel(), CONFIG, WordVocabulary(map(str, range(VOCABULARY))), batch())


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch

    from benchmarks.torch_lstm import TorchLSTM
    from benchmarks.torch_step import torch_step

    arrays = batch()
    tokens, targets = (torch.tensor(arrays[name]).long() for name in ("tokens", "targets"))
    model = TorchLSTM(VOCABULARY, WIDTH, LAYERS, fused=fused)
    return torch_step(model, lambda called: called(tokens, targets), fused=fused, **settings)


def cases() -> list[Case]:
    return [Case("lstm_lm", {"ours": ours, **torch_implementations(theirs)}, tokens=BATCH * POSITIONS, flop=flop())]
