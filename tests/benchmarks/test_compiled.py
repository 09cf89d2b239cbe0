"""The table of programs for an H100 in docs/accelerators.md, and what it must say."""

import json

import pytest

from benchmarks.compiled import PAGE, RESULTS, RUNS, table, text_of_words
from benchmarks.markdown import with_table
from jaxnlp.text.byte_pairs import BytePairs

ROWS = json.loads(RESULTS.read_text(encoding="utf-8"))
CUDNN = {"__cudnn$fmhaSoftmax"}
CUDNN_GRADIENT = {*CUDNN, "__cudnn$fmhaSoftmaxBackward"}
FLASH = {"__gpu$xla.gpu.triton"}
STEPS = {
    "gpt2_small": (16, CUDNN_GRADIENT),
    "gpt2_small, dropout 0.1": (30, FLASH),
    "gpt_shakespeare": (15, FLASH),
    "multi30k_transformer": (15, FLASH | CUDNN_GRADIENT),
    "names_pretrain_a5": (15, FLASH),
    "awd_lstm": (15, set()),
    "vit_cifar10": (15, CUDNN_GRADIENT),
}
"""The most CPU seconds of a step's program, and custom calls that it must have."""
EVALUATIONS = {"multi30k_transformer": FLASH | CUDNN, "awd_lstm": set()}
"""Custom calls of evaluations; of other runs, those of cuDNN's attention."""
GPT2 = {"gpt2_small": (34, 9.5), "gpt2_small, dropout 0.1": (38, 9.8)}
"""The most estimated ms of a step, and PyTorch's GB."""


def test_the_page_has_the_table_of_the_recorded_rows():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(ROWS))
    assert {row["run"] for row in ROWS} == {*RUNS} == {*STEPS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['run']}: {row['program']}")
def test_each_program_compiles_in_seconds_and_has_the_kernels_of_attention(row):
    kind, calls = row["program"].partition(" ")[0], row["custom_calls"].keys()
    seconds, wanted = STEPS[row["run"]]
    if kind == "step":
        assert row["compile_cpu_seconds"] <= seconds
        assert calls >= wanted
        if row["run"] == "awd_lstm":  # the scan, since JAX would ask a GPU about cuDNN's LSTM
            assert not [call for call in calls if "cudnn" in call]
        assert row["reused_arrays"] == row["donated_arrays"] > 0
    elif kind == "initial":
        assert row["compile_cpu_seconds"] <= 5
    else:
        assert row["compile_cpu_seconds"] <= seconds
        assert calls >= EVALUATIONS.get(row["run"], CUDNN)


@pytest.mark.parametrize(("run", "most"), [("multi30k_transformer", 3), ("names_pretrain_a5", 1)])
def test_a_run_has_few_programs(run, most):
    kinds = [row["program"].partition(" ")[0] for row in ROWS if row["run"] == run]
    assert kinds.count("initial") == 1
    assert 0 < kinds.count("step") <= most
    assert 0 < kinds.count("evaluation") <= most


@pytest.mark.parametrize("run", GPT2)
def test_the_step_of_gpt2_is_near_pytorch_by_the_estimate_and_in_memory(run):
    milliseconds, gigabytes = GPT2[run]
    [step] = [row for row in ROWS if row["run"] == run and row["program"].startswith("step")]
    assert step["estimated_seconds"] * 1e3 <= milliseconds
    # The state is updated in place.
    assert (step["argument_bytes"] + step["temporary_bytes"]) / 1e9 <= 1.1 * gigabytes


def test_the_text_has_words_that_differ(tmp_path):
    text = text_of_words(tmp_path / "text.txt", count=2_000).read_text()
    assert len(set(text.split())) == 2_000
    assert BytePairs.of([text], 600).size == 600
