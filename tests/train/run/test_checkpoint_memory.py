"""The memory of the host that saving and restoring take."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.run.checkpoint_writing import _to_write

ROOT = Path(__file__).resolve().parents[3]


def on_mesh(array, *spec):
    """An array that four devices along `data` and two along `model` share."""
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))


def address(shard):
    return shard.data.unsafe_buffer_pointer()


@pytest.mark.parametrize(("spec", "copies"), [(("data",), 4), (("model", "data"), 8)])
def test_one_of_equal_shards_is_copied_and_no_whole_array_is_made(spec, copies):
    array = on_mesh(jnp.arange(64.0).reshape(8, 8), *spec)
    written = _to_write(array)
    assert written.sharding == array.sharding
    np.testing.assert_array_equal(written, array)
    pairs = zip(array.addressable_shards, written.addressable_shards, strict=True)
    assert [of.replica_id for of, to in pairs if address(of) != address(to)] == [0] * copies


COPIES = """
import ctypes, gc, sys
from pathlib import Path
import jax, jax.numpy as jnp, optax
from jax.sharding import NamedSharding, PartitionSpec
from train.run.checkpoint_writing import Checkpoints
from train.run.folder import RunSpec
from train.run.progress import RunProgress
from train.step import init_state

SPEC = RunSpec({}, {"recipe": "r"}, {"type": "jaxnlp.text:P"}, "d", "f")
MESH = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))

def peak(act, *given):
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    act(*given)
    return status("VmHWM") - before

def make(width):
    params = {str(n): jnp.full((1024, width), n, jnp.float32) for n in range(30)}
    return init_state(params, optax.sgd(0.1), jax.random.key(0), ema=False)

def like(width):
    def placed(x):
        spec = PartitionSpec("data") if x.ndim else PartitionSpec()
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(MESH, spec))
    return jax.tree.map(placed, jax.eval_shape(lambda: make(width)))

def save(state, folder):
    with Checkpoints(folder, keep=1) as checkpoints:
        checkpoints.save(state, SPEC, RunProgress(state), None, {})

def restore(width, folder):
    with Checkpoints(folder, keep=1) as checkpoints:
        found.append(checkpoints.restore_latest(like(width)))

folder, found, of_state = Path(sys.argv[1]), [], 30 * 1024 * 1024 * 4
state = {n: jax.device_put(make(n), jax.tree.map(lambda x: x.sharding, like(n))) for n in (8, 1024)}
save(state[8], folder / "8")  # starts the threads, which stay
restore(8, folder / "8")
saving = peak(save, state.pop(1024), folder / "1024")
print(saving / of_state, peak(restore, 1024, folder / "1024") / of_state)
"""
"""Prints the additional memory of saving and of restoring, in copies of the state."""


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says how much memory was taken")
@pytest.mark.parametrize("devices", [1, 4])
def test_saving_holds_one_further_copy_of_the_state_and_restoring_no_other(devices, tmp_path):
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "PYTHONPATH": str(ROOT)}
    flags["MALLOC_ARENA_MAX"] = "1"  # as `jaxnlp.cli.restart` has it: other heaps keep what they free
    command = [sys.executable, "-c", COPIES, str(tmp_path)]
    done = subprocess.run(command, env=os.environ | flags, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    saving, restoring = map(float, done.stdout.split())
    assert 0.9 < saving < 1.15
    assert 0.9 < restoring < 1.4  # the state, and what is being read
