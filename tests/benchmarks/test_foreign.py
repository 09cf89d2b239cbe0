"""Both sides of the benchmarks of foreign weights give the same results."""

import numpy as np
import pytest

from benchmarks import complete, encode, foreign
from benchmarks.answers import OPPONENT
from benchmarks.case import OURS

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
TINY = {
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 8},
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2},
    "modernbert": {**SIZES, "pad_token_id": 0},
    "roberta": {**SIZES, "pad_token_id": 0},
    "xlm-roberta": {**SIZES, "pad_token_id": 0},
}
ONE_INPUT = [case for case in encode.cases() if case.implementations[OURS].args[1] == 1]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr("jaxnlp.ops.matrix_products.cpu_multiplies_bfloat16", lambda: True)
    for name in ("ENCODERS", "IMAGE_ENCODERS", "DECODERS"):
        monkeypatch.setattr(foreign, name, {kind: TINY.get(kind, SIZES) for kind in getattr(foreign, name)})


@pytest.mark.sweep(1)
@pytest.mark.parametrize("case", ONE_INPUT, ids=lambda case: case.variant)
def test_both_sides_compute_the_same_vectors(case):
    ours, theirs = (case.implementations[name]()() for name in (OURS, OPPONENT))
    assert ours.shape == theirs.shape
    assert ours.shape[1:] == (16,)
    np.testing.assert_allclose(ours, theirs, atol=1e-5 if "32 bits" in case.variant else 0.05)
    assert np.ptp(ours) > 0.01


def test_a_text_has_thirty_two_tokens_with_those_around_it():
    assert {case.tokens // 32 for case in encode.cases() if case.tokens} == {1, 32}
    assert len(foreign.SENTENCE.split()) + 2 == 32


@pytest.mark.thorough
@pytest.mark.parametrize("case", complete.cases(), ids=lambda case: case.variant)
def test_both_sides_write_the_same_text_without_rounding(case):
    ours, theirs = (case.implementations[name]()() for name in (OURS, OPPONENT))
    assert ours.startswith(foreign.PROMPT)
    if "32 bits" in case.variant:
        assert ours == theirs
