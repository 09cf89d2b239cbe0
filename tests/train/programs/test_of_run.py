import jax
import numpy as np

from train.parallel import mesh_parallel
from train.programs.of_run import programs_of, shape_name
from train.run.init_from import begin
from train.run.setup import set_up


def test_a_run_has_its_initial_state_and_a_step_and_an_evaluation_of_each_shape(tiny_config):
    setup = set_up(begin(tiny_config(accumulation_steps=3)))
    programs = programs_of(setup, mesh_parallel("jit", jax.devices()[:2]))
    assert [program.name for program in programs] == ["initial state", "step 6x8", "evaluation 4x8"]
    _, step, evaluation = (program.arguments for program in programs)
    # Two examples for each of three parts.
    assert {x.shape for x in step[1].values()} == {(3, 2, 8)}
    assert {x.shape for x in evaluation[1].values()} == {(4, 8)}
    assert all(len(x.sharding.device_set) == 2 for x in jax.tree.leaves([*step, *evaluation]))


def test_a_batch_of_several_parts_has_the_shapes_of_all():
    part = {"tokens": np.zeros((4, 16)), "targets": np.zeros(4), "loss_mask": np.zeros(4)}
    assert shape_name(part) == "4x16"
    assert shape_name({"sst": part, "sts": part}) == "sst 4x16, sts 4x16"
