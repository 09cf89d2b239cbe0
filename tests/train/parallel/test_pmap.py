import jax
import numpy as np
import pytest

from jaxnlp.saving.serialization import ConfigError
from train.parallel import make_parallel
from train.step import TrainState


def test_pmap_with_several_processes_is_refused_since_each_would_train_by_itself(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ConfigError, match="pmap supports only one process, but there are 2; use jit"):
        make_parallel("pmap")
    assert make_parallel("jit").devices == len(jax.devices())


def test_each_device_has_all_parameters_and_the_carry_of_its_rows(devices):
    layout = make_parallel("pmap", devices)
    state = TrainState(*(np.int32(0),) * 2, {"w": np.ones(3)}, (), None, *(np.int32(0),) * 2, carry=(np.arange(16.0),))
    placed = layout.place(state)
    assert placed.params["w"].shape == (8, 3)
    np.testing.assert_array_equal(placed.carry[0], np.arange(16.0).reshape(8, 2))
    np.testing.assert_array_equal(layout.fetch(placed).carry[0], state.carry[0])
    np.testing.assert_array_equal(layout.whole(placed.params)["w"], np.ones(3))
