"""A run continues on any number of devices and in any mode."""

import json

import jax
import numpy as np
import pytest
from rich.console import Console

from jaxnlp.saving.checkpoint_reading import checkpoint_steps
from tests.guards import test_families as guards
from tests.train.parallel.modes import largest_difference
from tests.train.parallel.test_modes import slow_lstm
from train.config import update
from train.loop import fit
from train.parallel import make_parallel

files = guards.files

LAYOUTS = [
    ("fsdp", None, 8),
    ("jit", None, 1),
    ("tensor", None, 2),
    ("fsdp", "data=4,model=2", 8),
    ("pmap", None, 4),
    ("fsdp", None, 2),
    ("jit", None, 8),
]
"""Mode, mesh and number of devices of each start of one run."""


FAMILIES = {"GPT": guards.gpt_characters, "LSTM with carried states": slow_lstm}


@pytest.fixture
def start(monkeypatch):
    """Starts or continues a run with a mode on some devices."""
    monkeypatch.setattr("train.loop.write_report", lambda _: None)

    def start(config, folder, mode, mesh, devices):
        def on_some(mode, mesh):
            return make_parallel(mode, jax.devices()[:devices], mesh=mesh)

        monkeypatch.setattr("train.loop.make_parallel", on_some)
        return fit(config, folder, parallel=mode, mesh=mesh, console=Console(quiet=True)).state

    return start


def losses(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {(row["split"], row["step"]): row["loss"] for row in rows}


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_continues_in_every_mode_on_any_number_of_devices(family, files, start, stop_at, tmp_path):
    often = {"evaluate_every_steps": 5, "checkpoint_every_steps": 1, "keep_checkpoints": 2}
    config = update(FAMILIES[family](files), total_steps=2 * len(LAYOUTS), **often)
    straight, changed = tmp_path / "straight", tmp_path / "changed"
    expected = start(config, straight, "jit", None, 1)
    for number, layout in enumerate(LAYOUTS, 1):
        with stop_at(2 * number):
            state = start(config, changed, *layout)
        assert checkpoint_steps(changed)[-1] == 2 * number
    assert losses(changed).keys() == losses(straight).keys()
    for at, loss in losses(straight).items():
        np.testing.assert_allclose(losses(changed)[at], loss, rtol=1e-5, err_msg=str(at))
    for name in ("params", "ema"):
        assert largest_difference(*jax.device_get((getattr(expected, name), getattr(state, name)))) < 1e-4
