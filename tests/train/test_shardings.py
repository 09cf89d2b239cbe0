import dataclasses
import json
import os
import subprocess
import sys

import jax
import pytest

from jaxnlp.__main__ import main as jaxnlp_main
from tests.guards import test_families as guards
from train import shardings as module
from train.config import update
from train.parallel import mesh_parallel
from train.run.init_from import begin
from train.run.setup import set_up
from train.shardings import as_text, parameters_of, state_bytes

files = guards.files


@pytest.fixture(scope="module")
def setup(files):
    """A GPT of two blocks with an average of its parameters."""
    config = update(guards.gpt_characters(files), accumulation_steps=1, ema_decay=0.9, **{"model.width": 16})
    return set_up(begin(config), devices=4)


def held_by_the_first_device(tree):
    leaves = jax.tree.leaves(tree)
    return sum(x.addressable_shards[0].data.nbytes for x in leaves)


@pytest.mark.thorough
@pytest.mark.parametrize(("mode", "mesh"), [("jit", "data=8"), ("fsdp", "data=4,model=2")])
def test_the_bytes_are_those_that_a_device_holds(setup, mode, mesh):
    layout = mesh_parallel(mode, jax.devices()[:8], mesh)
    placed = layout.of_model(setup.config.model, setup.abstract_state.params)
    state = placed.initialise(setup.initial_state, setup.given)
    expected = {
        "parameters": held_by_the_first_device(state.params),
        "optimizer_state": held_by_the_first_device(state.opt_state),
        "averages": held_by_the_first_device(state.ema),
    }
    assert state_bytes(setup, layout) == expected
    rows = parameters_of(setup, layout)
    assert sum(row.bytes for row in rows) == expected["parameters"]
    assert [row.shape for row in rows] == [x.shape for x in jax.tree.leaves(state.params)]


@pytest.mark.parametrize(
    ("mode", "mesh", "reason"),
    [
        ("jit", "data=8", "whole: the devices share only the rows"),
        ("fsdp", "data=8", "whole: data shares only matrices"),
        ("tensor", "model=2", "whole: model shares only the axes H, O, G, F, V"),
        ("fsdp", "data=4,model=2", "whole: data shares only matrices; model shares only the axes H, O, G, F, V"),
    ],
)
def test_a_parameter_is_shared_or_has_a_reason_to_be_whole(setup, mode, mesh, reason):
    count = 2 if mesh == "model=2" else 8
    rows = parameters_of(setup, mesh_parallel(mode, jax.devices()[:count], mesh))
    assert all(any(row.spec) or row.whole for row in rows)
    assert reason in {row.whole for row in rows}


def test_a_vocabulary_that_the_devices_do_not_divide_is_named(setup):
    layout = mesh_parallel("tensor", jax.devices()[:2], "model=2")
    odd = {row.name for row in parameters_of(setup, layout) if row.axes[0] == "V" and row.shape[0] % 2}
    named = {row.name for row in parameters_of(setup, layout) if "whole along model" in row.whole}
    assert named == odd


def test_the_command_prints_a_table_or_json_of_the_largest_step(tiny_config, monkeypatch, capsys):
    monkeypatch.setattr(module, "parse", lambda arguments, options, program: (tiny_config(), given))
    given = module.ShardingOptions(parallel="fsdp", mesh="data=2")
    assert jaxnlp_main(["shardings", "tiny"]) == 0
    text = capsys.readouterr().out
    given = dataclasses.replace(given, json=True)
    assert jaxnlp_main(["shardings", "tiny"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["step"] == "step 6x8"
    assert found["bytes"]["activations"] > 0
    assert text.rstrip("\n") == as_text(found, given)
    assert all(row["name"] in text for row in found["parameters"])


@pytest.mark.thorough
def test_the_devices_need_not_be_there(tmp_path):
    (tmp_path / "text.txt").write_text("Once upon a time there was a stone.\n" * 400)
    command = [sys.executable, "-m", "jaxnlp", "shardings", "gpt_text_file", f"--data.path={tmp_path / 'text.txt'}"]
    environ = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [*command, "--mesh=data=3", "--json"], env=environ, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["bytes"]["parameters"] > 0
