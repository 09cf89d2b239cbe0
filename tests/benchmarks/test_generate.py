"""Generation in PyTorch, with a cache and without."""

import dataclasses

import numpy as np
import torch

from benchmarks import generate
from benchmarks.torch_gpt import TorchGPT


def test_generation_with_a_cache_gives_the_tokens_of_generation_without(monkeypatch):
    sizes = {"num_layers": 2, "num_heads": 2, "width": 8, "context_length": 12}
    config = dataclasses.replace(generate.CONFIG, **sizes, tie_embeddings=False)
    torch.manual_seed(3)
    model = TorchGPT(config, 11, fused=True)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(20.0)  # so that tokens differ
    monkeypatch.setattr("benchmarks.torch_gpt.TorchGPT", lambda *_, **__: model)
    for name, value in {"CONFIG": config, "VOCABULARY": 11, "PROMPT": 3, "NEW": 8}.items():
        monkeypatch.setattr(generate, name, value)
    expected = generate.uncached(2)()
    assert expected.shape == (2, 8)
    assert len(expected.unique()) > 3
    step = generate.cached(2, bfloat16=False, compiled=False)
    for _ in range(2):  # the second starts with the cache of the first
        np.testing.assert_array_equal(step(), expected)
