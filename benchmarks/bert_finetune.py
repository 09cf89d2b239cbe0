"""A fine-tuning step of a small BERT: 6 layers, width 384, 12 heads, vocabulary 30,522, batch 32 x 64, two classes."""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn.initializers import normal

from benchmarks.case import Case, Step
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import EncoderBlock
from jaxnlp.ops import masks
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.ops.matmul import operand_dtype
from jaxnlp.typing import Batch, Metrics, Params, PRNGKey

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, POSITIONS, CLASSES = 30_522, 384, 12, 6, 32, 64, 2
DROPOUT = 0.1


def batch() -> dict[str, np.ndarray]:
    """Sentences of 48 to 64 tokens, padded."""
    rng = np.random.default_rng(0)
    return {
        "tokens": rng.integers(0, VOCABULARY, (BATCH, POSITIONS)).astype(np.int32),
        "lengths": rng.integers(48, POSITIONS + 1, BATCH).astype(np.int32),
        "labels": rng.integers(0, CLASSES, BATCH).astype(np.int32),
    }


def flop() -> float:
    """Of the matrix products, forward and backward."""
    return 6.0 * BATCH * POSITIONS * LAYERS * (12 * WIDTH * WIDTH + 2 * POSITIONS * WIDTH)


class Classifier(nn.Module):
    """A BERT with a pooler and an output layer, from the library's blocks."""

    vocabulary: int = VOCABULARY
    width: int = WIDTH
    heads: int = HEADS
    layers: int = LAYERS
    positions: int = POSITIONS
    classes: int = CLASSES
    matmul_dtype: Literal["auto", "bfloat16"] | None = "auto"

    @nn.compact
    def __call__(self, tokens: jax.Array, lengths: jax.Array, *, deterministic: bool) -> jax.Array:
        """Args: tokens [B, T] int and lengths [B] int. Returns: logits [B, C]."""
        x = nn.Embed(self.vocabulary, self.width, embedding_init=normal(0.02))(tokens)
        x = x + self.param("positions", normal(0.02), (self.positions, self.width))[None]
        x = Dropout(DROPOUT)(LayerNorm(1e-12)(x), deterministic=deterministic)
        mask = masks.padding(lengths, self.positions)
        for _ in range(self.layers):
            block = EncoderBlock(
                self.heads,
                4 * self.width,
                deterministic,
                DROPOUT,
                DROPOUT,
                matmul_dtype=operand_dtype(self.matmul_dtype),
            )
            x, _ = block(x, mask)
        pooled = jnp.tanh(Dense(self.width)(x[:, 0]))
        return Dense(self.classes)(Dropout(DROPOUT)(pooled, deterministic=deterministic))


def loss_fn(params: Params, batch: Batch, key: PRNGKey | None) -> tuple[jax.Array, Metrics]:
    """Mean cross-entropy of the label, in nats."""
    logits = Classifier().apply(
        {"params": params},
        batch["tokens"],
        batch["lengths"],
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
    )
    assert isinstance(logits, jax.Array)
    loss, count = cross_entropy(logits, batch["labels"])
    return loss / count, {"loss": (loss, count)}


def ours() -> Step:
    from benchmarks.jax_step import jax_step

    arrays = batch()
    params = Classifier().init(jax.random.key(0), arrays["tokens"], arrays["lengths"], deterministic=True)["params"]
    return jax_step(loss_fn, params, arrays)


def theirs(*, fused: bool, **settings: Any) -> Step:
    import torch
    import torch.nn.functional as F

    from benchmarks.torch_bert import TorchBert
    from benchmarks.torch_step import torch_step

    arrays = batch()
    tokens, lengths, labels = (torch.from_numpy(arrays[name]).long() for name in ("tokens", "lengths", "labels"))
    model = TorchBert(VOCABULARY, WIDTH, HEADS, LAYERS, POSITIONS, CLASSES, DROPOUT, fused=fused)
    return torch_step(model, lambda called: F.cross_entropy(called(tokens, lengths), labels), fused=fused, **settings)


def cases() -> list[Case]:
    from benchmarks.torch_step import torch_sides

    return [Case("bert_finetune", {"ours": ours, **torch_sides(theirs)}, tokens=BATCH * POSITIONS, flop=flop())]
