import json
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxnlp.__main__ import main as jaxnlp_main
from train import compile as module
from train.compile import as_text, compile_programs, compiled
from train.programs.of_run import RunProgram
from train.programs.peaks import PEAKS
from train.programs.targets import Target


@pytest.fixture(scope="module")
def two():
    return Target("cpu", jax.devices()[:2])


@pytest.fixture(scope="module")
def rows(tiny_config, two):
    return compile_programs(tiny_config(total_steps=3), two)


def test_each_program_of_a_run_is_compiled_and_counted(rows, two):
    assert [row["program"] for row in rows] == ["initial state", "step 6x8", "evaluation 4x8"]
    for row in rows:
        assert row["kernels"] > 0
        assert row["operations"] > row["products"]
        assert row["compile_cpu_seconds"] > 0
        assert "peak_share" not in row  # the peak of a CPU is not known
    _, step, evaluation = rows
    assert step["products"] > evaluation["products"] > 0
    # Two devices add up their gradients and metrics.
    assert step["collectives"]["all-reduce"]["count"] > 0
    assert evaluation["collectives"]["all-reduce"]["bytes"] < step["collectives"]["all-reduce"]["bytes"]
    assert step["reused_arrays"] == step["donated_arrays"] > 0
    assert evaluation["reused_arrays"] == evaluation["donated_arrays"] == 0
    assert step["argument_bytes"] > evaluation["argument_bytes"] > 0
    assert f"{len(rows)} programs, compiled in " in as_text(rows, two)
    assert "all-reduce" in as_text(rows, two)


def test_kernels_of_a_loop_count_at_each_of_its_turns(two):
    def kernels(turns):
        def loop(x):
            return jax.lax.scan(lambda x, _: (x @ x + 1, None), x, length=turns)[0]

        program = RunProgram("loop", jax.jit(loop), (jax.ShapeDtypeStruct((8, 8), jnp.float32),))
        return compiled(program, Target("cpu", two.devices[:1]))["kernels"]

    assert kernels(50) - kernels(30) >= 20


def test_xla_does_not_ask_a_gpu_that_is_not_there(two, monkeypatch):
    """A sort of many words, as in the gradient of embeddings, asked it for memory."""
    asked, lowered = [], jax.jit(lambda x: x + 1.0).lower(1.0)
    monkeypatch.setattr(module, "options_without_device", lambda device: {"without": device})
    wrapped: Any = SimpleNamespace(
        compile=lambda options: asked.append(options) or lowered.compile(),
        as_text=lowered.as_text,
        args_info=lowered.args_info,
    )
    program = RunProgram("step", SimpleNamespace(trace=lambda: SimpleNamespace(lower=lambda: wrapped)), ())
    for capability in (None, (9, 0)):
        compiled(program, two._replace(capability=capability))
    assert asked == [None, {"without": two.devices[0]}]


def test_the_roofline_of_a_device_with_known_peaks_is_told(tiny_config, monkeypatch):
    monkeypatch.setattr(module, "peaks_of", lambda _: PEAKS["H100"])
    row = compile_programs(tiny_config(total_steps=3), Target("h100", jax.devices()[:1]))[1]
    assert row["estimated_seconds"] > 0
    assert 0 < row["peak_share"] < 1
    assert row["link_seconds"] == 0  # one device
    assert "of the peak in bfloat16" in as_text([row], Target("h100", jax.devices()[:1]))


def test_the_command_prints_json(rows, monkeypatch, capsys):
    monkeypatch.setattr(module, "find_target", lambda name: name)
    monkeypatch.setattr(module, "compile_programs", lambda config, target, *_: [{"target": target, **rows[0]}])
    monkeypatch.setattr(module.jax.config, "update", lambda *_: None)
    assert jaxnlp_main(["compile", "gpt_python_docs", "--target", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"target": "cpu", **rows[0]}]
