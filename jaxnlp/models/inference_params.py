"""The layout and the precision of parameters at inference."""

import functools
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxnlp.models import ModelConfig
from jaxnlp.nn.dense import OUTPUT_ROWS, TRANSPOSED
from jaxnlp.nn.transformer import unstacked
from jaxnlp.ops.devices import target_platform
from jaxnlp.ops.matrix_products import operand_dtype
from jaxnlp.ops.quantisation import quantised_rows
from jaxnlp.typing import Params

Weights = Literal["float32", "bfloat16", "int8"]
"""float32: as trained; bfloat16, int8: weights of dense layers in 16 or 8 bits."""


def inference_params(model: nn.Module, params: Params, weights: Weights = "float32") -> Params:
    """Parameters of a trained model for its functions: each block has its own.

    On CPU dense layers of blocks have transposed kernels, so that an output's weights are adjacent: a product with few
    rows takes up to a half less time. With bfloat16, or if the model rounds the operands of products, these kernels are
    rounded once, and their products round their inputs.

    With int8 they have 8 bits a weight (`ops.quantisation`), which is faster for one sequence, and slower for many
    rows. In 16 or 8 bits the output layer of a model that generates is rounded, too.

    Args:
      model: the Linen module, with its `config`.
      params: as trained; they are copied.
      weights: of dense layers.

    Raises: ValueError for other weights; for 16 or 8 bits and a model without Transformer blocks; for 8 bits and a
      model that does not generate; for 16 bits on a CPU without instructions for bfloat16.
    """
    if weights not in get_args(Weights):
        raise ValueError(f"weights must be one of {', '.join(get_args(Weights))}, got {weights!r}")
    config: ModelConfig = model.config
    # On the host, since a program that only copies takes longer to compile than the copies take. No array may stay
    # bound to its device: the results of a program would be bound, and the next program compiled again for them.
    params = jax.device_get(params)
    flat = flatten_dict(unstacked(params))
    kernels = [path for path in flat if _is_of_a_block(config, path)]
    generates = hasattr(model, "decoding_params")
    if weights != "float32" and (not kernels or (weights == "int8" and not generates)):
        models = "that generate with Transformer blocks" if weights == "int8" else "with Transformer blocks"
        raise ValueError(
            f"{weights} is for models {models}; others would be slower: leave it out for a {type(model).__name__}"
        )
    if weights == "bfloat16" and operand_dtype("auto") is None:
        raise ValueError("bfloat16 would be slower on this CPU, which has no instructions for it: leave it out")
    if not kernels or (weights == "float32" and target_platform() != "cpu"):
        return jax.device_put(unflatten_dict(flat))
    precision = (config.compute.operand_dtype or "float32") if weights == "float32" else weights
    for path in kernels:
        flat[*path[:-1], TRANSPOSED] = _rows(flat.pop(path), precision)
    if precision != "float32" and generates:
        flat[(OUTPUT_ROWS,)] = _rows(model.output_layer(params)[0], precision)
    return jax.device_put(unflatten_dict(flat))


def _is_of_a_block(config: ModelConfig, path: tuple[str, ...]) -> bool:
    """Whether a path is the kernel of a dense layer of a block."""
    stacked = tuple("blocks" if name.startswith("block_") else name for name in path)
    return path[-1] == "kernel" and "blocks" in stacked and config.parameter(stacked).dense


@functools.partial(jax.jit, static_argnames="precision")
def _rows(kernel: jax.Array, precision: str) -> Any:
    """The weights of each output of a dense layer [D, ...]: [F, D]."""
    rows = kernel.reshape(len(kernel), -1).T
    return quantised_rows(rows) if precision == "int8" else rows.astype(precision)
