"""The checks of a GPU run on a CPU in a small form, and notice what is wrong."""

import jax
import numpy as np
import pytest

from benchmarks import gpu_checks
from benchmarks.gpu_checks import CHECKS, Check, Comparison, difference, main


@pytest.fixture(autouse=True)
def standard_promotion():
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


QUICK = ("cuDNN LSTM", "cross-entropy", "gradient of embeddings")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in CHECKS]
)
def test_a_check_passes_or_says_that_it_needs_a_gpu(name, capsys):
    assert main([name]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"{name}: {'skipped' if CHECKS[name].needs_gpu else 'ok'}, ")


def test_a_check_that_differs_or_breaks_fails_and_the_others_go_on(monkeypatch, capsys):
    def broken(gpu):
        raise RuntimeError("out of registers")

    one = np.ones(2)
    checks = {
        "broken": Check(broken, 1.0),
        "far": Check(lambda gpu: Comparison(lambda: one * 1.1, one), 0.05),
        "not a number": Check(lambda gpu: Comparison(lambda: one * np.nan, one), 0.05),
        "near": Check(lambda gpu: Comparison(lambda: one * 1.01, one), 0.05),
    }
    monkeypatch.setattr(gpu_checks, "CHECKS", checks)
    assert main([]) == 1
    starts = [" ".join(line.split(", ")[0].split()[-1:]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert starts == ["FAILED", "FAILED", "FAILED", "ok"]
    assert main(["near"]) == 0


def test_the_largest_difference_is_a_share_of_each_arrays_largest_value():
    expected = [np.array([1.0, -10.0]), np.array([100.0])]
    assert difference([np.array([1.5, -10.0]), np.array([101.0])], expected) == pytest.approx(0.05)
