"""What crosses the devices, by the compiled program."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.saving.serialization import ConfigError
from tests.guards import test_families as guards
from train.config import update
from train.parallel import make_parallel, mesh_parallel, parse_mesh
from train.programs.hlo import parse
from train.run.init_from import begin
from train.run.setup import set_up

files = guards.files


@pytest.fixture(scope="module")
def config(files):
    """A GPT of two blocks and 16 words, with dropout."""
    with jax.numpy_dtype_promotion("standard"):
        yield update(guards.gpt_characters(files), accumulation_steps=1, ema_decay=None, **{"model.width": 16})


def laid_out(config, mode, mesh=None, devices=8):
    """A run's set-up, and its layout."""
    setup = set_up(begin(config))
    layout = mesh_parallel(mode, jax.devices()[:devices], mesh)
    return setup, layout.of_model(setup.config.model, setup.abstract_state.params)


def compiled(config, mode, mesh=None, devices=8):
    """The program of a step, and the abstract state with its shardings."""
    setup, layout = laid_out(config, mode, mesh, devices)
    state, batch = layout.like(setup.abstract_state), layout.batch_like(next(iter(setup.corpus.train)))
    step = layout.compile_train(setup.step, setup.abstract_state)
    return step.lower(state, batch).compile(), state


def collectives(program):
    return parse(program.as_text()).collectives()


def test_in_data_parallel_nothing_but_sums_crosses_the_devices(config):
    program, _ = compiled(config, "jit")
    assert collectives(program).keys() == {"all-reduce"}


@pytest.mark.thorough
def test_with_fsdp_each_shared_parameter_is_gathered_and_its_gradient_scattered_once(config):
    program, state = compiled(config, "fsdp")
    shared = [x for x in jax.tree.leaves(state.params) if not x.sharding.is_fully_replicated]
    per_layer = [x for x in shared if x.ndim > 2]
    found = collectives(program)
    assert found["all-gather"] == found["reduce-scatter"] == len(shared) + len(per_layer)  # of two layers
    assert found.keys() == {"all-gather", "reduce-scatter", "all-reduce"}


@pytest.mark.thorough
def test_layers_that_are_scanned_are_gathered_one_at_a_time(config):
    model = dataclasses.replace(config.model, num_layers=8, compute=TransformerCompute(scan_layers=True))
    setup, layout = laid_out(dataclasses.replace(config, model=model), "fsdp")
    state, batch = layout.like(setup.abstract_state), layout.batch_like(next(iter(setup.corpus.train)))
    step = layout.compile_train(setup.step, setup.abstract_state)
    outputs = layout.compile_outputs(lambda params, batch: setup.model.apply({"params": params}, batch["tokens"]))
    stacked = {x.shape for x in jax.tree.leaves(state.params) if x.ndim > 2}
    for lowered in (step.lower(state, batch), outputs.lower(state.params, batch)):
        gathered = [line for line in lowered.compile().as_text().splitlines() if " all-gather(" in line]
        assert gathered
        assert not any(f"[{','.join(map(str, shape))}]" in line for line in gathered for shape in stacked)


@pytest.mark.thorough
def test_along_the_axis_model_only_sums_of_activations_cross_the_devices(config):
    program, _ = compiled(config, "tensor", devices=2)
    assert collectives(program).keys() == {"all-reduce"}


@pytest.mark.thorough
def test_each_device_holds_its_share_of_parameters_and_moments(config):
    _, whole = compiled(config, "jit")
    _, state = compiled(config, "fsdp", "data=4,model=2")

    def held(tree):
        leaves = [x for x in jax.tree.leaves(tree) if hasattr(x, "sharding") and x.dtype == np.float32]
        return sum(int(np.prod(x.sharding.shard_shape(x.shape))) for x in leaves)

    for name in ("params", "opt_state"):
        assert held(getattr(state, name)) < held(getattr(whole, name)) / 5


@pytest.mark.parametrize(
    ("mode", "mesh", "message"),
    [
        ("jit", "data=4,model=2", "jit has no axis model, got the mesh data=4,model=2; use tensor or fsdp"),
        ("fsdp", "data=4", "the mesh data=4 has 4 devices, but there are 8; give another --mesh"),
        ("fsdp", "rows=8", "a mesh has the form data=4,model=2, got 'rows=8'"),
        ("fsdp", "data=0,model=8", "a mesh has the form data=4,model=2, got 'data=0,model=8'"),
        ("fsdp", "data=8,data=1", "a mesh has the form data=4,model=2, got 'data=8,data=1'"),
        ("pmap", "data=8", "pmap has no mesh, got data=8; remove --mesh, or use jit, fsdp or tensor"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused_with_the_remedy(mode, mesh, message):
    with pytest.raises(ConfigError) as caught:
        make_parallel(mode, mesh=mesh)
    assert str(caught.value) == message


def test_the_axis_of_the_rows_is_there_if_it_is_not_named():
    assert parse_mesh("model=8") == {"data": 1, "model": 8}
