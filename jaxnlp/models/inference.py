"""The order in memory in which inference reads a model's parameters."""

from collections.abc import Mapping
from typing import Any

import jax

from jaxnlp.models import ModelConfig
from jaxnlp.nn.dense import TRANSPOSED
from jaxnlp.nn.transformer import unstacked
from jaxnlp.ops.devices import target_platform
from jaxnlp.typing import Params


def inference_params(config: ModelConfig, params: Params) -> Params:
    """Parameters of a trained model for its functions: each block has its own.

    On CPU their dense layers have transposed kernels, so that all weights of an output are adjacent: a product with few
    rows takes up to a half less time. Rounded operands have a fast path of their own, and keep their kernels.

    Args:
      config: the model's.
      params: as trained. They are copied.
    """
    # On the host, since a program that only copies takes longer to compile than the copies take.
    separate = unstacked(jax.device_get(params))
    if target_platform() == "cpu" and config.compute.operand_dtype is None:
        separate = _with_transposed_kernels(config, separate, ())
    return jax.device_put(separate)


def _with_transposed_kernels(config: ModelConfig, params: Params, path: tuple[str, ...]) -> Params:
    """The same tree with `transposed_kernel` [F, D] for each `kernel` [D, ...] of a block's dense layer."""
    changed: dict[str, Any] = {}
    for name, value in params.items():
        here = (*path, "blocks" if name.startswith("block_") else name)
        if isinstance(value, Mapping):
            changed[name] = _with_transposed_kernels(config, value, here)
        elif name == "kernel" and "blocks" in here and config.parameter(here).dense:
            changed[TRANSPOSED] = _transposed(value)
        else:
            changed[name] = value
    return changed


@jax.jit
def _transposed(kernel: jax.Array) -> jax.Array:
    """[D, ...] as [F, D]."""
    return kernel.reshape(len(kernel), -1).T
