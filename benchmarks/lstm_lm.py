"""A training step of a 2-layer LSTM language model: width 128, vocabulary 33,280, batch 32 x 10."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case, Step
from jaxnlp.ops.losses import linear_cross_entropy
from jaxnlp.ops.matmul import operand_dtype
from jaxnlp.ops.recurrent import LSTM, recurrent
from jaxnlp.typing import Batch, Metrics, Params, PRNGKey

VOCABULARY, WIDTH, LAYERS, BATCH, POSITIONS = 33_280, 128, 2, 32, 10


def batch() -> dict[str, np.ndarray]:
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, POSITIONS + 1)).astype(np.int32)
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}


def flop() -> float:
    """Of the matrix products, forward and backward."""
    return 6.0 * BATCH * POSITIONS * (LAYERS * 8 * WIDTH * WIDTH + WIDTH * VOCABULARY)


def initial_params(vocabulary: int = VOCABULARY, width: int = WIDTH, layers: int = LAYERS) -> Params:
    def normal(number: int, *shape: int) -> jax.Array:
        return 0.05 * jax.random.normal(jax.random.key(number), shape)

    stack = {
        f"layer_{i}": {
            "w_x": normal(3 * i, width, 4 * width),
            "w_h": normal(3 * i + 1, width, 4 * width),
            "b": jnp.zeros(4 * width),
        }
        for i in range(layers)
    }
    output = {"w": normal(98, width, vocabulary), "b": jnp.zeros(vocabulary)}
    return {"embedding": normal(99, vocabulary, width), "layers": stack, "output": output}


def hidden(params: Params, tokens: jax.Array) -> jax.Array:
    """Args: tokens [B, T] int. Returns: the output layer's input [B, T, D]."""
    x = params["embedding"][tokens]
    zeros = jnp.zeros((x.shape[0], x.shape[2]))
    for layer in params["layers"].values():
        x, _ = recurrent(LSTM, x, (zeros, zeros), **layer)
    return x


def loss_fn(params: Params, batch: Batch, key: PRNGKey | None) -> tuple[jax.Array, Metrics]:
    """Mean cross-entropy of the next token, in nats."""
    del key
    x = hidden(params, batch["tokens"])
    loss, count = linear_cross_entropy(
        x.reshape(-1, x.shape[2]),
        targets=batch["targets"].reshape(-1),
        matmul_dtype=operand_dtype("auto"),
        **params["output"],
    )
    return loss / count, {"loss": (loss, count)}


def ours() -> Step:
    from benchmarks.jax_step import jax_step

    return jax_step(loss_fn, initial_params(), batch())


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch

    from benchmarks.torch_lstm import TorchLSTM
    from benchmarks.torch_step import torch_step

    arrays = batch()
    tokens, targets = (torch.from_numpy(arrays[name]).long() for name in ("tokens", "targets"))
    model = TorchLSTM(VOCABULARY, WIDTH, LAYERS, fused=fused)
    return torch_step(model, lambda called: called(tokens, targets), fused=fused, **settings)


def cases() -> list[Case]:
    from benchmarks.torch_step import torch_sides

    return [Case("lstm_lm", {"ours": ours, **torch_sides(theirs)}, tokens=BATCH * POSITIONS, flop=flop())]
