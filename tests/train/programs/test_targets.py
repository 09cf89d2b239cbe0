import os
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from jaxnlp.ops.devices import cuda_capability, target_platform
from train.programs.targets import NVIDIA, Target, find_target


def test_functions_are_traced_for_the_target():
    gpu: Any = SimpleNamespace(device_kind="NVIDIA H100 80GB HBM3", core_count=132, platform="gpu")
    with Target("h100", [gpu], NVIDIA["h100"]).tracing():
        assert cuda_capability() == (9, 0)
    with Target("cpu", jax.devices()[:1]).tracing():
        assert cuda_capability() is None
    tpu: Any = SimpleNamespace(device_kind="TPU v5 lite", platform="tpu")
    with Target("v5e:2x2", [tpu] * 4).tracing():
        assert target_platform() == "tpu"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("x100", "--target must be one of"),
        ("cpu:0", "--target cpu:N needs a number of devices, got 'cpu:0'"),
        ("h100:8x8", "--target h100:N needs a number of devices, got 'h100:8x8'"),
        ("cpu:9", "needs 9 devices, but JAX has begun with 8"),
        ("h100", r"jaxnlp\[aot\]'\. JAX said: topology not implemented for cuda"),
    ],
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
    assert find_target("cpu:4").devices == jax.devices()[:4]


def test_compiling_for_tpus_leaves_libtpu_to_other_processes(monkeypatch):
    monkeypatch.setattr("train.programs.targets._topology", lambda *_: SimpleNamespace(devices=["a", "b"]))
    monkeypatch.setattr("os.environ", {})
    assert find_target("v5e:1x2").devices == ["a", "b"]
    assert os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"
    assert os.environ["TPU_SKIP_MDS_QUERY"] == "1"


@pytest.mark.parametrize(("name", "options"), [("v5e:1x1", {"chips_per_host_bounds": [1, 1, 1]}), ("v5e:2x2", {})])
def test_one_tpu_is_a_host_with_one_chip(monkeypatch, name, options):
    """libtpu refused it: hosts have four chips unless it is told otherwise."""
    found = []
    monkeypatch.setattr(
        "train.programs.targets._topology", lambda *_, **given: found.append(given) or SimpleNamespace(devices=["a"])
    )
    monkeypatch.setattr("os.environ", {})
    assert find_target(name).devices == ["a"]
    assert found == [options]
