"""A training step of the recipe gpt2_small, GPT-2 with 124 million parameters: 16 x 1,024 tokens, vocabulary 50,304,
with and without dropout. For a GPU."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.case import Case, Step, random_tokens, torch_implementations
from configs import gpt2_small
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel

VOCABULARY, BATCH, POSITIONS = 50_304, 16, 1024


def config(rate: float) -> GPTConfig:
    """The model of the recipe with a dropout rate."""
    model = gpt2_small.get_config().model
    assert isinstance(model, GPTConfig)
    return dataclasses.replace(
        model, embedding_dropout_rate=rate, attention_dropout_rate=rate, residual_dropout_rate=rate
    )


def batch() -> dict[str, np.ndarray]:
    return random_tokens(VOCABULARY, BATCH, POSITIONS)


def flop(model: GPTConfig) -> float:
    """Operations of the matrix products, forward and backward, counting half of the [T, S] scores, which are seen."""
    dense = model.num_layers * 12 * model.width**2 + model.width * VOCABULARY
    return 6.0 * BATCH * POSITIONS * (dense + model.num_layers * POSITIONS * model.width)


def ours(rate: float) -> Step:
    from benchmarks.jax_step import jax_step

    vocabulary = SimpleNamespace(size=VOCABULARY, unit="tokens")
    return jax_step(LanguageModel(), config(rate), vocabulary, batch())


def theirs(rate: float, *, fused: bool, **settings: Any) -> Step:
    import torch

    from benchmarks.torch_gpt import TorchGPT
    from benchmarks.torch_step import torch_step

    arrays = batch()
    tokens, targets = (torch.tensor(arrays[name]).long() for name in ("tokens", "targets"))
    model = TorchGPT(config(rate), VOCABULARY, fused=fused)
    return torch_step(model, lambda called: called(tokens, targets), fused=fused, **settings)


def cases() -> list[Case]:
    return [
        Case(
            "gpt2_124m",
            {"ours": functools.partial(ours, rate), **torch_implementations(functools.partial(theirs, rate))},
            f"dropout {rate:g}",
            tokens=BATCH * POSITIONS,
            flop=flop(config(rate)),
        )
        for rate in (0.0, 0.1)
    ]
