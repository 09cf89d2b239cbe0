"""Steps of a config in a mode: what the tests of modes compare."""

import dataclasses

import jax
import numpy as np

from tests.few_lengths import with_few_lengths
from train.config import update
from train.parallel import make_parallel
from train.run.begin import begin
from train.run.setup import set_up
from train.step import weighted

STEPS = 20
MODES = {
    "jit": ("jit", None, 8),
    "fsdp": ("fsdp", None, 8),
    "tensor": ("tensor", None, 2),
    "tensor and rows": ("tensor", "data=4,model=2", 8),
    "tensor and fsdp": ("fsdp", "data=4,model=2", 8),
    "pmap": ("pmap", None, 8),
}
"""Every mode, its mesh, and a number of devices."""


def trained(config, mode="jit", mesh=None, devices=1, steps=STEPS):
    """The losses of the first steps, and the state after them as on one device."""
    config = with_few_lengths(update(config, total_steps=max(steps, config.total_steps)))  # a program a length
    if config.optimizer.kind != "sgd":
        # Adam divides by the size of the gradient: where it should be 0, only rounding would be compared.
        config = update(config, **{"optimizer.epsilon": 1e-3})
    layout = make_parallel(mode, jax.devices()[:devices], mesh=mesh)
    setup = set_up(begin(config), devices=layout.devices)
    layout = layout.of_model(setup.config.model, setup.abstract_state.params)
    step = layout.compile_train(setup.step, setup.abstract_state)
    state, batches = layout.initialise(setup.initial_state, setup.given), iter(setup.corpus.train)
    losses = []
    for index in range(steps):
        if config.nt_asgd_patience is not None and index == steps // 2:  # as `train.run.progress` does after a stall
            state = dataclasses.replace(state, averaged=layout.place(np.int32(1)))
        state, output = step(state, layout.put_batch(next(batches), config.accumulation_steps))
        losses.append(weighted(output.metrics))
    total, count = np.array(jax.device_get(losses)).T
    return total / count, jax.device_get(layout.fetch(state).replace(key=None))


def largest_difference(tree, other):
    """Of all arrays: the largest difference, relative to the array's largest value."""

    def difference(a, b):
        # A bias whose gradient is 0 but for rounding stays at nearly 0.
        return float(np.abs(a - b).max(initial=0) / max(np.abs(a).max(initial=0), 1e-3))

    return max(jax.tree.leaves(jax.tree.map(difference, tree, other)), default=0.0)
