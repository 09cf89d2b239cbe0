"""The formulas of `benchmarks.mesh_costs`, by the compiled steps of eight devices."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from benchmarks.mesh_costs import costs, transformer_activations
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.typing import BATCH_AXIS, MODEL_AXIS
from tests.guards import test_families as guards
from train.config import update
from train.parallel import mesh_parallel
from train.parallel.rules import placements
from train.programs.hlo import parse
from train.recipes import load_recipe
from train.run.init_from import begin
from train.run.setup import set_up
from train.shardings import state_bytes

files = guards.files
FEW = 600
"""Bytes of metrics and norms, which the formulas leave out."""


@pytest.fixture(scope="module")
def config(files):
    """A GPT of two blocks in float32, without dropout."""
    with jax.numpy_dtype_promotion("standard"):
        config = update(guards.gpt_characters(files), accumulation_steps=1, ema_decay=None, **{"model.width": 16})
        model = dataclasses.replace(config.model, **{f"{name}_dropout_rate": 0.0 for name in DROPOUTS})
        yield dataclasses.replace(config, model=model)


DROPOUTS = ("embedding", "attention", "residual")


def exchanged(program, size):
    """The bytes of each kind of transfer among groups of this many devices."""
    found = dict.fromkeys(("all-reduce", "all-gather", "reduce-scatter"), 0)
    for one in program.transfers():
        if one.devices == size:
            found[one.kind] += one.bytes * one.times
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mode", "mesh", "compute"),
    [
        ("jit", {"data": 8}, {}),
        ("fsdp", {"data": 8}, {}),
        ("fsdp", {"data": 8}, {"scan_layers": True, "remat": True, "dtype": "bfloat16"}),
        ("fsdp", {"data": 8}, {"dtype": "bfloat16"}),
        ("fsdp", {"data": 8}, {"scan_layers": True, "remat": True}),
        ("fsdp", {"data": 4, "model": 2}, {}),
        ("tensor", {"data": 4, "model": 2}, {}),
        ("tensor", {"data": 4, "model": 2}, {"scan_layers": True, "remat": True}),
    ],
)
def test_a_compiled_step_exchanges_what_the_formulas_say(config, mode, mesh, compute):
    compute = TransformerCompute(**{"dtype": "float32", "matmul_dtype": None} | compute)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, compute=compute))
    setup = set_up(begin(config), devices=mesh["data"])
    model, params = setup.config.model, setup.abstract_state.params
    placed = placements(model.parameter, params, mesh, fsdp=mode == "fsdp")
    unplaced = mesh_parallel(mode, jax.devices()[:8], ",".join(f"{name}={size}" for name, size in mesh.items()))
    layout = unplaced.of_model(model, params)
    batch = layout.batch_like(next(iter(setup.corpus.train)))
    rows, positions = batch["tokens"].shape
    activations = transformer_activations(
        rows // mesh["data"], positions, model.width, model.num_layers, 4, remat=compute.remat
    )
    found = costs(
        placed,
        params,
        mesh,
        regathered=compute.remat and compute.scan_layers,
        of_kernels=jax.numpy.dtype(compute.dtype).itemsize,
        activations=activations,
    )
    step = layout.compile_train(setup.step, setup.abstract_state)
    program = parse(step.lower(layout.like(setup.abstract_state), batch).compile().as_text())

    along_data = exchanged(program, mesh[BATCH_AXIS])
    assert along_data["all-gather"] == found.gathered
    assert along_data["reduce-scatter"] == found.scattered
    assert 0 <= along_data["all-reduce"] - found.summed < FEW
    if MODEL_AXIS in mesh:
        of_tokens = 3 * 4 * rows // mesh[BATCH_AXIS] * positions  # maximum and sum of each softmax, logit of the target
        along_model = exchanged(program, mesh[MODEL_AXIS])
        assert along_model["all-gather"] == along_model["reduce-scatter"] == 0
        assert 0 <= along_model["all-reduce"] - found.activations - of_tokens < FEW
    held = state_bytes(setup, unplaced)
    assert 0 <= held["parameters"] + held["optimizer_state"] - found.state < FEW  # and counters


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["jit", "fsdp"])
def test_a_step_compiled_for_a_thousand_devices_exchanges_what_the_formulas_say(mode, tmp_path):
    """A GPT as wide as there are devices, and a row for each of them."""
    devices = 1024
    (tmp_path / "text.txt").write_text("Once upon a time there was a stone.\n" * 600)
    options = {"data.path": tmp_path / "text.txt", "data.batch_size": devices, "data.sequence_length": 16}
    options |= {"model.width": devices, "model.num_layers": 1, "model.context_length": 16}
    options |= {"model.compute.matmul_dtype": None}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "jaxnlp", "compile", "gpt_text_file", *words, f"--target=cpu:{devices}", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([*command, f"--parallel={mode}"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (step,) = (row for row in json.loads(done.stdout) if row["program"].startswith("step "))

    options["data.path"] = str(options["data.path"])
    setup, mesh = set_up(begin(update(load_recipe("gpt_text_file"), **options))), {"data": devices}
    params = setup.abstract_state.params
    found = costs(placements(setup.config.model.parameter, params, mesh, fsdp=mode == "fsdp"), params, mesh)
    exchanged = {kind: sums["bytes"] for kind, sums in step["collectives"].items()}
    assert 0 <= exchanged.pop("all-reduce") - found.summed < FEW
    assert exchanged == ({} if mode == "jit" else {"all-gather": found.gathered, "reduce-scatter": found.scattered})
    assert found.gathered > 0 or mode == "jit"


@pytest.mark.thorough
def test_what_is_sent_grows_to_a_bound_with_the_number_of_devices(config):
    setup = set_up(begin(config))
    model, params = setup.config.model, setup.abstract_state.params
    size = sum(x.size * 4 for x in jax.tree.leaves(params))

    def of(devices):
        mesh = {"data": devices}
        return costs(placements(model.parameter, params, mesh, fsdp=False), params, mesh)

    assert of(1).sent == 0
    assert np.all(np.diff([of(2**n).sent for n in range(11)]) > 0)
    assert of(1024).sent == pytest.approx(2 * size, rel=1e-3)
    assert of(1024).state == of(1).state == 3 * size
