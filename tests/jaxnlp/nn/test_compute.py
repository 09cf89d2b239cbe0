import pytest

from jaxnlp.nn.compute import EXACT, Compute, TransformerCompute
from jaxnlp.nn.recurrent import RecurrentCompute
from jaxnlp.ops.devices import compile_for


@pytest.mark.parametrize(
    ("platform", "fast", "activations", "operands", "words"),
    [
        ("cpu", False, "float32", None, "float32"),
        ("cpu", True, "float32", "bfloat16", "float32, with bfloat16 products"),
        ("gpu", False, "bfloat16", "bfloat16", "bfloat16"),
        ("tpu", False, "bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_default_types_are_those_in_which_the_device_is_fast(monkeypatch, platform, fast, activations, operands, words):
    monkeypatch.setattr("jaxnlp.ops.matrix_products.cpu_multiplies_bfloat16", lambda: fast)
    with compile_for(platform):
        assert (Compute().activation_dtype, Compute().operand_dtype) == (activations, operands)
        assert Compute().types == words
        assert (EXACT.activation_dtype, EXACT.operand_dtype) == ("float32", None)
        chosen = Compute(dtype="bfloat16", matmul_dtype="bfloat16")
        assert (chosen.activation_dtype, chosen.operand_dtype) == ("bfloat16", "bfloat16")


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_blocks_are_looped_over_on_tpus_or_where_it_is_asked_for(platform):
    with compile_for(platform):
        assert TransformerCompute().loops is (platform == "tpu")
        assert TransformerCompute(scan_layers=True).loops is True
        assert TransformerCompute(scan_layers=False).loops is False


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (Compute, {"dtype": "float16"}, "model.compute.dtype must be one of auto, float32, bfloat16, got 'float16'"),
        (Compute, {"matmul_dtype": "float32"}, "model.compute.matmul_dtype"),
        (TransformerCompute, {"attention": "pallas"}, "model.compute.attention"),
        (RecurrentCompute, {"recurrence": "cuda"}, "model.compute.recurrence"),
    ],
)
def test_values_that_are_not_choices_are_refused_by_name(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        kind(**fields)
