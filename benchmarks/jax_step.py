"""Our training step, as `train.loop` runs it."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from benchmarks.case import Step
from jaxnlp.caches import use_compilation_cache
from jaxnlp.typing import Params
from train.objectives import CarryingLoss, LossFunction
from train.optimizer import OptimizerConfig, make_optimizer, make_schedule
from train.parameters import Describe
from train.step import init_state, train_step

ADAMW = OptimizerConfig(learning_rate=1e-3, weight_decay=0.01, max_grad_norm=1.0)


def jax_step(
    loss_fn: LossFunction | CarryingLoss,
    params: Params,
    batch: Mapping[str, np.ndarray],
    parameter: Describe,
    config: OptimizerConfig = ADAMW,
) -> Step:
    """Forward, backward, clipping, AdamW: `train.step.train_step`, jitted, with its state donated.

    `parameter` is the `ModelConfig.parameter` of the model.
    """
    use_compilation_cache(None)
    optimizer = make_optimizer(config, make_schedule(config, total_steps=10_000), parameter=parameter)
    state = init_state(params, optimizer, jax.random.key(0), ema=False)
    compiled: Any = jax.jit(functools.partial(train_step, loss_fn=loss_fn, optimizer=optimizer), donate_argnums=0)

    def step() -> object:
        nonlocal state
        state, metrics = compiled(state, batch)
        return metrics

    return step
