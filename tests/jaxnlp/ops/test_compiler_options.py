from pathlib import Path

import jax
import pytest

import jaxnlp
from jaxnlp.ops import compiler_options as module
from jaxnlp.ops.compiler_options import (
    OPTIONS,
    OPTIONS_WITHOUT_DEVICE,
    compiler_options,
    jit,
    jit_for,
    options_without_device,
)


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


def test_a_jitted_function_has_the_options_of_the_platform_when_it_is_first_called(monkeypatch):
    asked = []

    def options(device):
        asked.append(device.platform)
        return {"xla_option_of_the_past": True}

    monkeypatch.setattr(module, "compiler_options", options)
    add = jit(lambda x, y: x + y, static_argnums=1)
    assert asked == []
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_option_of_the_past"):
        add(1, 2)
    assert asked == ["cpu"]
    assert jax.jit(lambda x: add(x, 2))(1) == 3  # a part of another program
    monkeypatch.setattr(module, "compiler_options", lambda _: None)
    add = jit(lambda x, y: x + y, static_argnums=1)
    assert add(1, 2) == 3
    assert add._cache_size() == 1


@pytest.mark.parametrize("platform", OPTIONS)
def test_some_version_of_xla_in_our_range_has_each_option(platform, monkeypatch):
    monkeypatch.setattr(module.jax.sharding, "SingleDeviceSharding", lambda _: None)
    device = type("Device", (), {"platform": platform})()
    assert compiler_options(device) == OPTIONS[platform]
    assert options_without_device(device) == OPTIONS_WITHOUT_DEVICE[platform]


def test_programs_of_decoding_and_tasks_have_the_options():
    root = Path(jaxnlp.__file__).parent
    files = [
        path for room in ("decoding", "tasks") for path in (root / room).rglob("*.py") if path.parent.name != "export"
    ]
    assert len(files) > 50
    assert [path.name for path in files if "jax.jit" in path.read_text(encoding="utf-8")] == []
