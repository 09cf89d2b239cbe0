"""Steps of a config in a mode: what the tests of modes compare."""

import jax
import numpy as np

from train.config import update
from train.parallel import make_parallel
from train.run.begin import begin
from train.run.setup import set_up

STEPS = 20
MODES = {
    "jit": ("jit", None),
    "fsdp": ("fsdp", None),
    "tensor": ("tensor", "data=4,model=2"),
    "fsdp and tensor": ("fsdp", "data=4,model=2"),
    "pmap": ("pmap", None),
}
"""Every mode and its mesh, for eight devices."""


def trained(config, mode="jit", mesh=None, devices=8, steps=STEPS):
    """The losses of the first steps, and the state after them as on one device."""
    config = update(config, total_steps=max(steps, config.total_steps))
    layout = make_parallel(mode, jax.devices()[:devices], mesh=mesh)
    setup = set_up(begin(config), devices=layout.devices)
    layout = layout.of_model(setup.config.model, setup.abstract_state.params)
    step = layout.compile_train(setup.step, setup.abstract_state)
    state, batches = layout.initialise(setup.initial_state, setup.given), iter(setup.corpus.train)
    losses = []
    for _ in range(steps):
        state, output = step(state, layout.put_batch(next(batches), config.accumulation_steps))
        losses.append(output.metrics["loss"])
    total, count = np.array(jax.device_get(losses)).T
    return total / count, jax.device_get(layout.fetch(state).replace(key=None))


def largest_difference(tree, other):
    """Of all arrays: the largest difference, relative to the array's largest value."""

    def difference(a, b):
        return float(np.abs(a - b).max(initial=0) / max(np.abs(a).max(initial=0), 1e-6))

    return max(jax.tree.leaves(jax.tree.map(difference, tree, other)))
