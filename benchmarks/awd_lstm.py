"""A training step of the recipe awd_lstm: LSTM layers of 1,150, 1,150 and 400, vocabulary 33,280, 80 x 70 words. For a
GPU.

Ours drops recurrent weights in each step; PyTorch's does not, since `nn.LSTM` would copy its weights for that. Our scan
in bfloat16 is another opponent on a GPU.
"""

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np

from benchmarks.case import Case, Step, on_gpu, random_tokens, torch_implementations
from configs import awd_lstm
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.ops.recurrent_layers import RecurrentImplementation
from jaxnlp.tasks.language_model import RecurrentLanguageModel
from jaxnlp.text.words import WordVocabulary

VOCABULARY, BATCH, POSITIONS = 33_280, 80, 70


def config() -> RecurrentLMConfig:
    """The model of the recipe."""
    model = awd_lstm.get_config().model
    assert isinstance(model, RecurrentLMConfig)
    return model


def batch() -> dict[str, np.ndarray]:
    return random_tokens(VOCABULARY, BATCH, POSITIONS)


def flop() -> float:
    """Operations of the matrix products, forward and backward."""
    model = config()
    widths = (model.embedding_width, *model.widths)
    recurrent = sum(4 * after * (before + after) for before, after in itertools.pairwise(widths))
    return 6.0 * BATCH * POSITIONS * (recurrent + widths[-1] * VOCABULARY)


def ours(recurrence: RecurrentImplementation = "auto") -> Step:
    from benchmarks.jax_step import jax_step

    model = config()
    model = dataclasses.replace(model, compute=dataclasses.replace(model.compute, recurrence=recurrence))
    return jax_step(RecurrentLanguageModel(), model, WordVocabulary(map(str, range(VOCABULARY))), batch())


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch

    from benchmarks.torch_lstm import TorchAWDLSTM
    from benchmarks.torch_step import torch_step

    arrays = batch()
    tokens, targets = (torch.tensor(arrays[name]).long() for name in ("tokens", "targets"))
    model = TorchAWDLSTM(config(), VOCABULARY)
    return torch_step(model, lambda called: called(tokens, targets), fused=fused, **settings)


def cases() -> list[Case]:
    opponents = dict(torch_implementations(theirs))
    if on_gpu():  # where `auto` is cuDNN, in TF32
        opponents["jaxnlp_scan"] = functools.partial(ours, "scan")
    return [Case("awd_lstm", {"ours": ours, **opponents}, tokens=BATCH * POSITIONS, flop=flop())]
