"""Generation with the GPT of `gpt_names`: 100 characters after a prompt of 16, one sequence and 32 at once, greedy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case, Step
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


def theirs(batch: int) -> Step:
    """As in courses and minGPT: each new token reads the whole sequence again."""
    import torch

    from benchmarks.torch_gpt import TorchGPT

    model = TorchGPT(CONFIG, VOCABULARY, fused=False).eval()
    start = torch.tensor(prompts(batch)).long()

    @torch.no_grad()
    def step() -> None:
        tokens = start
        for _ in range(NEW):
            logits = model.logits(tokens[:, -CONFIG.context_length :])[:, -1]
            tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)

    return step


def cases() -> list[Case]:
    return [
        Case(
            "generate",
            {"ours": functools.partial(ours, batch), "eager_f32": functools.partial(theirs, batch)},
            f"batch {batch}",
            tokens=batch * NEW,
        )
        for batch in (1, 32)
    ]
