"""Options of the computation: types, implementations, memory. They do not change the model."""

import dataclasses
from typing import ClassVar, Literal

from jaxnlp.config import Config
from jaxnlp.ops.attention import Implementation
from jaxnlp.ops.matrix_products import operand_dtype


@dataclasses.dataclass(frozen=True)
class Compute(Config):
    """Options of every layer. They may change on resume; environment.json records them."""

    section: ClassVar[str] = "model.compute"
    usual = ("matmul_dtype",)

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the computation; parameters stay float32."""
    matmul_dtype: Literal["auto", "bfloat16"] | None = None
    """Type that the operands of matrix products are rounded to; sums stay in float32. auto: bfloat16 where the
    processor multiplies it faster than float32; None = no rounding."""

    @property
    def operand_dtype(self) -> str | None:
        """`matmul_dtype` on this machine, with `auto` resolved; None = no rounding."""
        return operand_dtype(self.matmul_dtype)


@dataclasses.dataclass(frozen=True)
class TransformerCompute(Compute):
    """Options of every layer, of attention, and of stacks of blocks."""

    attention: Implementation = "auto"
    """Gradient of attention by hand (vjp) or by autodiff (xla), JAX's fused GPU kernel (cudnn), or the library's
    (flash); auto chooses."""
    scan_layers: bool = False
    """Compile one block and loop over it: compiles faster, runs slower on CPU."""
    remat: bool = False
    """Compute each block again in the backward pass: less memory, more time."""
