"""`jaxnlp compile RECIPE --target h100`: compiles a recipe's programs for a device, which need not be on this machine.

Nothing is trained. XLA compiles the programs as on the device, except for its measured choice of the fastest kernels,
and for large sorts on a GPU. The time of a step is an estimate, see `train.programs.roofline`.
"""

import dataclasses
import json
import resource
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import jax

from jaxnlp.cli.messages import program_name
from jaxnlp.config import Config
from jaxnlp.ops.compiler_options import options_without_device
from train.cli.command_line import parse
from train.config import TrainConfig
from train.parallel import MeshMode, mesh_parallel
from train.programs.hlo import Transfer, lowered_counts, reused_arguments
from train.programs.hlo import parse as parse_hlo
from train.programs.of_run import RunProgram, programs_of
from train.programs.peaks import peaks_of
from train.programs.roofline import estimate
from train.programs.targets import Target, find_target
from train.run.device import for_device
from train.run.init_from import begin
from train.run.setup import set_up

PROGRAM = f"{program_name()} compile"


@dataclasses.dataclass(frozen=True)
class CompileOptions(Config):
    """Options of the compilation."""

    usual = ("target", "json")
    unused: ClassVar = ("total-steps", "seed", "evaluate-every-steps", "optimizer.learning-rate")

    target: str = "h100"
    """The devices: h100, eight of them as h100:8; a topology of TPUs, such as v5e:2x2; cpu, or cpu:8."""
    parallel: MeshMode = "jit"
    """How the devices share a step: see jaxnlp train."""
    mesh: str | None = None
    """The number of devices along each axis, such as data=4,model=2; None = all along one."""
    json: bool = False
    """Print JSON."""


def compile_programs(
    config: TrainConfig, target: Target, parallel: MeshMode = "jit", mesh: str | None = None
) -> list[dict[str, Any]]:
    """The results of `compiled` for each program of a recipe; for the mode and the mesh see
    `train.parallel.make_parallel`.

    Raises: as `make_parallel`, `begin` and `set_up`.
    """
    layout = mesh_parallel(parallel, target.devices, mesh)
    with target.tracing():
        setup = set_up(begin(for_device(config, target.devices[0])), devices=layout.devices)
        return [compiled(program, target) for program in programs_of(setup, layout)]


def compiled(program: RunProgram, target: Target) -> dict[str, Any]:
    """Compiles a program. Returns: counts, measurements and estimates, by name:

    compile_seconds and compile_cpu_seconds, of this process and its assemblers; operations and products of the program
    for XLA; custom_calls of the compiled program; the kernels of a call, in a loop at each turn, and those that copy an
    array to another layout or place; the bytes of each device for arguments, outputs and temporaries; donated_arrays,
    whose memory the caller gives up, and reused_arrays, whose memory an output takes; flops. For several devices,
    collectives: the number of each kind, and the bytes that they reduce, scatter or gather. If the peaks of the device
    are known, also estimated_seconds, peak_share and link_seconds.
    """
    wall, cpu = time.perf_counter(), _cpu_seconds()
    lowered = program.function.trace(*program.arguments).lower()
    here = target.capability is None
    executable = lowered.compile(None if here else options_without_device(target.devices[0]))
    wall, cpu = time.perf_counter() - wall, _cpu_seconds() - cpu
    operations, products = lowered_counts(lowered.as_text())
    text, memory = executable.as_text(), executable.memory_analysis()
    optimised = parse_hlo(text)
    found = {
        "program": program.name,
        "compile_seconds": round(wall, 2),
        "compile_cpu_seconds": round(cpu, 2),
        "operations": operations,
        "products": products,
        "kernels": sum(times for _, times in optimised.kernels()),
        "copies": sum(times for one, times in optimised.kernels() if one.op == "copy"),
        "custom_calls": optimised.custom_calls(),
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "donated_arrays": sum(one.donated for one in jax.tree.leaves(lowered.args_info)),
        "reused_arrays": reused_arguments(text),
        "flops": (executable.cost_analysis() or {}).get("flops"),
    }
    if len(target.devices) > 1:
        found["collectives"] = _by_kind(optimised.transfers())
    peaks = peaks_of(target.devices[0].device_kind)
    if peaks is not None:
        roofline = estimate(optimised, peaks)
        found |= {
            "flops": roofline.flops,
            "estimated_seconds": roofline.seconds,
            "peak_share": roofline.peak_share,
            "link_seconds": roofline.link_seconds,
        }
    return found


def _by_kind(transfers: Sequence[Transfer]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one in transfers:
        sums = found.setdefault(one.kind, {"count": 0, "bytes": 0})
        sums["count"] += one.times
        sums["bytes"] += one.times * one.bytes
    return found


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def as_text(rows: Sequence[dict[str, Any]], target: Target) -> str:
    """The programs in a few lines each, and their sums."""
    device = target.devices[0].device_kind
    lines = [f"{len(target.devices)} x {device}"]
    for row in rows:
        memory = ", ".join(f"{name}s {row[f'{name}_bytes'] / 1e9:.3g} GB" for name in ("argument", "output"))
        estimated = "estimated_seconds" in row
        lines += [
            "",
            row["program"],
            f"  compiled in {row['compile_seconds']:.1f} s, {row['compile_cpu_seconds']:.1f} CPU seconds",
            f"  {row['operations']:,} operations with {row['products']:,} products; {row['kernels']:,} kernels, "
            f"{row['copies']:,} of them copies",
            f"  {memory}, temporaries {row['temporary_bytes'] / 1e9:.3g} GB on a device",
            *([f"  reuses {row['reused_arrays']} of {row['donated_arrays']} arrays"] if row["donated_arrays"] else []),
            *([f"  {row['flops']:.3g} FLOP"] if row["flops"] and not estimated else []),
        ]
        if estimated:
            speed = f"{row['estimated_seconds'] * 1e3:.3g} ms, {row['peak_share']:.1%} of the peak in bfloat16"
            links = f", {row['link_seconds'] * 1e3:.3g} ms of them on the links" if row.get("collectives") else ""
            lines.append(f"  {row['flops']:.3g} FLOP in products; estimated {speed}{links}")
        if row["custom_calls"]:
            lines.append("  custom calls: " + ", ".join(f"{n} {kind}" for kind, n in row["custom_calls"].items()))
        for kind, sums in row.get("collectives", {}).items():
            lines.append(f"  {sums['count']:,} {kind} of {sums['bytes'] / 1e6:,.3g} MB together")
    seconds, cpu = (sum(row[name] for row in rows) for name in ("compile_seconds", "compile_cpu_seconds"))
    return "\n".join([*lines, "", f"{len(rows)} programs, compiled in {seconds:.1f} s, {cpu:.1f} CPU seconds"])


def main(arguments: list[str]) -> int:
    """Compiles and prints. Returns: the exit status.

    Raises: ValueError for a wrong command, or when the target's compiler is not installed.
    """
    config, options = parse(arguments, CompileOptions(), program=PROGRAM)
    target = find_target(options.target)
    jax.config.update("jax_enable_compilation_cache", False)  # a program that is read from it is not compiled
    rows = compile_programs(config, target, options.parallel, options.mesh)
    print(json.dumps(rows, indent=2) if options.json else as_text(rows, target))
    return 0
