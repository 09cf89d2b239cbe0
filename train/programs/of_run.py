"""The programs of a run: its initial state, a step for each shape of batches, an evaluation for each shape."""

import functools
from typing import Any, NamedTuple

from train.parallel import MeshParallel
from train.run.setup import Setup
from train.step import eval_step


class RunProgram(NamedTuple):
    """A jitted function, and abstract arguments of one of its programs.

    Attributes:
      name: such as `step 64x256`.
      function: jitted.
      arguments: with the shardings of the devices.
    """

    name: str
    function: Any
    arguments: tuple[Any, ...]


def programs_of(setup: Setup, layout: MeshParallel) -> list[RunProgram]:
    """All programs that a run compiles, except those of decoders and other functions of its evaluators."""
    layout = layout.of_model(setup.config.model, setup.abstract_state.params)
    state = layout.like(setup.abstract_state)
    train = layout.compile_train(setup.step, setup.abstract_state)
    score = layout.compile_eval(functools.partial(eval_step, objective=setup.objective))
    found = [RunProgram("initial state", layout.initialiser(setup.initial_state, setup.given), (setup.given,))]
    shapes = setup.corpus.shapes
    for batch in shapes.train:
        arguments = (state, layout.batch_like(batch, setup.config.accumulation_steps))
        found.append(RunProgram(f"step {shape_name(batch)}", train, arguments))
    for batch in shapes.evaluation:
        placed = layout.batch_like(batch)
        rows = placed["loss_mask"].shape[0]
        carry = layout.carry_like(setup.objective.empty_carry, rows)
        found.append(RunProgram(f"evaluation {shape_name(batch)}", score, (state.evaluation_params, placed, carry)))
    return found


def shape_name(batch: Any) -> str:
    """The shape of a batch in words: of its array with most axes, for each part."""
    if "loss_mask" not in batch:
        return ", ".join(f"{name} {shape_name(part)}" for name, part in batch.items())
    _, shape = max((x.ndim, x.shape) for x in batch.values())
    return "x".join(map(str, shape))
