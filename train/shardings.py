"""`jaxnlp shardings RECIPE --mesh data=4,model=2`: the part of a recipe's run on each device of a mesh.

Nothing is trained, and the devices need not exist. The activations are the temporaries of the largest step, as XLA
compiles it for as many virtual devices of this machine's CPU.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax

from jaxnlp.cli.messages import program_name
from jaxnlp.config import Config
from jaxnlp.typing import BATCH_AXIS, MODEL_AXIS, PyTree
from train.cli.command_line import parse
from train.config import TrainConfig
from train.optimizer.parameters import names
from train.parallel import MeshMode, MeshParallel, mesh_parallel, parse_mesh
from train.parallel.rules import SHARED, by_name
from train.programs.of_run import RunProgram, programs_of
from train.programs.targets import find_target
from train.run.init_from import begin
from train.run.setup import Setup, set_up

PROGRAM = f"{program_name()} shardings"


@dataclasses.dataclass(frozen=True)
class ShardingOptions(Config):
    """Options of the layout."""

    usual = ("parallel", "mesh", "json")
    unused: ClassVar = ("total-steps", "seed", "evaluate-every-steps", "optimizer.learning-rate")

    parallel: MeshMode = "fsdp"
    """How the devices share a step: see jaxnlp train."""
    mesh: str = "data=8"
    """The number of devices along each axis, such as data=4,model=2."""
    json: bool = False
    """Print JSON."""


class Held(NamedTuple):
    """A parameter, and its part on each device.

    Attributes:
      name: the keys of its path, joined by slashes.
      shape: of the whole parameter.
      axes: the letters of its axes, see jaxnlp/typing.py.
      spec: for each axis, the axis of the mesh whose devices share it; None = none.
      bytes: on each device.
      whole: the axes of the mesh along which it is whole, and the reason; "" = none.
    """

    name: str
    shape: tuple[int, ...]
    axes: str
    spec: tuple[str | None, ...]
    bytes: int
    whole: str


def parameters_of(setup: Setup, layout: MeshParallel) -> list[Held]:
    """The part of each parameter on each device, for a layout before `of_model`. Raises: as `placements`."""
    layout = layout.of_model(setup.config.model, setup.abstract_state.params)
    placed = by_name(layout.placements) if layout.placements is not None else {}
    found = []
    for path, x in jax.tree_util.tree_leaves_with_path(layout.like(setup.abstract_state).params):
        name = "/".join(names(path))
        spec = (*placed[name].spec,) if placed else (None,) * x.ndim
        note = placed[name].note if placed else ""
        whole = note or ("" if any(spec) else f"whole: {_why_whole(layout)}")
        found.append(Held(name, x.shape, setup.config.model.parameter(names(path)).axes, spec, held_bytes(x), whole))
    return found


def _why_whole(layout: MeshParallel) -> str:
    """The reason why no rule of a layout shares a parameter."""
    reasons = []
    if layout.mesh.size == layout.devices and not layout.fsdp:
        return "the devices share only the rows"
    if layout.fsdp and layout.devices > 1:
        reasons.append(f"{BATCH_AXIS} shares only matrices")
    if layout.mesh.size > layout.devices:
        reasons.append(f"{MODEL_AXIS} shares only the axes {', '.join(SHARED)}")
    return "; ".join(reasons)


def held_bytes(tree: PyTree) -> int:
    """The bytes on each device of a tree of abstract arrays with shardings."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def state_bytes(setup: Setup, layout: MeshParallel) -> dict[str, int]:
    """The bytes on each device of parameters, optimizer state and averages, by name."""
    state = layout.of_model(setup.config.model, setup.abstract_state.params).like(setup.abstract_state)
    return {
        "parameters": held_bytes(state.params),
        "optimizer_state": held_bytes(state.opt_state),
        "averages": held_bytes(state.ema),
    }


def largest_step(programs: Sequence[RunProgram]) -> RunProgram:
    """The step with the largest batch in bytes."""
    return max((one for one in programs if one.name.startswith("step ")), key=lambda one: held_bytes(one.arguments[1]))


def shardings(config: TrainConfig, parallel: MeshMode, mesh: str) -> dict[str, Any]:
    """Returns: `parameters`, the list of `parameters_of`; the bytes of `state_bytes`; `step`, the name of the largest
    step, and `activations`, the bytes of its temporaries on each device.

    Raises: as `find_target`, `mesh_parallel`, `begin` and `set_up`.
    """
    devices = find_target(f"cpu:{math.prod(parse_mesh(mesh).values())}").devices
    layout = mesh_parallel(parallel, devices, mesh)
    setup = set_up(begin(config), devices=layout.devices)
    parameters, step = parameters_of(setup, layout), largest_step(programs_of(setup, layout))
    memory = step.function.lower(*step.arguments).compile().memory_analysis()
    return {
        "parameters": [one._asdict() for one in parameters],
        "bytes": state_bytes(setup, layout) | {"activations": memory.temp_size_in_bytes},
        "step": step.name,
    }


def as_text(found: dict[str, Any], options: ShardingOptions) -> str:
    """The parameters as a table, and the totals."""
    rows = [("parameter", "shape", "axes", "spec", "MB on each")]
    for one in found["parameters"]:
        shape = "x".join(map(str, one["shape"]))
        spec = ", ".join(axis or "-" for axis in one["spec"]) if any(one["spec"]) else "whole"
        rows.append((one["name"], shape, one["axes"], spec, f"{one['bytes'] / 1e6:.3f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"--parallel {options.parallel}, mesh {options.mesh}", ""]
    for *words, size in rows:
        cells = [word.ljust(width) for word, width in zip(words, widths, strict=False)]
        lines.append("  ".join([*cells, size.rjust(widths[-1])]))
    lines += ["", "on each device, MB:"]
    for name, size in found["bytes"].items():
        detail = f", the temporaries of the {found['step']} on CPUs" if name == "activations" else ""
        lines.append(f"  {name.replace('_', ' '):<16}{size / 1e6:>12,.3f}{detail}")
    reasons: dict[str, list[str]] = {}
    for one in found["parameters"]:
        if one["whole"]:
            reasons.setdefault(one["whole"], []).append(one["name"])
    lines += ["", *(f"{', '.join(found)}: {why}" for why, found in reasons.items())]
    return "\n".join(lines).rstrip()


def main(arguments: list[str]) -> int:
    """Prints the layout. Returns: the exit status. Raises: ValueError for a wrong command."""
    config, options = parse(arguments, ShardingOptions(), program=PROGRAM)
    found = shardings(config, options.parallel, options.mesh)
    print(json.dumps(found, indent=2) if options.json else as_text(found, options))
    return 0
