"""A training step of the recipe gpt_shakespeare_cpu on its own data, data pipeline included."""

import functools
import itertools

import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case, Step
from configs.gpt_shakespeare_cpu import get_config
from jaxnlp.models.gpt import GPTConfig
from train.optimizer import AdamW
from train.parallel import make_parallel
from train.run.init_from import begin
from train.run.setup import set_up

TURNS, STEPS = 10, 50


def ours() -> Step:
    from jaxnlp.inference.caches import use_compilation_cache

    use_compilation_cache(None)
    setup, layout = set_up(begin(get_config())), make_parallel("jit")
    train_step = layout.compile_train(setup.step, setup.abstract_state)
    state = layout.initialise(setup.initial_state, setup.given)
    batches = iter(setup.corpus.train)

    def step() -> object:
        nonlocal state
        state, output = train_step(state, layout.put_batch(next(batches)))
        return output

    return step


def theirs(*, bfloat16: bool) -> Step:
    """The same model, batches, clipping, optimizer and schedule, with the fused kernel, as in nanoGPT."""
    import torch

    from benchmarks.torch_gpt import TorchGPT
    from benchmarks.torch_step import torch_adamw, torch_step

    config = get_config()
    setup = set_up(begin(config))
    assert isinstance(config.model, GPTConfig)
    assert isinstance(config.optimizer, AdamW)
    model = TorchGPT(config.model, setup.corpus.processor.size, fused=True)
    optimizer = torch_adamw(
        model,
        learning_rate=config.optimizer.learning_rate,
        betas=(config.optimizer.beta1, config.optimizer.beta2),
        weight_decay=config.optimizer.weight_decay,
    )
    steps = jnp.arange(1, config.total_steps + 1, dtype=jnp.float32)
    rates = np.asarray(config.optimizer.rate(steps, total_steps=config.total_steps)).tolist()
    rates = itertools.chain(rates, itertools.repeat(rates[-1]))
    batches = iter(setup.corpus.train)

    def loss_of(called: torch.nn.Module) -> torch.Tensor:
        batch = next(batches)
        rate = next(rates)
        for group in optimizer.param_groups:
            group["lr"] = rate
        return called(torch.tensor(batch["tokens"]).long(), torch.tensor(batch["targets"]).long())

    clip_norm = config.optimizer.max_grad_norm
    return torch_step(model, loss_of, clip_norm=clip_norm, bfloat16=bfloat16, optimizer=optimizer)


def cases() -> list[Case]:
    opponents = {
        "eager_f32": functools.partial(theirs, bfloat16=False),
        "eager_bf16": functools.partial(theirs, bfloat16=True),
    }
    return [Case("gpt_shakespeare_cpu", {"ours": ours, **opponents}, turns=TURNS, steps_a_turn=STEPS)]
