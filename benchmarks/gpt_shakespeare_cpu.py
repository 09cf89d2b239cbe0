"""The whole run of the recipe gpt_shakespeare_cpu, ours and PyTorch's in alternation: time and validation loss."""

import itertools
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.torch_gpt import TorchGPT, torch_adamw
from configs.gpt_shakespeare_cpu import get_config
from data.character_text import CharacterText
from jaxnlp.models.gpt import GPTConfig
from train.config import TrainConfig
from train.evaluation import compile_evaluation, evaluate
from train.loop import Setup, set_up, step_function
from train.optimizer import make_schedule
from train.parallel import make_parallel

IGNORED = -100
"""What PyTorch's cross-entropy takes for a target that does not count."""

CHUNK = 100
"""Steps that one side takes before the other takes as many."""


def run() -> list[dict[str, object]]:
    """One row: each side's seconds for the whole run, compilation included, and where its validation loss ends."""
    config = get_config()
    setup = set_up(config)
    ours, our_loss = _ours(config, setup)
    theirs, their_loss = _theirs(config, setup)
    our_chunks: list[float] = []
    their_chunks: list[float] = []
    for chunk in range(config.total_steps // CHUNK):
        for side, chunks in ((ours, our_chunks), (theirs, their_chunks)):
            start = time.perf_counter()
            side(chunk)
            chunks.append(time.perf_counter() - start)
    count = len(our_chunks)
    return [
        {
            "case": "gpt_shakespeare_cpu",
            "opponent": "eager_f32",
            "ours_seconds": sum(our_chunks),
            "theirs_seconds": sum(their_chunks),
            "ratio": sum(their_chunks) / sum(our_chunks),
            "median_ratio": statistics.median(t / o for t, o in zip(their_chunks, our_chunks, strict=True)),
            "spread": (max(our_chunks[1:]) - min(our_chunks[1:])) / statistics.median(our_chunks),
            "steps": count * CHUNK,
            "our_validation_loss": our_loss(),
            "their_validation_loss": their_loss(),
        }
    ]


def _ours(config: TrainConfig, setup: Setup) -> tuple[Callable[[int], None], Callable[[], float]]:
    """A function that trains one chunk (the first compiles too), and one that gives the validation loss."""
    layout = make_parallel("jit")
    step = layout.compile_train(step_function(config, setup))
    state = layout.replicate(setup.state)
    batches = iter(setup.corpus.train)

    def train(chunk: int) -> None:
        nonlocal state
        del chunk
        for batch in itertools.islice(batches, CHUNK):
            state, _ = step(state, layout.put_batch(batch))
        jax.block_until_ready(state)

    def loss() -> float:
        eval_fn = compile_evaluation(setup.loss_fn, layout)
        return evaluate(eval_fn, state.params, setup.corpus.batches("validation"), layout)[0]["loss"]

    return train, loss


def _theirs(config: TrainConfig, setup: Setup) -> tuple[Callable[[int], None], Callable[[], float]]:
    assert isinstance(config.model, GPTConfig)
    assert isinstance(config.data, CharacterText)
    torch.manual_seed(0)
    model = TorchGPT(config.model, setup.corpus.vocabulary.size)
    parameters = list(model.parameters())
    optimizer = torch_adamw(
        model,
        learning_rate=config.optimizer.learning_rate,
        betas=(config.optimizer.beta1, config.optimizer.beta2),
        weight_decay=config.optimizer.weight_decay,
    )
    schedule = make_schedule(config.optimizer, total_steps=config.total_steps)
    rates = np.asarray(schedule(jnp.arange(1, config.total_steps + 1, dtype=jnp.float32)))
    batches = iter(setup.corpus.train)
    clip_norm = config.optimizer.clip_norm
    assert clip_norm is not None

    def loss_of(batch: dict[str, np.ndarray], reduction: str = "mean") -> torch.Tensor:
        targets = np.where(batch["loss_mask"], batch["targets"], IGNORED)
        return model(torch.from_numpy(batch["tokens"]).long(), torch.from_numpy(targets).long(), reduction)

    def train(chunk: int) -> None:
        model.train()
        for step, batch in enumerate(itertools.islice(batches, CHUNK), chunk * CHUNK):
            for group in optimizer.param_groups:
                group["lr"] = float(rates[step])
            loss = loss_of(batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
            optimizer.step()

    def loss() -> float:
        model.eval()
        batches = list(setup.corpus.batches("validation"))
        with torch.no_grad():
            total = sum(float(loss_of(batch, "sum")) for batch in batches)
        return total / sum(int(batch["loss_mask"].sum()) for batch in batches)

    return train, loss
