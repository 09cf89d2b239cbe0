"""Parameters of a model for tests that are not about the initial ones."""

import functools
from typing import Any

import flax.linen as nn
import jax
import numpy as np


def random_parameters(model: nn.Module, *inputs: Any, spread: float = 0.3, **options: Any) -> Any:
    """Normal ones, around 1 for scales of norms and around 0 for all others: compiling the initial ones takes long."""
    shapes = jax.eval_shape(functools.partial(model.init, **options), jax.random.key(0), *inputs)["params"]
    draw = np.random.default_rng(1)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.float32((path[-1].key == "scale") + spread * draw.normal(size=leaf.shape)), shapes
    )
