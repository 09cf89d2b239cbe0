"""The order and the precision in which inference reads a model's parameters."""

from collections.abc import Mapping
from typing import Any, Literal

import flax.linen as nn
import jax
from flax.traverse_util import flatten_dict

from jaxnlp.models import ModelConfig
from jaxnlp.nn.dense import OUTPUT_ROWS, TRANSPOSED
from jaxnlp.nn.transformer import unstacked
from jaxnlp.ops.devices import target_platform
from jaxnlp.ops.quantisation import quantised_rows
from jaxnlp.typing import Params

Weights = Literal["float32", "int8"]
"""float32: as trained; int8: weights of dense layers in 8 bits."""


def inference_params(model: nn.Module, params: Params, weights: Weights = "float32") -> Params:
    """Parameters of a trained model for its functions: each block has its own.

    On CPU dense layers of blocks have transposed kernels, so that all weights of an output are adjacent: a product with
    few rows takes up to a half less time. Rounded operands have a fast path of their own, and keep their kernels.

    With int8 these layers and the output layer of a model that generates have 8 bits a weight (`ops.quantisation`), so
    that a token of one sequence takes less time. Models that read many rows at once would take more: see there.

    Args:
      model: the Linen module, with its `config`.
      params: as trained. They are copied.
      weights: of dense layers.

    Raises: ValueError for int8 and a model that does not generate, or not with Transformer blocks.
    """
    config: ModelConfig = model.config
    quantised = weights == "int8"
    # On the host, since a program that only copies takes longer to compile than the copies take.
    separate = unstacked(jax.device_get(params))
    if not quantised and (target_platform() != "cpu" or config.compute.operand_dtype is not None):
        return jax.device_put(separate)
    changed = _with_transposed_kernels(config, separate, (), _quantised if quantised else _transposed)
    if quantised:
        if not hasattr(model, "decoding_params") or not any(path[-1] == TRANSPOSED for path in flatten_dict(changed)):
            raise ValueError(
                "int8 is for models that generate with Transformer blocks; others would be slower: leave it out for a "
                f"{type(model).__name__}"
            )
        changed[OUTPUT_ROWS] = _quantised(model.output_layer(params)[0])
    return jax.device_put(changed)


def _with_transposed_kernels(config: ModelConfig, params: Params, path: tuple[str, ...], transpose: Any) -> Params:
    """The same tree with `transposed_kernel` [F, D] for each `kernel` [D, ...] of a block's dense layer."""
    changed: dict[str, Any] = {}
    for name, value in params.items():
        here = (*path, "blocks" if name.startswith("block_") else name)
        if isinstance(value, Mapping):
            changed[name] = _with_transposed_kernels(config, value, here, transpose)
        elif name == "kernel" and "blocks" in here and config.parameter(here).dense:
            changed[TRANSPOSED] = transpose(value)
        else:
            changed[name] = value
    return changed


@jax.jit
def _transposed(kernel: jax.Array) -> jax.Array:
    """[D, ...] as [F, D]."""
    return kernel.reshape(len(kernel), -1).T


@jax.jit
def _quantised(kernel: jax.Array) -> Any:
    """[D, ...] as [F, D] in 8 bits."""
    return quantised_rows(_transposed(kernel))
