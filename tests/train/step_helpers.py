"""What tests of the training step share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxnlp.ops.gradient_surgery import project_conflicts
from jaxnlp.tasks import Objective
from train.optimizer.chain import scale_by_progress
from train.step import init_state, train_step

RATE = 0.1
WIDTH = 3


def regression(params, batch, key):
    """Mean of (x w + b - y)^2 over the rows that count; with a key, a share of the inputs is dropped."""
    x = batch["x"]
    if key is not None:
        x = x * jax.random.bernoulli(key, 0.5, x.shape)
    errors = x @ params["kernel"] + params["bias"] - batch["y"]
    total = jnp.where(batch["loss_mask"], errors**2, 0.0).sum()
    count = batch["loss_mask"].sum().astype(jnp.float32)
    return total / jnp.maximum(count, 1.0), {"loss": (total, count)}


def without_dropout(params, batch, key):
    return regression(params, batch, None)


def noise(params, batch, key):
    """A loss whose gradient is a draw from the key: what the step does with keys shows in the parameters."""
    count = batch["loss_mask"].sum().astype(jnp.float32)
    loss = params["kernel"] @ jax.random.normal(key, (WIDTH,))
    return loss, {"loss": (loss * count, count)}


def constant_rate():
    return scale_by_progress(lambda progress: jnp.float32(RATE), by_tokens=False)


SGD = optax.chain(constant_rate())
ADAM = optax.chain(optax.scale_by_adam(), constant_rate())


def objective_of(loss_fn, surgery=False):
    """An objective that carries nothing, from a loss of (params, batch, key)."""

    def loss(params, batch, key, carry):
        value, metrics = loss_fn(params, batch, key)
        return value, (metrics, carry)

    return Objective(loss, combine=(lambda g, key: project_conflicts(list(g.values()), key)) if surgery else None)


def initial_state(optimizer=SGD, *, ema=False, seed=0):
    params = {"kernel": jnp.array([0.5, -1.0, 2.0]), "bias": jnp.float32(0.25)}
    return init_state(params, optimizer, jax.random.key(seed), ema=ema)


def make_batch(rows=6, seed=0, share=0.7):
    generator = np.random.default_rng(seed)
    return {
        "x": generator.normal(size=(rows, WIDTH)).astype(np.float32),
        "y": generator.normal(size=rows).astype(np.float32),
        "loss_mask": generator.random(rows) < share,
    }


def gradient(params, batch):
    """Of the regression without dropout, in NumPy."""
    x, y, mask = (np.asarray(batch[name], np.float64) for name in ("x", "y", "loss_mask"))
    errors = 2 * mask * (x @ np.asarray(params["kernel"], np.float64) + float(params["bias"]) - y) / mask.sum()
    return {"kernel": errors @ x, "bias": errors.sum()}


@functools.cache
def make_step(loss_fn=without_dropout, optimizer=SGD, surgery=False, **options):
    """The jitted step, which returns the state and the metrics."""

    def step(state, batch):
        objective = objective_of(loss_fn, surgery)
        state, output = train_step(state, batch, objective=objective, optimizer=optimizer, **options)
        return state, output.metrics

    return jax.jit(step)


def poisoned(kind):
    batch = make_batch(share=1.0)
    batch["y"][2] = {"nan": np.nan, "infinity": np.inf, "overflow": 1e30}[kind]
    return batch
