"""The forward pass next to which a call is measured."""

import numpy as np
import pytest

from benchmarks import answers, one_call
from benchmarks.case import OURS
from tests.benchmarks.test_answers import encoder

__all__ = ["encoder"]


@pytest.mark.thorough
def test_a_call_and_the_forward_pass_of_its_own_tokens_give_one_vector(encoder, monkeypatch):
    for module in (answers, one_call):
        monkeypatch.setattr(module, "minilm", lambda: encoder)
    for case in one_call.cases()[:2]:
        ours, alone = (case.implementations[name]()() for name in (OURS, one_call.FORWARD))
        np.testing.assert_allclose(ours, alone, atol=1e-5)
