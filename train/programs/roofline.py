"""A step's time by the roofline: each kernel takes as long as its products or its memory traffic, plus its launch.

Source: Williams et al. 2009. The attainable shares of the peaks are those of large products and copies on an H100.
Attention and small kernels reach less, so estimates serve to compare programs.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train.programs.hlo import Instruction, Program, arrays, bytes_of
from train.programs.peaks import Peaks

PRODUCT_SHARE, BANDWIDTH_SHARE = 0.62, 0.87
"""Attainable shares of the peak rates of products and of memory."""
FLASH_PRODUCTS = {"forward": 2, "backward_keys": 4, "backward_queries": 3}
"""The products of queries and keys in each kernel of `ops.flash`. Both gradient kernels compute the scores and the
gradient of the weights."""


class Estimate(NamedTuple):
    """The estimate of a program.

    Attributes:
      seconds: of one execution: the longer of kernels and links, which work at the same time.
      flops: of all its products.
      peak_share: `flops` per second, as a share of the device's peak in bfloat16.
      link_seconds: of the links to other devices at their peak.
    """

    seconds: float
    flops: float
    peak_share: float
    link_seconds: float


def estimate(program: Program, peaks: Peaks) -> Estimate:
    """The roofline of an optimised program on a device with these peaks.

    All branches of a conditional count: a training step's update is far longer than its alternative. Collectives count
    by memory traffic and link traffic.
    """
    types = {one.name: one.type for body in program.computations.values() for one in body}
    seconds = flops = 0.0
    for kernel, times in program.kernels():
        body = program.body(kernel)
        products = [product_flops(one, types) for one in (*body, kernel)]
        fast = sum(n for n, narrow in products if narrow) / (peaks.bfloat16 * PRODUCT_SHARE)
        slow = sum(n for n, narrow in products if not narrow) / (peaks.float32 * PRODUCT_SHARE)
        moved = traffic(kernel, program, types) / (peaks.bandwidth * BANDWIDTH_SHARE)
        seconds += times * (max(fast + slow, moved) + peaks.launch)
        flops += times * sum(n for n, _ in products)
    links = sum(one.link_bytes for one in program.transfers()) / peaks.links
    seconds = max(seconds, links)
    return Estimate(seconds, flops, flops / seconds / peaks.bfloat16 if seconds else 0.0, links)


def all_flops(program: Program) -> float:
    """The FLOPs of all products of an optimised program."""
    types = {one.name: one.type for body in program.computations.values() for one in body}
    return sum(
        times * product_flops(one, types)[0]
        for kernel, times in program.kernels()
        for one in (*program.body(kernel), kernel)
    )


def product_flops(one: Instruction, types: dict[str, str]) -> tuple[float, bool]:
    """The FLOPs of a product, and whether its operands have at most 16 bits; (0, True) for other instructions."""
    if one.op.startswith("custom-call") and "fmha" in (one.target or ""):
        return _attention_flops(one, types), True
    if flash_kernel(one) is not None:
        return _flash_flops(one, types)
    if one.op == "convolution":
        return _convolution_flops(one, types)
    if one.op != "dot" and "matmul" not in (one.target or "") and "gemm" not in (one.target or ""):
        return 0.0, True
    contracted = re.search(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)', one.line)
    if contracted is None or not one.operands:
        return 0.0, True
    ((dtype, left),) = arrays(types[one.operands[0]])[:1]
    _, result = arrays(one.type)[0]
    summed = math.prod(left[int(axis)] for axis in re.findall(r"\d+", contracted[1]))
    return 2.0 * summed * math.prod(result), dtype in ("bf16", "f16", "s8") or dtype.startswith("f8")


def _convolution_flops(one: Instruction, types: dict[str, str]) -> tuple[float, bool]:
    """As `product_flops`. A TPU computes products of matrices as convolutions, of a batch as windows over the batch's
    axes, with padding or dilation, which do not count."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.line)
    if labels is None:
        return 0.0, True
    (dtype, left), (_, kernel) = (arrays(types[name])[0] for name in one.operands[:2])
    sizes = [
        dict(zip(names, shape, strict=True))
        for names, shape in zip(labels.groups(), (left, kernel, arrays(one.type)[0][1]), strict=True)
    ]
    pairs = sizes[2]["b"] * sizes[2]["f"] * sizes[1]["i"]
    for axis, window in enumerate(_windows(one.line, sum(name.isdigit() for name in sizes[0]))):
        inputs, taps, outputs = (size[str(axis)] for size in sizes)
        pairs *= _products(inputs, taps, outputs, window)
    return 2.0 * pairs, dtype in ("bf16", "f16")


