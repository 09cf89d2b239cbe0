import json
import types

import pytest

from tests.train.programs.texts import STEP
from train.programs.peak_share import peak_facts
from train.programs.peaks import PEAKS

STEP_FLOPS = 2 * 256 * 512 * 128


def test_flops_are_counted_for_each_token_on_all_devices():
    executable = types.SimpleNamespace(as_text=lambda: STEP)
    assert peak_facts(executable, 512.0, 2, "NVIDIA H100 80GB HBM3") == {
        "flops_per_unit": 2 * STEP_FLOPS / 512,
        "peak_flops": 2 * PEAKS["H100"].bfloat16,
    }


@pytest.mark.parametrize("target", ["__gpu$xla.gpu.triton", "tpu_custom_call"])
def test_kernels_of_flash_are_counted(target):
    kernel = f"""  %y = bf16[2,256,1,1,128]{{4,3,2,1,0}} custom-call(%q, %q, %q), custom_call_target="{target}", \
metadata={{op_name="jit(step)/flash_forward/pallas_call"}}
  %fused ="""
    step = STEP.replace("  %fused =", "  %q = bf16[2,256,3,1,128]{4,3,2,1,0} parameter(2)\n" + kernel)
    facts = peak_facts(types.SimpleNamespace(as_text=lambda: step), 512.0, 1, "NVIDIA H100 80GB HBM3")
    assert facts["flops_per_unit"] * 512 == STEP_FLOPS + 4 * 2 * 256 * 256 * 128


@pytest.mark.parametrize("target", ["__gpu$xla.gpu.triton", "tpu_custom_call"])
def test_nothing_is_said_of_a_step_with_products_that_are_not_counted(target):
    step = STEP.replace("__cublas$lt$matmul", target)
    assert step != STEP
    assert peak_facts(types.SimpleNamespace(as_text=lambda: step), 512.0, 1, "NVIDIA H100 80GB HBM3") == {}


@pytest.mark.parametrize(("count", "kind"), [(0.0, "NVIDIA H100 80GB HBM3"), (512.0, "cpu")])
def test_nothing_is_said_of_unknown_devices_and_of_an_empty_step(count, kind):
    assert peak_facts(None, count, 1, kind) == {}


@pytest.mark.thorough
def test_a_run_records_them(tiny_config, quick_fit, tmp_path, monkeypatch):
    config = tiny_config(total_steps=3, evaluate_every_steps=3)
    quick_fit(config, tmp_path / "plain")
    assert "peak_flops" not in json.loads((tmp_path / "plain" / "environment.json").read_text())
    monkeypatch.setattr("train.programs.peak_share.peaks_of", lambda _: PEAKS["H100"])
    quick_fit(config, tmp_path / "known")
    environment = json.loads((tmp_path / "known" / "environment.json").read_text())
    assert environment["flops_per_unit"] > 0
    assert environment["peak_flops"] == environment["devices"] * PEAKS["H100"].bfloat16
