"""Options of the computation: types, implementations, memory. They do not change the model."""

import dataclasses
from typing import ClassVar, Literal, Self

from jaxnlp.config import Config
from jaxnlp.ops.attention import Implementation
from jaxnlp.ops.devices import target_platform
from jaxnlp.ops.matrix_products import operand_dtype


@dataclasses.dataclass(frozen=True)
class Compute(Config):
    """Options of every layer. They may change on resume; environment.json records them."""

    section: ClassVar[str] = "model.compute"
    usual = ("dtype",)

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of activations and of the operands of matrix products. Parameters, statistics of normalisation, softmax and
    losses stay in float32. auto: bfloat16 on GPUs and TPUs, float32 on CPUs."""
    matmul_dtype: Literal["auto", "bfloat16"] | None = "auto"
    """Type that operands of matrix products are rounded to if activations are in float32; sums stay in float32. auto:
    bfloat16 where the processor multiplies it faster than float32; None = no rounding."""

    @property
    def activation_dtype(self) -> str:
        """`dtype` on the platform of `ops.devices`, with `auto` resolved."""
        if self.dtype != "auto":
            return self.dtype
        return "float32" if target_platform() == "cpu" else "bfloat16"

    @property
    def operand_dtype(self) -> str | None:
        """`matmul_dtype` on the platform of `ops.devices`, with `auto` resolved; None = no rounding."""
        return operand_dtype(self.matmul_dtype)

    @property
    def without_unmapped_kernels(self) -> Self:
        """The same options, where `auto` chooses no kernel that `jax.vmap` cannot map."""
        return self

    @property
    def exact(self) -> Self:
        """The same options in float32, without rounding."""
        return dataclasses.replace(self, dtype="float32", matmul_dtype=None)

    @property
    def types(self) -> str:
        """Both types in words: `float32`, `bfloat16`, or `float32, with bfloat16 products`."""
        operands = self.operand_dtype or self.activation_dtype
        return self.activation_dtype + ("" if operands == self.activation_dtype else f", with {operands} products")


@dataclasses.dataclass(frozen=True)
class TransformerCompute(Compute):
    """Options of every layer, of attention, and of stacks of blocks."""

    attention: Implementation = "auto"
    """Gradient of attention by hand (vjp) or by autodiff (xla), JAX's fused GPU kernel (cudnn), or the library's
    kernels for GPUs and TPUs (flash); auto chooses."""
    scan_layers: bool | None = None
    """Compile one block and loop over it: compiles faster, runs slower on CPUs. None = on TPUs, where a program of all
    blocks compiles four times as long."""
    remat: bool = False
    """Compute each block again in the backward pass: less memory, more time."""

    @property
    def loops(self) -> bool:
        """`scan_layers` on the platform of `ops.devices`, with None resolved."""
        return target_platform() == "tpu" if self.scan_layers is None else self.scan_layers


EXACT = TransformerCompute().exact
"""Float32 on every device, for models with foreign weights. On GPUs and TPUs XLA still rounds the operands of products,
unless `jax_default_matmul_precision` is "highest"."""
