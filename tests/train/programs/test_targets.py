from types import SimpleNamespace
from typing import Any

import jax
import pytest

from jaxnlp.ops.devices import cuda_capability, target_platform
from train.programs.targets import NVIDIA, Target, find_target


def test_functions_are_traced_for_the_target():
    gpu: Any = SimpleNamespace(platform="gpu", device_kind="NVIDIA H100 80GB HBM3", core_count=132)
    with Target("h100", [gpu], NVIDIA["h100"]).tracing():
        assert cuda_capability() == (9, 0)
    with Target("cpu", jax.devices()[:1]).tracing():
        assert cuda_capability() is None
    tpu: Any = SimpleNamespace(platform="tpu")
    with Target("v5e:2x2", [tpu]).tracing():
        assert target_platform() == "tpu"


@pytest.mark.parametrize(
    ("target", "message"),
    [("x100", "--target must be one of"), ("h100", r"jaxnlp\[aot\]'\. JAX said: topology not implemented for cuda")],
)
def test_a_target_that_cannot_be_compiled_for_is_refused_in_a_line(target, message, monkeypatch):
    monkeypatch.setattr("train.programs.targets.topologies.get_topology_desc", missing)
    with pytest.raises(ValueError, match=message):
        find_target(target)


def missing(*_, **__):
    """As in an environment without the compiler."""
    raise NotImplementedError("topology not implemented for cuda")


def test_this_machine_is_a_target():
    assert find_target("cpu").devices == jax.devices()[:1]
