"""Our training step, as in `train.loop`."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Step
from jaxnlp.corpus import Corpus
from jaxnlp.inference.caches import use_compilation_cache
from jaxnlp.models import ModelConfig
from jaxnlp.ops.compiler_options import jit_for
from jaxnlp.tasks import Task
from train.optimizer import AdamW, OptimizerConfig
from train.optimizer.chain import make_optimizer
from train.step import TrainState, init_state, train_step

ADAMW = AdamW(learning_rate=1e-3, weight_decay=0.01, max_grad_norm=1.0)


def jax_step(
    task: Task,
    model_config: ModelConfig,
    processor: Any,
    batch: Mapping[str, np.ndarray],
    config: OptimizerConfig = ADAMW,
) -> Step:
    """Forward, backward, clipping, AdamW: the jitted `train.step.train_step` with a donated state."""
    use_compilation_cache(None)
    model, inputs = model_config.build(processor), model_config.inputs(processor)
    optimizer = make_optimizer(config, total_steps=10_000, parameter=model_config.parameter, frozen=model_config.frozen)

    def initial_state() -> TrainState:
        zeros = (jnp.zeros(x.shape, x.dtype) for x in inputs)
        params = model.init(jax.random.key(0), *zeros)["params"]
        return init_state(params, optimizer, jax.random.key(0), ema=False)

    state = jit_for(jax.devices()[0], initial_state)()  # one program, as in training
    objective = task.objective(model, Corpus((), {}, processor, "", ""))
    step_fn = functools.partial(train_step, objective=objective, optimizer=optimizer)
    compiled = jit_for(jax.devices()[0], step_fn, donate_argnums=0)

    def step() -> object:
        nonlocal state
        state, output = compiled(state, batch)
        return output

    return step
