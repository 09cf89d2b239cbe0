import jax
import pytest

from train import compiler_options as module
from train.compiler_options import OPTIONS, OPTIONS_WITHOUT_DEVICE, compiler_options, jit_for, options_without_device


def test_programs_for_cpus_have_no_options():
    assert compiler_options(jax.devices()[0]) is None
    assert int(jit_for(jax.devices()[0], lambda x: x + 1)(1)) == 2


def test_an_option_that_this_xla_does_not_have_is_left_out_and_said_once(monkeypatch, caplog):
    kept = "xla_embed_ir_in_executable"
    monkeypatch.setitem(OPTIONS, "gpu", {kept: False, "xla_gpu_option_of_the_past": False})
    gpu = type("Gpu", (), {"platform": "gpu"})()
    # Here XLA for CPUs is asked: it knows the options of all platforms.
    monkeypatch.setattr(module.jax.sharding, "SingleDeviceSharding", lambda _: None)
    with caplog.at_level("INFO"):
        assert compiler_options(gpu) == compiler_options(gpu) == {kept: False}
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == ["xla_gpu_option_of_the_past"]


@pytest.mark.parametrize("platform", OPTIONS)
def test_some_version_of_xla_in_our_range_has_each_option(platform, monkeypatch):
    monkeypatch.setattr(module.jax.sharding, "SingleDeviceSharding", lambda _: None)
    device = type("Device", (), {"platform": platform})()
    assert compiler_options(device) == OPTIONS[platform]
    assert options_without_device(device) == OPTIONS_WITHOUT_DEVICE[platform]
