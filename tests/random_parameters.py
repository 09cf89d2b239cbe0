"""Parameters of a model for tests that are not about the initial ones."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np

from jaxnlp.models import parameter_shapes


def random_parameters(model: nn.Module, *inputs: Any, spread: float = 0.3, **options: Any) -> Any:
    """Normal ones, around 1 for scales of norms and around 0 for all others: compiling the initial ones takes long."""
    shapes = parameter_shapes(model, *inputs, **options)
    draw = np.random.default_rng(1)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.float32((path[-1].key == "scale") + spread * draw.normal(size=leaf.shape)), shapes
    )
