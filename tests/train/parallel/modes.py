"""Steps of a config in a mode: what the tests of modes compare."""

import dataclasses

import jax
import numpy as np

from tests.few_lengths import with_few_lengths
from train.config import update
from train.parallel import make_parallel
from train.run.init_from import begin
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


def first_state(config):
    """The state before the first step, on one device: compiling what makes it takes as long as a step's program."""
    setup = set_up(begin(comparable(config)))
    return make_parallel("jit", jax.devices()[:1]).initialise(setup.initial_state, setup.given)


def trained(config, mode="jit", mesh=None, devices=1, steps=STEPS, start=None):
    """The losses of the first steps, and the state after them as on one device.

    `start` is the state before the first step; None = the one that the mode makes.
    """
    config = comparable(update(config, total_steps=max(steps, config.total_steps)))
    layout = make_parallel(mode, jax.devices()[:devices], mesh=mesh)
    setup = set_up(begin(config), devices=layout.devices)
    layout = layout.of_model(setup.config.model, setup.abstract_state.params)
    step = layout.compile_train(setup.step, setup.abstract_state)
    state = layout.initialise(setup.initial_state, setup.given) if start is None else layout.place(copy_of(start))
    batches, losses = iter(setup.corpus.train), []
    for index in range(steps):
        if config.nt_asgd_patience is not None and index == steps // 2:  # as `train.run.progress` does after a stall
            state = dataclasses.replace(state, averaged=layout.place(np.int32(1)))
        state, output = step(state, layout.put_batch(next(batches), config.accumulation_steps))
        losses.append(weighted(output.metrics))
    total, count = np.array(jax.device_get(losses)).T
    return total / count, jax.device_get(layout.fetch(state).replace(key=None))


def copy_of(state):
    """A step takes the memory of the state that it is given."""
    return jax.tree.map(jax.numpy.copy, state)


def comparable(config):
    """The config with few lengths, each of which is a program, and no division by the size of a gradient.

    Where a gradient should be 0, Adam would compare only rounding.
    """
    config = with_few_lengths(config)
    return config if config.optimizer.kind == "sgd" else update(config, **{"optimizer.epsilon": 1e-3})


def largest_difference(tree, other):
    """Of all arrays: the largest difference, relative to the array's largest value."""

    def difference(a, b):
        # A bias whose gradient is 0 but for rounding stays at nearly 0.
        return float(np.abs(a - b).max(initial=0) / max(np.abs(a).max(initial=0), 1e-3))

    return max(jax.tree.leaves(jax.tree.map(difference, tree, other)), default=0.0)
