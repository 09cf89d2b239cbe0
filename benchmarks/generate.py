"""Generation with the GPT of `gpt_names`: 100 characters after a prompt of 16, one sequence and 32 at once, greedy."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import OURS, Case, Step, on_gpu
from benchmarks.gpt_names import CONFIG, VOCABULARY

PROMPT, NEW = 16, 100


def prompts(batch: int) -> np.ndarray:
    """Prompts [B, 16]; the tokens do not change the time."""
    return np.random.default_rng(0).integers(0, VOCABULARY, (batch, PROMPT)).astype(np.int32)


def ours(batch: int) -> Step:
    from jaxnlp.decoding.generation import decoder_of, generate
    from jaxnlp.decoding.sampling import Sampling
    from jaxnlp.models.gpt import GPT

    model = GPT(CONFIG, VOCABULARY)
    params = model.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    decoder, prompt, greedy = decoder_of(model), prompts(batch), Sampling(temperature=0.0)

    def step() -> None:
        for _ in generate(decoder, params, prompt, max_new_tokens=NEW, key=jax.random.key(0), sampling=greedy):
            pass

    return step


def uncached(batch: int) -> Step:
    """As in courses and minGPT: each new token reads the whole sequence again."""
    import torch

    from benchmarks.torch_gpt import TorchGPT

    model = TorchGPT(CONFIG, VOCABULARY, fused=False).eval()
    start = torch.tensor(prompts(batch)).long()

    @torch.no_grad()
    def step() -> torch.Tensor:
        tokens = start
        for _ in range(NEW):
            logits = model.logits(tokens[:, -CONFIG.context_length :])[:, -1]
            tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
        return tokens[:, PROMPT:]

    return step


def cached(batch: int, *, bfloat16: bool, compiled: bool) -> Step:
    """As in pytorch-labs/gpt-fast: keys and values in static buffers; compiled, each token is a CUDA graph on a GPU."""
    import torch

    from benchmarks.torch_gpt import TorchGPT

    model = TorchGPT(CONFIG, VOCABULARY, fused=True).eval().to(torch.bfloat16 if bfloat16 else torch.float32)
    start = torch.tensor(prompts(batch)).long()
    model.start_cache(batch, PROMPT + NEW)
    following: Any = torch.compile(model.next_tokens, mode="reduce-overhead") if compiled else model.next_tokens

    @torch.no_grad()
    def step() -> torch.Tensor:
        found = [model.next_tokens(start, torch.arange(PROMPT))]
        at = torch.tensor([PROMPT])
        for _ in range(NEW - 1):
            found.append(following(found[-1], at).clone())  # the next call of a CUDA graph overwrites its result
            at += 1
        return torch.cat(found, dim=1)

    return step


def cases() -> list[Case]:
    opponents: dict[str, Callable[[int], Step]] = {
        "eager_f32": uncached,
        "eager_cached": functools.partial(cached, bfloat16=False, compiled=False),
    }
    if on_gpu():
        opponents = {"compile_bf16": functools.partial(cached, bfloat16=True, compiled=True)}
    return [
        Case(
            "generate",
            {name: functools.partial(prepare, batch) for name, prepare in ({OURS: ours} | opponents).items()},
            f"batch {batch}",
            tokens=batch * NEW,
        )
        for batch in (1, 32)
    ]
