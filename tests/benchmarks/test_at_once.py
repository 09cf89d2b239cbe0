"""The two implementations of runs at once and one by one."""

import jax
import numpy as np
import pytest

from benchmarks.at_once import ONE_BY_ONE, cases
from benchmarks.case import OURS


@pytest.mark.thorough
def test_both_take_the_same_steps():
    case = next(case for case in cases() if case.variant == "small_grammar_tagger")
    found = []
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax's moments count in int32
        for name in (OURS, ONE_BY_ONE):
            step = case.implementations[name]()
            step()
            found.append([float(output.metrics["loss"][0]) for output in jax.device_get(step())])
    np.testing.assert_allclose(*found, rtol=1e-4)
    assert len(set(found[0])) == len(found[0])
