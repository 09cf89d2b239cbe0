"""Both sides of the benchmarks of foreign weights give the same results."""

import numpy as np
import pytest

from benchmarks import complete, encode, foreign, rewrite
from benchmarks.answers import OPPONENT
from benchmarks.case import OURS

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
TINY = {
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 8},
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2},
    "modernbert": {**SIZES, "pad_token_id": 0},
    "roberta": {**SIZES, "pad_token_id": 0},
    "xlm-roberta": {**SIZES, "pad_token_id": 0},
    "clip_text_model": {**SIZES, "projection_dim": 16},
    "clip_vision_model": {**SIZES, "projection_dim": 16},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 31},
}
TINY["bart"] = {
    name: 2 if "heads" in name else 1 if "layers" in name else 16 for name in foreign.ENCODER_DECODERS["bart"]
}
TINY["marian"] = foreign.ENCODER_DECODERS["marian"] | TINY["bart"] | {"vocab_size": 29}
TINY["bart"]["vocab_size"] = 31
FEW = [case for case in encode.cases() if "32 of 32" not in case.variant and ", 8, " not in case.variant]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr("jaxnlp.ops.matrix_products.cpu_multiplies_bfloat16", lambda: True)
    for name in ("ENCODERS", "IMAGE_ENCODERS", "DECODERS", "ENCODER_DECODERS"):
        monkeypatch.setattr(foreign, name, {kind: TINY.get(kind, SIZES) for kind in getattr(foreign, name)})


@pytest.mark.sweep(1)
@pytest.mark.parametrize("case", FEW, ids=lambda case: case.variant)
def test_both_sides_compute_the_same_vectors(case):
    ours, theirs = (case.implementations[name]()() for name in (OURS, OPPONENT))
    assert ours.shape == theirs.shape
    assert ours.shape[1:] == (16,)
    np.testing.assert_allclose(ours, theirs, atol=1e-5 if "32 bits" in case.variant else 0.05)
    assert np.ptp(ours) > 0.01


def test_texts_have_the_tokens_that_the_variants_name():
    tokens = {name: [words + 2 for words in counts] for name, counts in encode.TEXTS.items()}
    for name, counts in tokens.items():
        number, _, *least, most, _ = name.replace("to", "").split()
        assert len(counts) == int(number)
        assert (min(counts), max(counts)) == (int((least or [most])[0]), int(most))
    assert {case.tokens for case in encode.cases() if case.tokens} == {sum(counts) for counts in tokens.values()}


@pytest.mark.thorough
@pytest.mark.parametrize("case", complete.cases(), ids=lambda case: case.variant)
def test_both_sides_write_the_same_text_without_rounding(case):
    ours, theirs = (case.implementations[name]()() for name in (OURS, OPPONENT))
    assert ours.startswith(foreign.PROMPT)
    if "32 bits" in case.variant:
        assert ours == theirs


@pytest.mark.thorough
@pytest.mark.parametrize("case", rewrite.cases(), ids=lambda case: case.variant)
def test_both_sides_rewrite_a_text_alike_without_rounding(case):
    ours, theirs = (case.implementations[name]()() for name in (OURS, OPPONENT))
    if "32 bits" in case.variant:
        assert len(ours) > 20
        assert ours == theirs