def _windows(line: str, axes: int) -> list[tuple[int, int, int, int]]:
    """For each axis of a convolution's windows: stride, padding before the input, dilations of input and kernel."""

    def numbers(name: str, default: str) -> list[int]:
        found = re.search(rf"\bwindow={{[^}}]*\b{name}=([-\dx_]+)", line)
        values = [default] * axes if found is None else found[1].split("x")
        return [int(value.partition("_")[0]) for value in values]

    columns = [numbers("stride", "1"), numbers("pad", "0"), numbers("lhs_dilate", "1"), numbers("rhs_dilate", "1")]
    return list(zip(*columns, strict=True))


def _products(inputs: int, taps: int, outputs: int, window: tuple[int, int, int, int]) -> int:
    """Number of elements of the outputs' windows along an axis that are elements of the input."""
    stride, before, spread, gap = window
    places = np.arange(outputs)[:, None] * stride + np.arange(taps) * gap - before
    return int(((places >= 0) & (places <= (inputs - 1) * spread) & (places % spread == 0)).sum())


def _attention_flops(one: Instruction, types: dict[str, str]) -> float:
    """The FLOPs of cuDNN's attention on q [B, T, H, K] and k [B, S, H, K]: two products forward, five backward; half if
    causal."""
    (_, q), (_, k) = (arrays(types[name])[0] for name in one.operands[:2])
    products = 5 if "Backward" in (one.target or "") else 2
    return 2.0 * products * math.prod(q) * k[1] * (0.5 if "CAUSAL" in one.line else 1.0)


def flash_kernel(one: Instruction) -> str | None:
    """The name of the kernel of `ops.flash` that a custom call runs, such as `forward`; None for other instructions."""
    if not one.op.startswith("custom-call") or not any(part in (one.target or "") for part in ("triton", "tpu")):
        return None
    found = re.search(rf"\bflash_({'|'.join(FLASH_PRODUCTS)})(?:_causal)?/pallas_call", one.line)
    return None if found is None else found[1]


def _flash_flops(one: Instruction, types: dict[str, str]) -> tuple[float, bool]:
    """As `product_flops`, of all positions, with the padding to whole blocks; half if causal. The first operand is q,
    the second k: [B, S, ...]; the result of the forward kernel and the fourth operand of the others are [B, T, ..., H,
    K] or [B, T, H K]."""
    name = flash_kernel(one) or ""
    (dtype, rows), *_ = arrays(one.type if name == "forward" else types[one.operands[3]])
    keys = arrays(types[one.operands[1]])[0][1][1]
    pairs = math.prod(rows) * keys * (0.5 if f"flash_{name}_causal" in one.line else 1.0)
    return 2.0 * FLASH_PRODUCTS[name] * pairs, dtype in ("bf16", "f16")


def traffic(kernel: Instruction, program: Program, types: dict[str, str]) -> float:
    """The bytes that a kernel reads and writes: only the used part of an array that is sliced, gathered from, or
    updated in place."""
    body = program.body(kernel)
    if not body:
        if kernel.op == "dynamic-update-slice":
            return 2.0 * bytes_of(types.get(kernel.operands[1], ""))
        given = dict.fromkeys(kernel.operands)  # packed q, k and v are given three times
        if kernel.op == "gather":
            return float(2 * bytes_of(kernel.type) + bytes_of(types.get(kernel.operands[1], "")))
        read = 0 if kernel.op == "dynamic-slice" else sum(bytes_of(types.get(name, "")) for name in given)
        return float(read + bytes_of(kernel.type) * (2 if kernel.op == "dynamic-slice" else 1))
    updated = [one for one in body if one.op == "dynamic-update-slice"]
    written = sum(bytes_of(types[one.operands[1]]) for one in updated) if updated else bytes_of(kernel.type)
    return float(written + sum(_read(one, body) for one in body if one.op == "parameter"))


def _read(parameter: Instruction, body: Sequence[Instruction]) -> float:
    uses = [one for one in body if parameter.name in one.operands]
    first = all(one.operands[0] == parameter.name for one in uses)
    if uses and first and all(one.op == "dynamic-slice" for one in uses):
        return sum(bytes_of(one.type) for one in uses)
    if uses and first and all(one.op == "dynamic-update-slice" for one in uses):
        return 0
    return min(bytes_of(parameter.type), _gathered(parameter, body))


_ELEMENTWISE = ("bitcast", "convert", "copy", "reshape", "select", "slice")
"""Operations that are computed element by element, only where a gather needs them."""


def _gathered(parameter: Instruction, body: Sequence[Instruction]) -> float:
    """The bytes that a fusion reads of a parameter if all its uses end in a gather; infinity otherwise."""
    names, elements = {parameter.name}, 0
    for one in body:  # operands come before their uses
        used = [operand in names for operand in one.operands]
        if one.op == "gather" and used[0] and not any(used[1:]):
            elements += math.prod(arrays(one.type)[0][1])
        elif any(used) and one.op in _ELEMENTWISE:
            names.add(one.name)
        elif any(used):
            return math.inf
    ((dtype, _),) = arrays(parameter.type)
    return bytes_of(f"{dtype}[{elements}]") if elements else math.inf
