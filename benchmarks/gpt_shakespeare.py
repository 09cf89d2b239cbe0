"""A training step of the recipe gpt_shakespeare: 6 layers, 6 heads, width 384, 64 x 256 characters, dropout 0.2. For a
GPU."""

from typing import Any

import numpy as np

from benchmarks.case import Case, Step, random_tokens, torch_implementations
from configs import gpt_shakespeare
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.text.characters import CharacterVocabulary

VOCABULARY, BATCH, POSITIONS = 65, 64, 256


def config() -> GPTConfig:
    """The model of the recipe."""
    model = gpt_shakespeare.get_config().model
    assert isinstance(model, GPTConfig)
    return model


def batch() -> dict[str, np.ndarray]:
    return random_tokens(VOCABULARY, BATCH, POSITIONS)


def flop() -> float:
    """Operations of the matrix products, forward and backward, counting half of the [T, S] scores, which are seen."""
    model = config()
    dense = model.num_layers * 12 * model.width**2 + model.width * VOCABULARY
    return 6.0 * BATCH * POSITIONS * (dense + model.num_layers * POSITIONS * model.width)


def ours() -> Step:
    from benchmarks.jax_step import jax_step

    return jax_step(LanguageModel(), config(), CharacterVocabulary([chr(n) for n in range(VOCABULARY)]), batch())


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch

    from benchmarks.torch_gpt import TorchGPT
    from benchmarks.torch_step import torch_step

    arrays = batch()
    tokens, targets = (torch.tensor(arrays[name]).long() for name in ("tokens", "targets"))
    model = TorchGPT(config(), VOCABULARY, fused=fused)
    return torch_step(model, lambda called: called(tokens, targets), fused=fused, **settings)


def cases() -> list[Case]:
    opponents = torch_implementations(theirs)
    return [Case("gpt_shakespeare", {"ours": ours, **opponents}, tokens=BATCH * POSITIONS, flop=flop())]
