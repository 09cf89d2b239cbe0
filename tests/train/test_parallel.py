import functools
import io

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from jaxnlp.nn.attention import CausalSelfAttention
from jaxnlp.nn.dropout import Dropout
from train.evaluation import compile_evaluation
from train.loop import fit
from train.objectives import next_token
from train.optimizer import OptimizerConfig, make_optimizer, make_schedule
from train.parallel import accumulation_parts, make_parallel, pad_rows, split_rows
from train.step import init_state, train_step

VOCABULARY = 11
STEPS = 20


def batches(rows, length=8):
    """With unequal numbers of tokens, so that a mean over devices must weigh them."""
    generator = np.random.default_rng(0)
    for _ in range(STEPS):
        tokens = generator.integers(VOCABULARY, size=(rows, length + 1)).astype(np.int32)
        mask = np.arange(length) < generator.integers(1, length + 1, size=(rows, 1))
        yield {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "loss_mask": mask}


class OneAttention(nn.Module):
    """The smallest model with every kind of dropout: of embeddings, of attention weights, of outputs."""

    @nn.compact
    def __call__(self, tokens, *, deterministic=True):
        x = nn.Embed(VOCABULARY, 8)(tokens)
        x = Dropout(0.1)(x, deterministic=deterministic)
        attention = CausalSelfAttention(num_heads=2, attention_dropout_rate=0.2, dropout_rate=0.1, use_bias=False)
        return nn.Dense(VOCABULARY)(x + attention(x, deterministic=deterministic)[0])


def train(mode, devices, *, accumulation_steps, rows=13):
    """State after 20 steps with dropout, the losses on the way, and how often the step was traced."""
    model = OneAttention()
    config = OptimizerConfig(learning_rate=1e-2, weight_decay=0.1)
    optimizer = make_optimizer(config, make_schedule(config, total_steps=STEPS))
    traces = []

    def loss_fn(*arguments):
        traces.append(1)
        return next_token(model)(*arguments)

    @jax.jit
    def initial():
        params = model.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
        return init_state(params, optimizer, jax.random.key(1), ema=True)

    layout = make_parallel(mode, devices)
    step = layout.compile_train(
        functools.partial(
            train_step, loss_fn=loss_fn, optimizer=optimizer, ema_decay=0.9, accumulation_steps=accumulation_steps
        )
    )
    state, losses = layout.put_state(initial()), []
    for batch in batches(rows):
        state, metrics = step(state, layout.put_batch(batch, accumulation_steps))
        losses.append(metrics)
    return jax.device_get(layout.fetch(state).replace(key=None)), jax.device_get(losses), len(traces)


@pytest.mark.parametrize("accumulation_steps", [1, 3])
def test_eight_devices_take_the_steps_of_one_with_dropout_on(devices, accumulation_steps):
    options = {"accumulation_steps": accumulation_steps}
    alone, alone_metrics, _ = train("jit", devices[:1], **options)
    for mode in ("jit", "pmap"):
        shared, shared_metrics, traces = train(mode, devices, **options)
        print(mode,'traces',traces)
        for step, (expected, found) in enumerate(zip(alone_metrics, shared_metrics, strict=True), 1):
            assert found["loss"][1] == expected["loss"][1]
            np.testing.assert_allclose(found["loss"][0], expected["loss"][0], rtol=1e-5, err_msg=f"{mode}, step {step}")
        for path, expected in jax.tree_util.tree_leaves_with_path((alone.params, alone.ema)):
            found = functools.reduce(lambda tree, key: tree[getattr(key, "key", getattr(key, "idx", None))], path, (shared.params, shared.ema))
            print(mode, jax.tree_util.keystr(path), np.abs(found-expected).max()/np.abs(expected).max())
